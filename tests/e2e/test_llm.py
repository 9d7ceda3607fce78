from __future__ import annotations

import os
import signal
import sys

import pytest

from octavo import LLM, SamplingParams
from octavo.core.admission import RequestRejected
from octavo.core.sampling_params import ParameterError
from octavo.engine.chat_template import ChatTemplateError
from tests.engine.tiny_model import EOS_ID, NUM_TOKENS

ENDLESS = SamplingParams(max_tokens=400, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tiny_model):
    with LLM(str(tiny_model), backend="reference", max_num_seqs=4, num_threads=1) as llm:
        yield llm


def answers_plainly(llm) -> bool:
    """Whether the engine is empty and a request right now is served."""
    pool = llm.engine.core.scheduler.kv.pool
    is_empty = not llm.engine.core.scheduler.has_unfinished and pool.num_free == pool.num_blocks
    return is_empty and len(llm.generate("Hello", SamplingParams(max_tokens=3))[0].outputs[0].token_ids) == 3


def test_outputs_come_in_the_order_of_the_prompts_whoever_ends_first(llm):
    prompts = [f"prompt {number}" for number in range(10)]
    params = [SamplingParams(max_tokens=20 - 2 * number, ignore_eos=True) for number in range(10)]
    outputs = llm.generate(prompts, params)
    assert [output.prompt for output in outputs] == prompts
    assert [len(output.outputs[0].token_ids) for output in outputs] == [20 - 2 * number for number in range(10)]
    assert all(output.finished for output in outputs)


@pytest.mark.parametrize("prompt", ["A", [68], (68,), {"prompt": "A"}, {"prompt_token_ids": [68]}])
def test_one_prompt_in_any_form_is_one_output(llm, prompt):
    for prompts in (prompt, [prompt]):
        (output,) = llm.generate(prompts, SamplingParams(temperature=0.0))
        assert output.prompt_token_ids == [68]
        assert len(output.outputs[0].token_ids) == 16


def test_no_prompts_are_no_outputs(llm):
    assert llm.generate([]) == []


def test_parameters_are_one_for_all_or_one_for_each(llm):
    with pytest.raises(ValueError, match="2 prompts came with 1 sampling_params"):
        llm.generate(["A", "B"], [SamplingParams()])


@pytest.mark.parametrize(
    ("bad", "error"),
    [("", RequestRejected), ([NUM_TOKENS], ParameterError), ([True], ParameterError), ("x" * 512, RequestRejected)],
)
def test_all_prompts_are_checked_before_any_is_run(llm, bad, error, monkeypatch):
    monkeypatch.setattr(llm.engine.core, "step", lambda: pytest.fail("a step was run"))
    with pytest.raises(error):
        llm.generate(["A", bad, "B"])
    monkeypatch.undo()
    assert answers_plainly(llm)


def test_chat_renders_the_models_template_and_encodes_it_once(llm):
    conversation = [{"role": "user", "content": "hi"}]
    (output,) = llm.chat(conversation, SamplingParams(max_tokens=2))
    assert output.prompt == "user: hi\nassistant: "
    assert output.prompt_token_ids == [3 + byte for byte in b"user: hi\nassistant: "]
    bare, longer = llm.chat([conversation, conversation * 2], add_generation_prompt=False)
    assert (bare.prompt, longer.prompt) == ("user: hi\n", "user: hi\n" * 2)


def test_chat_shows_tools_and_continues_the_last_message(llm):
    template = {"chat_template": "{{ tools[0].name }}: {% for m in messages %}[{{ m.content }}]{% endfor %}"}
    conversation = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    (output,) = llm.chat(
        conversation, tools=[{"name": "f"}], continue_final_message=True, chat_template_kwargs=template
    )
    assert output.prompt == "f: [Hi][Ho"


def test_chat_refuses_what_the_template_refuses(llm):
    with pytest.raises(ChatTemplateError):
        llm.chat([{"role": "user", "content": [{"type": "image"}]}])


def test_a_stop_string_frees_the_request_at_once(llm):
    (whole,) = llm.generate("stop me", SamplingParams(temperature=0.0, max_tokens=40))
    text = whole.outputs[0].text
    stop = text[8:10]
    (output,) = llm.generate("stop me", SamplingParams(temperature=0.0, max_tokens=400, stop=stop))
    (choice,) = output.outputs
    assert (choice.text, choice.stop_reason) == (text[: text.index(stop)], stop)
    assert len(choice.token_ids) < 40
    assert answers_plainly(llm)


def test_an_interrupt_aborts_everything_and_leaves_the_engine_usable(llm, monkeypatch):
    step, num_steps = llm.engine.core.step, 0

    def interrupted_step():
        nonlocal num_steps
        num_steps += 1
        if num_steps == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return step()

    monkeypatch.setattr(llm.engine.core, "step", interrupted_step)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["A", "B", "C", "D", "E"], ENDLESS)
    assert num_steps == 5  # the step that was interrupted ran to its end
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert answers_plainly(llm)


def test_a_fault_in_a_step_leaves_no_request_behind(llm, monkeypatch):
    def broken_step():
        raise RuntimeError("broken")

    monkeypatch.setattr(llm.engine.core, "step", broken_step)
    with pytest.raises(RuntimeError, match="broken"):
        llm.generate(["A", "B"], ENDLESS)
    monkeypatch.undo()
    assert answers_plainly(llm)


def test_an_unknown_option_names_the_known_ones(tiny_model):
    with pytest.raises(TypeError, match=r"max_model_length; it knows .*max_model_len.*max_num_seqs"):
        LLM(str(tiny_model), max_model_length=100)


def test_the_same_program_gives_the_same_answers_unless_it_asks_for_fresh_ones(tiny_model):
    def answers(**options):
        with LLM(str(tiny_model), backend="reference", **options) as llm:
            outputs = llm.generate(["A", "A", "B"], SamplingParams(max_tokens=8))
            return [output.outputs[0].token_ids for output in outputs]

    repeated = answers()
    assert repeated == answers()
    assert repeated[0] != repeated[1]
    assert repeated != answers(seed=1)
    assert answers(seed=None) != answers(seed=None)


def test_a_closed_engine_says_so(tiny_model):
    with LLM(str(tiny_model), backend="reference") as llm:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        llm.generate("A")


def test_the_tokenizer_is_the_models(llm):
    tokenizer = llm.get_tokenizer()
    assert (tokenizer.encode("A", add_special_tokens=True), tokenizer.vocab_size) == ([68], NUM_TOKENS)
    assert tokenizer.eos_token_id == EOS_ID


def test_progress_is_shown_on_a_terminal_only(llm, capsys, monkeypatch):
    llm.generate(["A"])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    llm.generate(["A", "B"])
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert "tokens/s" in shown
    llm.generate(["A"], use_tqdm=False)
    assert capsys.readouterr().err == ""
