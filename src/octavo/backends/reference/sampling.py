"""How a token is chosen, in numpy. The rules are in `octavo.backends.ops.Step.sample`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.backends.ops import Float32Array, SampledBatch, SamplingBatch, philox_uniform

GREEDY_BELOW = 1e-5  # a temperature below this one chooses the largest logit


def sample(logits: Float32Array, sampling: SamplingBatch) -> SampledBatch:
    """Choose one token from each row of `logits`, [S, V], each row by itself."""
    num_rows, k = len(logits), max([0, *sampling.num_logprobs])
    sampled = SampledBatch(
        token_ids=np.empty(num_rows, np.int32),
        logprob=np.full(num_rows, np.nan, np.float32),
        rank=np.zeros(num_rows, np.int32),
        top_ids=np.full((num_rows, k), -1, np.int32),
        top_logprobs=np.full((num_rows, k), np.nan, np.float32),
    )
    for i in range(num_rows):
        row = logits[i, : sampling.vocab_size].astype(np.float64)
        sampled.token_ids[i] = token_id = choose(row, sampling, i)
        if token_id >= 0:
            report(row, sampled, i, sampling.num_logprobs[i])
    return sampled


def choose(row: NDArray[np.float64], sampling: SamplingBatch, i: int) -> int:
    """The token of row i, or -1 if the row holds NaN or infinity, or nothing that may be chosen."""
    allowed = row.copy()
    allowed[sampling.banned_ids[sampling.banned_start[i] : sampling.banned_start[i + 1]]] = -np.inf
    if not np.isfinite([row.max(), allowed.max()]).all():
        return -1
    if sampling.temperature[i] < GREEDY_BELOW:
        return int(np.argmax(allowed))  # the first of equals

    share = np.exp((allowed - allowed.max()) / sampling.temperature[i])  # p / max(p)
    kept = np.flatnonzero(share >= sampling.min_p[i])
    kept = kept[np.argsort(-allowed[kept], kind="stable")]  # larger logit first, then smaller id
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
