"""Logits that nothing may be made of: of ids that no tokenizer knows, and NaN."""

from __future__ import annotations

import numpy as np

from octavo import LLM, SamplingParams
from tests.e2e.scenarios import SCENARIOS, serve_together
from tests.engine.tiny_model import NUM_TOKENS, Weights, byte_id, write_tiny_model

POISON = byte_id(ord("~"))


def favor_padding(weights: Weights) -> None:
    """Whatever the hidden state, two of the padding rows have far larger logits than any token."""
    padding = weights["lm_head.weight"][NUM_TOKENS:]
    padding[:] = 1000.0 * weights["lm_head.weight"][: len(padding)]
    padding[1::2] = -padding[::2][: len(padding[1::2])]


def poison(weights: Weights) -> None:
    weights["model.embed_tokens.weight"][POISON] = np.nan


def test_padding_is_never_chosen_reported_or_counted(tiny_model, tmp_path):
    with LLM(str(tiny_model), num_threads=1) as llm:
        expected = serve_together(llm)
    with LLM(str(write_tiny_model(tmp_path / "padded", favor_padding)), num_threads=1, max_logprobs=NUM_TOKENS) as llm:
        assert serve_together(llm) == expected
        for params in (
            SamplingParams(temperature=0.0, logprobs=NUM_TOKENS),
            SamplingParams(temperature=2.0, top_k=320, min_p=0.0, logprobs=NUM_TOKENS, max_tokens=100, ignore_eos=True),
        ):
            (choice,) = llm.generate("padding", params)[0].outputs
            assert max(choice.token_ids) < NUM_TOKENS and choice.logprobs is not None
            assert all(sorted(entry) == list(range(NUM_TOKENS)) for entry in choice.logprobs)


def test_logits_that_are_not_finite_end_their_request_alone(tiny_model, tmp_path):
    with LLM(str(tiny_model), num_threads=1) as llm:
        expected = serve_together(llm)
    assert not any(POISON in choice.token_ids for (choice,) in expected.values())
    with LLM(str(write_tiny_model(tmp_path / "poisoned", poison)), num_threads=1) as llm:
        prompts = ["~", *(scenario.prompt for scenario in SCENARIOS), "sound until ~"]
        greedy = SamplingParams(temperature=0.0)
        outputs = llm.generate(prompts, [greedy, *(scenario.params for scenario in SCENARIOS), greedy])
        for broken in (outputs[0], outputs[-1]):
            (choice,) = broken.outputs
            assert (choice.finish_reason, choice.token_ids, broken.finished) == ("error", [], True)
            assert choice.error == "the model's logits are not finite"
        assert [output.outputs for output in outputs[1:-1]] == [expected[scenario.name] for scenario in SCENARIOS]
        assert serve_together(llm) == expected
