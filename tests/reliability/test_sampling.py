"""Faults of sampling that other engines have shipped; each number is a case of the reliability list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backends.conftest import BACKEND_NAMES, make_backend
from tests.backends.sampling_batches import sample, sampling
from tests.e2e.test_odd_logits import POISON, favor_padding, poison
from tests.engine.tiny_model import NUM_TOKENS, write_tiny_model
from tests.reliability.staggered import Answer, Arrival, StaggeredEngine, open_engine, params

PLAIN = Arrival("A plain request.", params(temperature=0.0))


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Iterator[StaggeredEngine]:
    with open_engine(tiny_model) as engine:
        yield engine


A07 = [
    params(max_tokens=60, temperature=0.0),
    params(max_tokens=60, seed=7),
    params(max_tokens=60, temperature=0.0, repetition_penalty=1.3),
    params(max_tokens=60, seed=9, presence_penalty=1.2, frequency_penalty=0.8, min_tokens=50, ignore_eos=False),
]


def test_a07_what_was_generated_before_a_preemption_stays_output(tiny_model):
    """Each in turn comes last, and is preempted most."""
    arrivals = [Arrival(f"Preempt me, request {i}.", wishes) for i, wishes in enumerate(A07)]
    with open_engine(tiny_model) as roomy:
        expected = roomy.serve(*arrivals)
        assert [answer.num_preemptions for answer in expected] == [0] * 4
    assert all(len(answer.logprobs) == len(answer.token_ids) >= 50 for answer in expected)
    with open_engine(tiny_model, max_model_len=128, kv_cache_memory_bytes=8 * roomy.block_bytes) as cramped:
        for turn in range(4):
            answers = cramped.serve(*arrivals[turn:], *arrivals[:turn])
            assert answers == expected[turn:] + expected[:turn]
            assert answers[-1].num_preemptions >= 2
        assert cramped.is_empty


TEMPERATURES = [0.0, 1e-30, 1e-8, 1e-5, 1e-4]
TOP_PS = [1e-9, 1e-4, 1.0]


@pytest.mark.parametrize("name", BACKEND_NAMES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a09_a_temperature_just_above_zero(name, dtype):
    columns = np.array(np.meshgrid(TEMPERATURES, TOP_PS)).reshape(2, -1)
    num_rows = columns.shape[1]
    logits = np.random.default_rng(9).uniform(-80, 80, 300).astype(dtype).astype(np.float32)
    logits[:3] = 80, -80, -np.inf
    logits[0] = np.nextafter(dtype(80), dtype(81))  # the largest beyond doubt
    batch = sampling(num_rows, 300, temperature=columns[0], top_p=columns[1], num_logprobs=300)
    sampled = sample(make_backend(name, num_threads=1), np.tile(logits, (num_rows, 1)), batch)
    assert sampled.token_ids.tolist() == [int(logits.argmax())] * num_rows
    assert not np.isnan(sampled.logprob).any() and not np.isnan(sampled.top_logprobs).any()
    assert (sampled.top_logprobs[:, -1] == -np.inf).all()


def test_a09_the_answer_is_the_greedy_one(engine):
    expected = engine.serve_alone(PLAIN)
    cold = [
        Arrival(PLAIN.prompt, replace(PLAIN.params, temperature=temperature, top_p=top_p, seed=1))
        for temperature in TEMPERATURES
        for top_p in TOP_PS
    ]
    assert engine.serve(*cold) == [expected] * len(cold)


SEEDED = Arrival("One seed, one answer.", params(seed=42, temperature=0.8))
NEIGHBOURS = [
    Arrival("Without a seed.", params()),
    Arrival("With another seed.", params(seed=43, temperature=1.5)),
    PLAIN,
]


def test_a12_a_seed_is_not_ignored_because_of_a_neighbour(engine):
    expected = engine.serve_alone(SEEDED)
    assert engine.serve_alone(SEEDED) == expected
    assert engine.serve(SEEDED, *NEIGHBOURS)[0] == expected
    assert engine.serve(*NEIGHBOURS, SEEDED)[-1] == expected
    assert engine.serve(SEEDED, NEIGHBOURS[0], SEEDED)[::2] == [expected] * 2
    late = [replace(neighbour, step=3 + 4 * i) for i, neighbour in enumerate(NEIGHBOURS)]
    assert engine.serve(SEEDED, *late)[0] == expected


def test_a12_nor_because_of_a_preemption_in_the_middle(engine, tiny_model):
    expected = engine.serve_alone(SEEDED)
    older = Arrival("Here first, and growing.", params(max_tokens=90))
    with open_engine(tiny_model, max_model_len=128, kv_cache_memory_bytes=8 * engine.block_bytes) as cramped:
        answer = cramped.serve(older, replace(SEEDED, step=30))[1]
    assert answer == expected
    assert answer.num_preemptions > 0


def test_a14_a_penalty_does_not_depend_on_who_came_first(engine):
    penalized = Arrival("Repeat, repeat, repeat.", params(temperature=0.0, repetition_penalty=2.0))
    seeded = Arrival("Only the most likely.", params(seed=99, top_k=1))
    brief = replace(penalized, params=replace(penalized.params, max_tokens=5))
    x, y, short = map(engine.serve_alone, (penalized, seeded, brief))
    assert x != engine.serve_alone(replace(penalized, params=replace(penalized.params, repetition_penalty=1.0)))
    assert engine.serve(penalized, seeded) == [x, y]
    assert engine.serve(seeded, penalized) == [y, x]
    assert engine.serve(penalized, replace(seeded, step=7)) == [x, y]
    assert engine.serve(replace(penalized, step=7), seeded) == [x, y]
    assert engine.serve(brief, seeded) == [short, y]


# Everything that a request can do to raise the ids that no tokenizer knows, and to lower all others.
A22: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 2.0, "top_k": 400, "min_p": 0.0},
    {"temperature": 2.0, "logit_bias": tuple((token_id, -100.0) for token_id in range(NUM_TOKENS))},
    {"temperature": 0.0, "repetition_penalty": 100.0, "frequency_penalty": 2.0, "presence_penalty": 2.0},
    {"temperature": 2.0, "bad_words": tuple("etaoinshrdlu ")},
    {"temperature": 0.0, "allowed_token_ids": (0, NUM_TOKENS - 1)},
]


def test_a22_ids_that_no_tokenizer_knows_are_never_generated(tiny_model, tmp_path):
    folder = write_tiny_model(tmp_path / "padded", pad_to_384)
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": 384}
    (folder / "config.json").write_text(json.dumps(config))
    arrivals = [Arrival("Padding", params(**fields)) for fields in A22]
    with open_engine(folder) as engine:
        answers = engine.serve(*arrivals)
    for answer in answers:
        assert len(answer.token_ids) == 32
        assert max(answer.token_ids) < NUM_TOKENS
        assert all(token_id < NUM_TOKENS for entry in answer.logprobs for token_id, _ in entry.top)
    with open_engine(tiny_model) as engine:
        assert engine.serve(*arrivals) == answers


def pad_to_384(weights: dict[str, np.ndarray]) -> None:
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        weights[name] = np.concatenate([weights[name], np.zeros((64, weights[name].shape[1]), np.float32)])
    favor_padding(weights)


@pytest.mark.parametrize("fields", A22[:-1])
def test_a22_logits_of_nan_end_that_request_alone(engine, tiny_model, tmp_path, fields):
    expected = engine.serve_alone(PLAIN)
    with open_engine(write_tiny_model(tmp_path / "poisoned", poison)) as poisoned:
        broken = Arrival([5, POISON], params(**fields))
        first, plain, last = poisoned.serve(broken, PLAIN, replace(broken, step=4))
        assert first == last == Answer(finish_reason="error", error="the model's logits are not finite")
        assert plain == poisoned.serve_alone(PLAIN) == expected


def test_a_request_that_runs_out_of_choices_ends_alone(engine):
    """After the first "no" the word may not come again, and nothing else is allowed."""
    letters = (ord("n") + 3, ord("o") + 3)
    wishes = params(allowed_token_ids=letters[:1], bad_words=("nn",))
    plain, cornered = engine.serve(PLAIN, Arrival("Say no.", wishes))
    assert cornered.token_ids == [letters[0]]
    assert cornered.finish_reason == "error"
    assert cornered.error is not None and "no token may come next" in cornered.error
    assert plain == engine.serve_alone(PLAIN)
    assert engine.is_empty


def test_a11_a_bias_at_the_edge_leaves_the_neighbours_rows_alone(engine):
    expected = engine.serve_alone(PLAIN)
    edges = [{0: 100.0, NUM_TOKENS - 1: -100.0}, {0: -100.0, NUM_TOKENS - 1: 100.0}]
    biased = [Arrival("Edge", params(temperature=0.0, logit_bias=tuple(edge.items()))) for edge in edges]
    low, plain, high = engine.serve(biased[0], PLAIN, biased[1])
    assert plain == expected
    assert (set(low.token_ids), set(high.token_ids)) == ({0}, {NUM_TOKENS - 1})
