"""Requests of every kind, and the ways to serve them that must not make a bit of difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from octavo import LLM, SamplingParams, StructuredOutputsParams
from octavo.engine.outputs import CompletionOutput

PREFIX = "The same request gets the same bytes, whoever else is being served. "  # several blocks of the tiny model
MAX_TOKENS, MIN_TOKENS = 40, 24
WORDS = {"type": "array", "items": {"type": "string", "maxLength": 4}, "minItems": 20}  # more than there is time for


@dataclass(frozen=True)
class Scenario:
    """One request."""

    name: str
    prompt: str
    params: SamplingParams


def _scenario(name: str, prompt: str, **params: Any) -> Scenario:
    settings = {"max_tokens": MAX_TOKENS, "ignore_eos": True, "logprobs": 0} | params
    return Scenario(name, prompt, SamplingParams(**settings))


# Greedy or seeded, and all with log-probabilities, so that every bit of an answer is there to compare. None ends
# within its first MIN_TOKENS tokens, so that there is time to preempt it.
SCENARIOS = (
    _scenario("greedy", PREFIX + "Who shares the batch?", temperature=0.0, logprobs=5),
    _scenario("seeded", PREFIX + "Who shares the batch?", seed=42, temperature=0.8),
    _scenario("top-p", PREFIX + "Which row?", seed=7, temperature=1.2, top_p=0.9, logprobs=2),
    _scenario("top-k", "Short.", seed=-1, top_k=20),
    _scenario("min-p", PREFIX, seed=2**63 - 1, temperature=1.5, min_p=0.05),
    _scenario("stop-ids", PREFIX + "How long?", seed=3, stop_token_ids=tuple(range(3, 100)), min_tokens=MIN_TOKENS),
    _scenario("stop-string", PREFIX + "Why?", seed=16, stop=tuple("etaoinsrhldcum 1"), min_tokens=MIN_TOKENS),
    _scenario("long", 3 * PREFIX + "From the start?", temperature=0.0),
    _scenario(
        "penalties",
        PREFIX + "Again and again?",
        seed=5,
        repetition_penalty=1.3,
        presence_penalty=0.7,
        frequency_penalty=-0.2,
        min_tokens=MIN_TOKENS,
        ignore_eos=False,
    ),
    _scenario(
        "rules",
        PREFIX + "What not?",
        temperature=0.0,
        repetition_penalty=1.1,
        logit_bias={100: 2.5, 101: -100},
        bad_words=("e", "the", "of"),
        logprobs=1,
    ),
    _scenario(
        "allowed", PREFIX + "These only.", seed=8, allowed_token_ids=tuple(range(60, 200, 7)), frequency_penalty=1.5
    ),
    _scenario("json", "As JSON?", seed=9, structured_outputs=StructuredOutputsParams(json=WORDS), logprobs=2),
    _scenario(
        "regex",
        "To the end.",
        seed=10,
        structured_outputs=StructuredOutputsParams(regex="[a-y ]{26,36}z?"),
        min_tokens=MIN_TOKENS,
        ignore_eos=False,
        presence_penalty=0.5,
    ),
    _scenario("end", "So?", seed=17, ignore_eos=False, min_tokens=MIN_TOKENS),
)

# What the weights may be; each keeps the promise for itself.
PRECISIONS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quantization": "int8"},
    "int4": {"quantization": "int4"},
}

# What the KV cache may be, beside weights of each precision.
KV_CACHE_DTYPES = {"float32": "float32", "bfloat16": "bfloat16", "int8": "int8", "int4": "bfloat16"}

Answers = dict[str, list[CompletionOutput]]  # by the scenario's name; compared bit for bit, as dataclasses are


def serve_together(llm: LLM, scenarios: Sequence[Scenario] = SCENARIOS) -> Answers:
    """All in one batch, in this order."""
    outputs = llm.generate(
        [scenario.prompt for scenario in scenarios], [scenario.params for scenario in scenarios], use_tqdm=False
    )
    return {scenario.name: output.outputs for scenario, output in zip(scenarios, outputs, strict=True)}


def serve_alone(llm: LLM, scenarios: Sequence[Scenario] = SCENARIOS) -> Answers:
    """Each after the other has ended."""
    return {name: outputs for scenario in scenarios for name, outputs in serve_together(llm, [scenario]).items()}


def with_choices(scenario: Scenario, n: int) -> Scenario:
    """The scenario with n answers."""
    return replace(scenario, name=f"{scenario.name} x {n}", params=replace(scenario.params, n=n))


def as_choice(scenario: Scenario, index: int) -> Scenario:
    """The request of its own that choice `index` of a seeded scenario must equal."""
    assert scenario.params.seed is not None
    seed = (scenario.params.seed + index + 2**63) % 2**64 - 2**63  # within the range of seeds
    return replace(scenario, name=f"{scenario.name} + {index}", params=replace(scenario.params, seed=seed))
