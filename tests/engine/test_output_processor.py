from __future__ import annotations

import pytest

from octavo.core.messages import EngineRequest, RequestOutput, TokenLogprobs
from octavo.core.sampling_params import RequestOutputKind, SamplingParams
from octavo.engine.output_processor import OutputProcessor
from octavo.engine.outputs import Logprob
from octavo.engine.tokenizer import Tokenizer
from tests.engine.tiny_model import EOS_ID, byte_id

CUMULATIVE, DELTA, FINAL_ONLY = RequestOutputKind.CUMULATIVE, RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY


@pytest.fixture
def processor(tiny_tokenizer: Tokenizer) -> OutputProcessor:
    return OutputProcessor(tiny_tokenizer)


def add(processor, request_id="r", **params):
    request = EngineRequest(request_id, (5, 6), SamplingParams(**params), seed=0)
    processor.add_request(request, "prompt of " + request_id)


def news(text, index=0, request_id="r", **fields):
    """The core's news of the tokens that spell this text."""
    token_ids = tuple(byte_id(byte) for byte in (text.encode() if isinstance(text, str) else text))
    return RequestOutput(request_id, index, token_ids, **fields)


def stream(processor, *outputs):
    """What comes of each output on its own: text and finish_reason of its one choice."""
    return [
        (choice.text, choice.finish_reason)
        for output in outputs
        for generation in processor.process([output]).outputs
        for choice in generation.outputs
    ]


def test_cumulative_outputs_hold_everything_so_far(processor):
    add(processor, output_kind=CUMULATIVE)
    (first,) = processor.process([news("ab", num_cached_tokens=1)]).outputs
    (last,) = processor.process([news("c", finish_reason="length", num_cached_tokens=1)]).outputs
    assert (first.outputs[0].text, first.outputs[0].token_ids, first.finished) == ("ab", [100, 101], False)
    assert (last.outputs[0].text, last.outputs[0].token_ids, last.finished) == ("abc", [100, 101, 102], True)
    assert (last.request_id, last.prompt, last.prompt_token_ids) == ("r", "prompt of r", [5, 6])
    assert last.num_cached_tokens == 1


def test_deltas_add_up_to_the_whole(processor):
    add(processor, output_kind=DELTA)
    assert stream(processor, news("ab"), news("c"), news("d", finish_reason="length")) == [
        ("ab", None),
        ("c", None),
        ("d", "length"),
    ]


def test_final_outputs_wait_for_every_choice_and_stand_in_order(processor):
    add(processor, n=2, output_kind=FINAL_ONLY)
    assert processor.process([news("a", 0), news("x", 1, finish_reason="stop", stop_reason=7)]).outputs == []
    (final,) = processor.process([news("b", 0, finish_reason="length")]).outputs
    assert [(choice.index, choice.text, choice.stop_reason) for choice in final.outputs] == [
        (0, "ab", None),
        (1, "", 7),
    ]
    assert final.finished


def test_streams_tell_of_the_choices_that_have_news(processor):
    add(processor, n=3, output_kind=DELTA)
    (first,) = processor.process([news("b", 2), news("a", 0)]).outputs
    assert [(choice.index, choice.text) for choice in first.outputs] == [(0, "a"), (2, "b")]
    (second,) = processor.process([news("c", 1, finish_reason="length")]).outputs
    assert ([choice.index for choice in second.outputs], second.finished) == ([1], False)


def test_requests_do_not_see_each_other(processor):
    add(processor, "r", stop=("b",))
    add(processor, "q")
    outputs, stopped = processor.process([news("ab", request_id="r"), news("ab", request_id="q")])
    assert [(output.request_id, output.outputs[0].text) for output in outputs] == [("r", "a"), ("q", "ab")]
    assert stopped == [("r", 0)]


def test_a_stop_string_ends_the_choice_and_drops_the_tokens_after_it(processor):
    add(processor, stop=("cd",), logprobs=0)
    logprobs = tuple(TokenLogprobs(-float(place), 1, ()) for place in range(5))
    (output,), stopped = processor.process([news("abcde", logprobs=logprobs)])
    (choice,) = output.outputs
    assert (choice.text, choice.finish_reason, choice.stop_reason) == ("ab", "stop", "cd")
    assert (len(choice.token_ids), len(choice.logprobs), choice.cumulative_logprob) == (4, 4, -6.0)
    assert (output.finished, stopped) == (True, [("r", 0)])
    assert processor.process([RequestOutput("r", 0, (), finish_reason="abort")]) == ([], [])


def test_a_stop_string_in_the_last_tokens_needs_no_abort(processor):
    add(processor, stop=("b",))
    (output,), stopped = processor.process([news("ab", finish_reason="length")])
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason, stopped) == ("stop", "b", [])


def test_one_choice_stops_and_the_other_goes_on(processor):
    add(processor, n=2, stop=("b",), output_kind=DELTA)
    (first,), stopped = processor.process([news("ab", 0), news("aa", 1)])
    assert (stopped, first.finished) == ([("r", 0)], False)
    aborted = RequestOutput("r", 0, (), finish_reason="abort")
    (second,) = processor.process([aborted, news("c", 1, finish_reason="length")]).outputs
    assert [(choice.index, choice.text) for choice in second.outputs] == [(1, "c")]
    assert second.finished


def test_held_back_text_comes_with_the_end(processor):
    add(processor, stop=("bcd",), output_kind=DELTA)
    assert stream(processor, news("ab"), news("c"), news("", finish_reason="length")) == [
        ("a", None),
        ("", None),
        ("bc", "length"),
    ]


def test_a_character_comes_whole_and_half_a_one_at_the_end_as_a_replacement(processor):
    add(processor, output_kind=DELTA)
    euro = "€".encode()
    assert stream(processor, news(euro[:1]), news(euro[1:]), news(euro[:2], finish_reason="length")) == [
        ("", None),
        ("€", None),
        ("�", "length"),
    ]


def test_no_stop_string_counts_before_min_tokens_are_out(processor):
    add(processor, stop=("a",), min_tokens=2, output_kind=CUMULATIVE)
    assert stream(processor, news("a"), news("a"), news("a")) == [("a", None), ("aa", None), ("aa", "stop")]


@pytest.mark.parametrize(("includes", "text"), [(False, "a"), (True, "ab")])
def test_the_text_of_a_stop_token_is_left_out_unless_asked_for(processor, includes, text):
    add(processor, stop_token_ids=(byte_id(ord("b")),), include_stop_str_in_output=includes)
    (output,) = processor.process([news("ab", finish_reason="stop", stop_reason=byte_id(ord("b")))]).outputs
    assert (output.outputs[0].text, output.outputs[0].token_ids) == (text, [100, 101])


@pytest.mark.parametrize(("skips", "text"), [(True, "a"), (False, "a</s>")])
def test_special_tokens_are_text_only_if_asked_for(processor, skips, text):
    add(processor, skip_special_tokens=skips, ignore_eos=True)
    (output,) = processor.process([RequestOutput("r", 0, (100, EOS_ID), finish_reason="length")]).outputs
    assert output.outputs[0].text == text


def test_without_detokenizing_there_are_only_ids(processor):
    add(processor, detokenize=False)
    (output,) = processor.process([news("ab", finish_reason="length")]).outputs
    assert (output.outputs[0].text, output.outputs[0].token_ids) == ("", [100, 101])


def test_log_probabilities_list_the_chosen_token_once(processor):
    add(processor, logprobs=2, output_kind=DELTA)
    first = TokenLogprobs(-0.5, 1, ((100, -0.5), (101, -1.0)))
    second = TokenLogprobs(-4.0, 9, ((100, -0.5), (130, -1.0)))
    (output,) = processor.process([news("a", logprobs=(first,))]).outputs
    assert output.outputs[0].logprobs == [{100: Logprob(-0.5, 1, "a"), 101: Logprob(-1.0, 2, "b")}]
    (output,) = processor.process([news("b", logprobs=(second,))]).outputs
    assert output.outputs[0].logprobs == [
        {101: Logprob(-4.0, 9, "b"), 100: Logprob(-0.5, 1, "a"), 130: Logprob(-1.0, 2, "\x7f")}
    ]
    assert list(output.outputs[0].logprobs[0]) == [101, 100, 130]
    assert output.outputs[0].cumulative_logprob == -4.5


def test_without_log_probabilities_there_are_none(processor):
    add(processor)
    (output,) = processor.process([news("a")]).outputs
    assert (output.outputs[0].logprobs, output.outputs[0].cumulative_logprob) == (None, None)


def test_an_error_ends_its_choice(processor):
    add(processor)
    (output,) = processor.process([RequestOutput("r", 0, (), finish_reason="error", error="no")]).outputs
    assert (output.outputs[0].finish_reason, output.outputs[0].error, output.finished) == ("error", "no", True)


def test_forgotten_and_unknown_requests_are_ignored(processor):
    add(processor)
    processor.forget("r")
    processor.forget("r")
    assert processor.process([news("a"), news("a", request_id="unknown")]) == ([], [])


def test_nothing_is_kept_of_a_request_that_has_ended(processor):
    add(processor)
    processor.process([news("a", finish_reason="length")])
    add(processor)  # the same id anew
    (output,) = processor.process([news("b")]).outputs
    assert output.outputs[0].text == "b"
