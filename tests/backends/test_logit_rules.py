"""sample: what is allowed, banned, biased and penalized. A greedy row shows which logit is the largest, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.backends.ops import NOT_FINITE, NOTHING_LEFT, SamplingBatch
from tests.backends.sampling_batches import GREEDY, add_bias, allow, ban, count, mask, one_row, sample, sampling

VOCAB_SIZE = 40  # more than one word of a mask


def changed_logits(logits, batch: SamplingBatch, i: int) -> list[np.float32]:
    """Row i after the rules, straight from the definition, one id after another."""
    allowed, banned, biased, seen = (
        lists.ids[lists.of_row(i)].tolist() for lists in (batch.allowed, batch.banned, batch.biased, batch.seen)
    )
    bias_by_id = dict(zip(biased, batch.bias[batch.biased.of_row(i)], strict=True))
    count_by_id = dict(zip(seen, batch.output_counts[batch.seen.of_row(i)], strict=True))
    repetition, frequency, presence = (
        column[i] for column in (batch.repetition_penalty, batch.frequency_penalty, batch.presence_penalty)
    )
    words = batch.masks[batch.mask_index[i]].tolist() if batch.mask_index[i] >= 0 else None
    changed = []
    for token_id, x in enumerate(logits[i, : batch.vocab_size]):
        is_masked = words is not None and not words[token_id // 32] >> token_id % 32 & 1
        if (allowed and token_id not in allowed) or is_masked or token_id in banned:
            x = np.float32(-np.inf)
        if token_id in bias_by_id:
            x = x + bias_by_id[token_id]
        if token_id in count_by_id:
            number = np.float32(count_by_id[token_id])
            x = x / repetition if x > 0 else x * repetition
            x = x - frequency * number
            x = x - presence if number > 0 else x
        changed.append(x)
    assert all(type(x) is np.float32 for x in changed)
    return changed


def best(changed: list[np.float32]) -> int:
    return NOTHING_LEFT if max(changed) == -np.inf else changed.index(max(changed))


def random_batch(rng: np.random.Generator, num_rows: int, **columns: object) -> SamplingBatch:
    """Rows with some rules or none, and some of them extreme."""

    def some_ids() -> list[int]:
        return rng.permutation(VOCAB_SIZE)[: rng.choice([0, 0, 1, 5, VOCAB_SIZE])].tolist()

    def column(*values: float) -> list[float]:
        return rng.choice([0.3, 1.0, 1.1, *values], num_rows).tolist()

    penalties = {
        "repetition_penalty": column(0.01, 100),
        "frequency_penalty": column(0, -2, 2),
        "presence_penalty": column(0, -2, 2),
    }
    batch = sampling(num_rows, VOCAB_SIZE, **penalties, **columns)
    batch = ban(allow(batch, [some_ids() for _ in range(num_rows)]), [some_ids() for _ in range(num_rows)])
    batch = mask(batch, [some_ids() if rng.random() < 0.5 else None for _ in range(num_rows)])
    batch = add_bias(batch, [dict.fromkeys(some_ids(), rng.uniform(-9, 9)) for _ in range(num_rows)])
    return count(batch, [{token_id: int(rng.integers(0, 4)) for token_id in some_ids()} for _ in range(num_rows)])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), is_coarse=st.booleans())
def test_what_is_left_is_that_of_the_definition(backend, seed, is_coarse):
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, 20, temperature=GREEDY)
    logits = 4 * rng.standard_normal((20, VOCAB_SIZE + 3), np.float32)
    if is_coarse:  # so that many are equal, before or after
        logits = np.round(logits)
    logits[:, VOCAB_SIZE:] = 1000.0
    expected = [best(changed_logits(logits, batch, i)) for i in range(20)]
    assert sample(backend, logits, batch).token_ids.tolist() == expected


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_row_and_its_neighbours_do_not_matter(backend, seed):
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, 12, num_logprobs=3)
    logits = 4 * rng.standard_normal((12, VOCAB_SIZE), np.float32)
    together = sample(backend, logits, batch)
    for i in range(12):
        alone = sample(backend, logits[i : i + 1], one_row(batch, i))
        assert alone.token_ids[0] == together.token_ids[i]
        assert alone.logprob[0].tobytes() == together.logprob[i].tobytes()
        assert alone.top_logprobs[0].tobytes() == together.top_logprobs[i].tobytes()


def greedy(num_rows: int, **columns: object) -> SamplingBatch:
    return sampling(num_rows, 4, temperature=GREEDY, **columns)


ROW = np.array([[3.0, 2.0, -1.0, -4.0]], np.float32)


@pytest.mark.parametrize(
    ("batch", "token_id"),
    [
        (allow(greedy(1), [[3, 2]]), 2),
        (allow(greedy(1), [[]]), 0),
        (mask(greedy(1), [[3, 2]]), 2),
        (mask(greedy(1), [None]), 0),
        (mask(greedy(1), [[]]), NOTHING_LEFT),
        (mask(allow(greedy(1), [[1, 3]]), [[0, 3]]), 3),
        (add_bias(mask(greedy(1), [[1]]), [{0: 100.0}]), 1),
        (ban(greedy(1), [[0, 1]]), 2),
        (ban(allow(greedy(1), [[0, 3]]), [[0]]), 3),
        (ban(allow(greedy(1), [[3]]), [[3]]), NOTHING_LEFT),
        (add_bias(greedy(1), [{3: 8.0}]), 3),
        (add_bias(greedy(1), [{0: -0.5, 1: 0.5}]), 0),  # 2.5 both: the smaller id
        (add_bias(allow(greedy(1), [[1]]), [{0: 100.0, 1: -100.0}]), 1),  # no bias brings back what is ruled out
        (add_bias(ban(greedy(1), [[0]]), [{0: 100.0}]), 1),
        # What is seen in the prompt alone is no concern of the presence and the frequency penalty.
        (count(greedy(1, presence_penalty=2.0, frequency_penalty=2.0), [{0: 0}]), 0),
        (count(greedy(1, presence_penalty=1.5), [{0: 1}]), 1),
        (count(greedy(1, presence_penalty=1.5), [{0: 5, 1: 1}]), 0),
        (count(greedy(1, frequency_penalty=0.4), [{0: 2}]), 0),
        (count(greedy(1, frequency_penalty=0.4), [{0: 3}]), 1),
        (count(greedy(1, presence_penalty=-2.0, frequency_penalty=-2.0), [{3: 3}]), 3),  # -4 + 6 + 2
        (count(greedy(1, repetition_penalty=1.6), [{0: 0}]), 1),
        (count(greedy(1, repetition_penalty=1.6), [{0: 1, 1: 0}]), 0),
        (count(ban(greedy(1, repetition_penalty=5.0), [[0, 1]]), [{2: 0}]), 3),  # -1 becomes -5
        (count(ban(greedy(1, repetition_penalty=0.2), [[0, 1]]), [{3: 0}]), 3),  # -4 becomes -0.8
        # The bias comes first: -1 + 3 is divided, not -1 multiplied; 2 - 1 is what the repetition penalty leaves of it.
        (count(add_bias(ban(greedy(1, repetition_penalty=2.0), [[0, 1]]), [{2: 3.0, 3: 4.9}]), [{2: 1}]), 2),
        (count(greedy(1, repetition_penalty=2.0, presence_penalty=-0.6), [{0: 1}]), 0),  # 3 / 2 + 0.6, not 3.6 / 2
    ],
)
def test_each_rule_and_their_order(backend, batch, token_id):
    assert sample(backend, ROW, batch).token_ids.tolist() == [token_id]


def test_a_draw_is_made_from_what_is_left(backend):
    logits = np.tile(ROW, (300, 1))
    for batch in (
        allow(sampling(300, 4), [[2, 3]] * 300),
        ban(sampling(300, 4), [[0, 1]] * 300),
        add_bias(sampling(300, 4), [{0: -100.0, 1: -100.0}] * 300),
    ):
        assert set(sample(backend, logits, batch).token_ids.tolist()) == {2, 3}
    batch = add_bias(sampling(300, 4, top_k=2), [{2: 4.0}] * 300)
    assert set(sample(backend, logits, batch).token_ids.tolist()) == {0, 2}  # the two largest after the bias


def test_rules_leave_log_probabilities_raw(backend):
    logits = np.random.default_rng(3).standard_normal((2, 50), np.float32)
    batch = sampling(2, 50, temperature=[GREEDY, 1.0], num_logprobs=50, repetition_penalty=3.0)
    plain = sample(backend, logits, batch)
    ruled = add_bias(ban(allow(batch, [range(10), range(9)]), [[3], [4]]), [{5: 100.0}, {6: 100.0}])
    sampled = sample(backend, logits, count(ruled, [{5: 1}, {7: 0}]))
    assert sampled.token_ids.tolist() == [5, 6]
    assert np.array_equal(sampled.top_ids, plain.top_ids)
    assert np.array_equal(sampled.top_logprobs, plain.top_logprobs)
    for i, token_id in enumerate((5, 6)):
        place = plain.top_ids[i].tolist().index(token_id)
        assert sampled.logprob[i] == plain.top_logprobs[i, place]
        assert sampled.rank[i] == place + 1


def test_logits_that_are_not_finite_are_no_matter_of_rules(backend):
    logits = np.zeros((4, 10), np.float32)
    logits[0, 3], logits[1, 3], logits[2] = np.nan, np.inf, -np.inf
    logits[3, :9] = -np.inf
    batch = ban(sampling(4, 10), [[3], [3], [3], [9]])
    assert sample(backend, logits, batch).token_ids.tolist() == [NOT_FINITE] * 3 + [NOTHING_LEFT]


def some(rng: np.random.Generator, num_ids: int, values: tuple[float, ...]) -> dict[int, float]:
    """So many of 30,000 ids, with these values in turn."""
    ids = rng.permutation(30_000)[:num_ids].tolist()
    return {token_id: values[place % len(values)] for place, token_id in enumerate(ids)}


def test_a_large_vocabulary(backend):
    rng = np.random.default_rng(4)
    logits = 3 * rng.standard_normal((4, 30_000), np.float32)
    batch = sampling(4, 30_000, temperature=GREEDY, repetition_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.5)
    batch = count(batch, [some(rng, 6000, (0, 1, 2)) for _ in range(4)])
    batch = ban(batch, [np.argsort(-logits[i])[: 5 * i].tolist() for i in range(4)])
    batch = add_bias(batch, [some(rng, 1000, (0.5, -0.5)) for _ in range(4)])
    expected = [best(changed_logits(logits, batch, i)) for i in range(4)]
    assert sample(backend, logits, batch).token_ids.tolist() == expected
