"""From a step's arrays of log-probabilities to those of one token."""

from __future__ import annotations

from octavo.backends.ops import SampledBatch
from octavo.core.messages import TokenLogprobs


def token_logprobs(sampled: SampledBatch, index: int, num_top: int) -> TokenLogprobs:
    """Those of row `index`, with its `num_top` most likely tokens."""
    top_ids = sampled.top_ids[index, :num_top].tolist()
    top_logprobs = sampled.top_logprobs[index, :num_top].tolist()
    return TokenLogprobs(
        logprob=float(sampled.logprob[index]),
        rank=int(sampled.rank[index]),
        top=tuple(zip(top_ids, top_logprobs, strict=True)),
    )
