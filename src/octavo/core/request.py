"""Request: one sequence being generated, and where it stands. Only the scheduler changes a status."""

from __future__ import annotations

from enum import Enum

from octavo.core.block_table import BlockTable
from octavo.core.messages import CacheMiss, EngineRequest
from octavo.core.sampling_params import SEED_BITS, SamplingParams


class RequestStatus(Enum):
    """Where a request stands in its life."""

    FORKING = "forking"  # waits for the choice it will be forked from to compute their prompt
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"  # waiting again, its blocks lost
    FINISHED = "finished"


QueueKey = tuple[int, int, int]  # (priority, arrival number, choice index): smaller goes first


class Request:
    """One of the n choices of an EngineRequest.

    It wants `num_tokens + num_draft_tokens - num_computed_tokens` tokens computed; whether these belong to the
    prompt, to a decode or to drafts makes no difference to anything here.
    """

    __slots__ = (
        "bad_word_token_ids",
        "block_keys",
        "block_table",
        "cache_miss",
        "cache_salt",
        "draft_token_ids",
        "end_token_ids",
        "eos_token_id",
        "explains_cache_miss",
        "fork_source",
        "index",
        "max_total_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "queue_key",
        "request_id",
        "row",
        "sampling_params",
        "scheduled_s",
        "seed",
        "siblings",
        "status",
        "tenant",
        "token_ids",
    )

    def __init__(self, source: EngineRequest, index: int, queue_key: QueueKey, max_total_tokens: int) -> None:
        params = source.sampling_params
        self.request_id = source.request_id
        self.index = index
        self.queue_key = queue_key
        self.sampling_params: SamplingParams = params
        self.seed = (source.seed + index) % 2**SEED_BITS
        self.bad_word_token_ids = source.bad_word_token_ids
        self.cache_salt = source.cache_salt
        self.tenant = source.tenant
        self.explains_cache_miss = source.explains_cache_miss and index == 0
        self.token_ids = list(source.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.max_total_tokens = max_total_tokens
        self.eos_token_id = source.eos_token_ids[0] if source.eos_token_ids else None
        eos = () if params.ignore_eos else source.eos_token_ids
        self.end_token_ids = tuple(dict.fromkeys(eos + params.stop_token_ids))

        self.status = RequestStatus.WAITING
        self.row = -1
        self.num_computed_tokens = 0
        self.num_cached_tokens: int | None = None  # decided at first admission
        self.cache_miss: CacheMiss | None = None
        self.num_preemptions = 0
        self.scheduled_s = 0.0  # when it first got a row, on the clock of EngineCore
        self.draft_token_ids: tuple[int, ...] = ()
        self.block_table = BlockTable()
        self.block_keys: list[bytes] = []  # prefix keys of its full blocks, as far as they were needed
        self.siblings: list[Request] = []  # choices to fork from this one once its prompt is computed
        self.fork_source: Request | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens known: the prompt and what was generated."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_tokens_with_drafts(self) -> int:
        """Tokens known and proposed."""
        return len(self.token_ids) + len(self.draft_token_ids)

    @property
    def has_prompt_logprobs(self) -> bool:
        """Whether the log-probabilities of its prompt are still to be reported: once a request, with its first token.

        They come of computing the prompt, all of it: such a request takes nothing over.
        """
        is_wanted = self.sampling_params.prompt_logprobs is not None
        return is_wanted and self.index == 0 and self.num_output_tokens == 0

    def append_token(self, token_id: int) -> tuple[str, int | None] | None:
        """Append a generated token; return (finish_reason, stop_reason) if it ends the request.

        The first `min_tokens` tokens never end it by their value. stop_reason is the token's id, or None for the
        model's own end of sequence and for the length limit.
        """
        may_stop = self.num_output_tokens >= self.sampling_params.min_tokens
        self.token_ids.append(token_id)
        if may_stop and token_id in self.end_token_ids:
            is_eos = token_id == self.eos_token_id and token_id not in self.sampling_params.stop_token_ids
            return "stop", None if is_eos else token_id
        if len(self.token_ids) >= self.max_total_tokens:
            return "length", None
        return None
