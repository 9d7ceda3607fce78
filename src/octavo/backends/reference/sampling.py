"""How a token is chosen, in numpy. The rules are in `octavo.backends.ops.Step.sample`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.backends.ops import NOT_FINITE, NOTHING_LEFT, Float32Array, SampledBatch, SamplingBatch, philox_uniform

GREEDY_BELOW = 1e-5  # a temperature below this one chooses the largest logit


def sample(logits: Float32Array, sampling: SamplingBatch) -> SampledBatch:
    """Choose one token from each row of `logits`, [S, V], each row by itself."""
    sampled = SampledBatch.blank(sampling.num_logprobs)
    for i in range(len(logits)):
        row = logits[i, : sampling.vocab_size]
        sampled.token_ids[i] = token_id = choose(row, sampling, i)
        if token_id >= 0:
            report(row.astype(np.float64), sampled, i, sampling.num_logprobs[i])
    return sampled


def choose(row: Float32Array, sampling: SamplingBatch, i: int) -> int:
    """The token of row i, or what stands in its place."""
    changed = apply_rules(row, sampling, i)
    if not np.isfinite(row.max()) or changed.max() == np.inf:
        return NOT_FINITE
    if changed.max() == -np.inf:
        return NOTHING_LEFT
    if sampling.temperature[i] < GREEDY_BELOW:
        return int(np.argmax(changed))  # the first of equals
    return draw(changed.astype(np.float64), sampling, i)


def apply_rules(row: Float32Array, sampling: SamplingBatch, i: int) -> Float32Array:
    """The logits of row i as its request wants them: only what is allowed, biased, penalized."""
    changed = row.copy()
    allowed = sampling.allowed.ids[sampling.allowed.of_row(i)]
    if len(allowed) > 0:
        changed[:] = -np.inf
        changed[allowed] = row[allowed]
    if sampling.mask_index[i] >= 0:
        bits = np.unpackbits(sampling.masks[sampling.mask_index[i]].view(np.uint8), bitorder="little", count=len(row))
        changed[bits == 0] = -np.inf
    changed[sampling.banned.ids[sampling.banned.of_row(i)]] = -np.inf

    biased = sampling.biased.of_row(i)
    changed[sampling.biased.ids[biased]] += sampling.bias[biased]

    seen = sampling.seen.of_row(i)
    counts = sampling.output_counts[seen].astype(np.float32)
    x = changed[sampling.seen.ids[seen]]
    x = np.where(x > 0, x / sampling.repetition_penalty[i], x * sampling.repetition_penalty[i])
    x -= sampling.frequency_penalty[i] * counts
    x -= sampling.presence_penalty[i] * (counts > 0)
    changed[sampling.seen.ids[seen]] = x
    return changed


def draw(x: NDArray[np.float64], sampling: SamplingBatch, i: int) -> int:
    """One token from softmax(x / temperature), cut by min_p, top_k and top_p."""
    share = np.exp((x - x.max()) / sampling.temperature[i])  # p / max(p)
    kept = np.flatnonzero(share >= sampling.min_p[i])
    kept = kept[np.argsort(-x[kept], kind="stable")]  # larger logit first, then smaller id
    if sampling.top_k[i] > 0:
        kept = kept[: sampling.top_k[i]]
    if sampling.top_p[i] < 1:
        running = np.cumsum(share[kept])
        kept = kept[: 1 + np.argmax(running >= sampling.top_p[i] * running[-1])]

    kept.sort()
    running = np.cumsum(share[kept])
    u = philox_uniform(int(sampling.seed[i]), int(sampling.output_index[i]))
    return int(kept[np.argmax(running > u * running[-1])])


def report(row: NDArray[np.float64], sampled: SampledBatch, i: int, num_logprobs: int) -> None:
    """Write rank and log-probabilities of row i, whose token is chosen already, into `sampled`."""
    token_id = sampled.token_ids[i]
    sampled.rank[i] = 1 + np.count_nonzero(row > row[token_id])
    logprobs = row - row.max()
    logprobs -= np.log(np.exp(logprobs).sum())
    sampled.logprob[i] = logprobs[token_id]
    top_ids = np.argsort(-row, kind="stable")[: max(0, num_logprobs)]
    sampled.top_ids[i, : len(top_ids)] = top_ids
    sampled.top_logprobs[i, : len(top_ids)] = logprobs[top_ids]
