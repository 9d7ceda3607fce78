"""The five values that cross borders. All are frozen; nothing else is passed between front, core and worker.

The two that are made for every row of every step are named tuples: these take a third of a dataclass's time to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from octavo.core.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """front -> core: one prompt to continue `sampling_params.n` times."""

    request_id: str  # generated inside the engine's front, unique for its lifetime; a client's id never gets here
    prompt_token_ids: tuple[int, ...]
    sampling_params: SamplingParams
    seed: int  # what the draws are keyed by: the request's own seed, or one chosen for it
    eos_token_ids: tuple[int, ...] = ()  # end the request unless sampling_params.ignore_eos
    bad_word_token_ids: tuple[tuple[int, ...], ...] = ()  # of sampling_params.bad_words: no last id may follow
    priority: int = 0  # smaller runs first, under the priority policy
    cache_salt: str = ""  # requests share cached prefixes only with requests of the same salt
    tenant: str = ""  # whose request it is: under the fair policy, tenants take turns
    arrival_s: float = 0.0  # on the core's clock, like the two below
    queue_deadline_s: float | None = None  # when it ends unless it has got a row by then
    deadline_s: float | None = None  # when it ends in any case
    explains_cache_miss: bool = False  # whether to tell why the prefix cache had no more of the prompt


@dataclass(frozen=True, slots=True)
class NewRow:
    """A request that takes a row in this step: for the first time, or again after a preemption."""

    row: int
    token_ids: tuple[int, ...]  # the prompt, then what was generated before a preemption
    num_prompt_tokens: int
    sampling_params: SamplingParams
    seed: int
    stop_token_ids: tuple[int, ...]  # every id that would end the request: banned until min_tokens are out
    bad_word_token_ids: tuple[tuple[int, ...], ...] = ()
    has_prompt_logprobs: bool = False  # report them with its first token; its prompt runs from position 0 on


class ScheduledRow(NamedTuple):
    """What one row runs in this step: the tokens from `num_computed_tokens` on, `num_scheduled_tokens` of them.

    The last `len(draft_token_ids)` of these are drafts. The row's block table becomes
    `old_table[:block_start] + block_ids`.
    """

    row: int
    num_computed_tokens: int
    num_scheduled_tokens: int
    is_sampled: bool  # whether the run reaches the last known token, so that a next one is chosen
    block_start: int
    block_ids: tuple[int, ...]
    draft_token_ids: tuple[int, ...] = ()

    @property
    def is_chunk(self) -> bool:
        """Whether it runs more than its last known token and the drafts after it."""
        return not self.is_sampled or self.num_scheduled_tokens > 1 + len(self.draft_token_ids)


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """core -> worker: one step.

    The worker first forgets `freed_rows`, then enters `new_rows`, then carries out `block_copies` (source,
    destination) one after another in this order, and only then writes KV.
    """

    step_id: int
    num_tokens: int  # sum of num_scheduled_tokens
    scheduled: tuple[ScheduledRow, ...]
    new_rows: tuple[NewRow, ...] = ()
    freed_rows: tuple[int, ...] = ()
    block_copies: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one token, of the raw distribution (before temperature and filters)."""

    logprob: float  # of the token that stands there
    rank: int  # of the same, 1 = most likely
    top: tuple[tuple[int, float], ...]  # the k most likely (token_id, logprob), most likely first


# How an error begins for which neither the model nor the engine is to blame.
CONSTRAINTS_FAILED = "what the request allows cannot be generated"


class SampledRow(NamedTuple):
    """What one sampled row got: the accepted drafts and one token more. `error` ends the request instead.

    Where nothing can be chosen after an accepted draft, that draft is the last token; the error is the next step's.
    """

    row: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()  # one a token if the request asked for them, else empty
    draft_token_ids: tuple[int, ...] = ()  # proposals for the next step
    error: str | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()  # of each token of the prompt but the first, if the row has them


@dataclass(frozen=True, slots=True)
class ModelRunnerOutput:
    """worker -> core: the results of one step, one entry for each row with `is_sampled`."""

    step_id: int
    sampled: tuple[SampledRow, ...]
    no_drafts_reason: str = ""  # why nothing is drafted for the next step, where it does not pay


@dataclass(frozen=True, slots=True)
class CacheMiss:
    """Why the prefix cache had no more of a prompt. It is told of requests with the same salt alone."""

    position: int  # of the first token that was not found
    # "disabled": there is no cache, or the prompt's log-probabilities are wanted, for which all of it is computed;
    # "evicted": the block had been there lately; "never_seen": nothing in the cache begins like this;
    # "differs": what is cached goes on in another way, or not at all.
    reason: Literal["disabled", "evicted", "never_seen", "differs"]


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """core -> front: what is new for one choice of one request."""

    request_id: str
    index: int  # which of the n choices
    new_token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: str | None = None  # "stop", "length", "abort", "timeout" or "error"; None: more will come
    stop_reason: int | None = None  # the token id that ended it, unless that was the end of sequence
    num_cached_tokens: int = 0  # prompt tokens taken from the prefix cache at first admission
    error: str | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()  # as in SampledRow: choice 0 has them, once
    scheduled_s: float = 0.0  # when it first got a row, on the core's clock; 0: not told
    cache_miss: CacheMiss | None = None  # if it was asked for, and there is one


@dataclass(frozen=True, slots=True)
class StepStats:
    """core -> front: the state after one step. Totals count since the start."""

    step_id: int = 0
    num_running: int = 0
    num_waiting: int = 0
    num_tokens: int = 0  # computed in this step
    num_free_blocks: int = 0
    num_blocks: int = 0
    num_preemptions_total: int = 0
    num_prefix_queries_total: int = 0  # tokens looked up in the prefix cache
    num_prefix_hits_total: int = 0  # tokens found there
    num_drafts_total: int = 0  # runs of drafts that were verified
    num_draft_tokens_total: int = 0  # in these
    num_accepted_tokens_per_pos_total: tuple[int, ...] = ()  # how often the i-th draft of a run was right
    no_drafts_reason: str = ""
    step_s: float = 0.0
    num_prompt_tokens: int = 0  # of num_tokens, those of chunks: of a prompt, or of what a preemption lost
