"""InputProcessor: what a user sends becomes an EngineRequest, or an error that says what to change."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypedDict

from octavo.core.admission import AdmissionLimits, RequestRejected
from octavo.core.messages import EngineRequest
from octavo.core.sampling_params import SEED_BITS, ParameterError, SamplingParams
from octavo.engine.bad_words import tokenize_bad_words
from octavo.engine.request_terms import DEFAULT_TERMS, RequestTerms
from octavo.structured.vocabulary import Vocabulary

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer


class PromptDict(TypedDict, total=False):
    """A prompt as text, or as token ids; with both, the ids are computed and the text is only shown."""

    prompt: str
    prompt_token_ids: Sequence[int]
    add_special_tokens: bool  # whether a text without ids gets the model's special tokens; unless told, it does


Prompt = str | Sequence[int] | PromptDict

MAX_PROMPT_LOGPROBS = 1 << 20  # of all tokens of a prompt: they are kept, and sent, together


class InputProcessor:
    """Checks and numbers requests. It has no clock and no engine, so a front process can hold it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        limits: AdmissionLimits,
        *,
        vocab_size: int,
        max_logprobs: int,
        eos_token_ids: Sequence[int],
        seed: int | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._limits = limits
        self._vocab_size = vocab_size
        self._max_logprobs = vocab_size if max_logprobs == -1 else min(max_logprobs, vocab_size)
        self._eos_token_ids = tuple(token_id for token_id in eos_token_ids if token_id < vocab_size)
        self._seed = seed
        self._num_requests = 0
        # The same few lists come with request after request, and with each prompt of one.
        self._tokenize_bad_words = lru_cache(maxsize=16)(lambda words: tokenize_bad_words(words, tokenizer, vocab_size))

    def process(
        self, prompt: Prompt, params: SamplingParams, *, terms: RequestTerms = DEFAULT_TERMS, arrival_s: float = 0.0
    ) -> EngineRequest:
        """Return the request, under an id made here. The text of a `str` prompt gets the model's special tokens.

        Raises ParameterError for a prompt or parameter outside what the model can take, and RequestRejected for a
        sequence that the engine can never serve.
        """
        params = self._with_counted_logprobs(params)
        token_ids = self._last_tokens(self.token_ids(prompt), params)
        bad_word_token_ids = self._tokenize_bad_words(params.bad_words)
        self._check_params(params, len(token_ids))
        self._check_choice(params, bad_word_token_ids)
        self._limits.check(len(token_ids), params.max_tokens)
        ordinal = self._num_requests
        self._num_requests += 1
        return EngineRequest(
            request_id=f"req-{ordinal}",
            prompt_token_ids=token_ids,
            sampling_params=params,
            seed=derive_seed(self._seed, ordinal) if params.seed is None else params.seed % 2**SEED_BITS,
            eos_token_ids=self._eos_token_ids,
            bad_word_token_ids=bad_word_token_ids,
            priority=terms.priority,
            cache_salt=terms.cache_salt,
            tenant=terms.tenant,
            arrival_s=arrival_s,
            queue_deadline_s=terms.queue_deadline_s(arrival_s),
            deadline_s=terms.deadline_s(arrival_s),
            explains_cache_miss=terms.explains_cache_miss,
        )

    def check_text(self, text: str) -> None:
        """Raise RequestRejected if the text has too many tokens however it is cut into them."""
        num_tokens = self._tokenizer.min_num_tokens(text)
        if num_tokens >= self._limits.max_model_len:
            raise RequestRejected(
                "context_length_exceeded",
                f"This model's maximum context length is {self._limits.max_model_len} tokens and the prompt of "
                f"{len(text)} characters has at least {num_tokens}; shorten the prompt",
            )

    def vocabulary(self) -> Vocabulary:
        """What grammars have to know of the model's tokens. Takes a tenth of a second."""
        ids = range(self._vocab_size)
        return Vocabulary(
            tokens=tuple(map(self._tokenizer.token_bytes, ids)),
            special_token_ids=tuple(filter(self._tokenizer.is_special, ids)),
            eos_token_ids=self._eos_token_ids,
        )

    def token_ids(self, prompt: Any) -> tuple[int, ...]:
        """Ids of a prompt in any form; every form may come straight from a client's JSON. Raises ParameterError."""
        text = text_to_encode(prompt)
        if text is not None:
            try:
                return tuple(self._tokenizer.encode(text, add_special_tokens=gets_special_tokens(prompt)))
            except ValueError as error:
                raise ParameterError("prompt", str(error)) from error
        source = prompt
        if isinstance(prompt, dict):
            if "prompt_token_ids" not in prompt:
                raise ParameterError("prompt", 'a prompt object needs "prompt", a text, or "prompt_token_ids", a list')
            source = prompt["prompt_token_ids"]
        if not isinstance(source, list | tuple):
            raise ParameterError("prompt", f"the prompt is {_shown(source)}; it must be a text or a list of token ids")
        # bool is an int, and 1.0 == 1: only the exact type is an id. Millions of them may come: hence no loop here.
        if set(map(type, source)) - {int} or (source and not 0 <= min(source) <= max(source) < self._vocab_size):
            bad = next(item for item in source if type(item) is not int or not 0 <= item < self._vocab_size)
            raise ParameterError(
                "prompt", f"the prompt holds {_shown(bad)}; token ids are integers from 0 to {self._vocab_size - 1}"
            )
        return tuple(source)

    def _last_tokens(self, token_ids: tuple[int, ...], params: SamplingParams) -> tuple[int, ...]:
        """What truncate_prompt_tokens leaves of the prompt."""
        num_kept = params.truncate_prompt_tokens
        if num_kept is None:
            return token_ids
        if num_kept == -1:
            num_kept = max(1, self._limits.max_model_len - (params.max_tokens or 1))
        return token_ids[-num_kept:]

    def _with_counted_logprobs(self, params: SamplingParams) -> SamplingParams:
        """The parameters with -1, "the whole vocabulary", as a number."""
        counts: dict[str, Any] = {name: getattr(params, name) for name in ("logprobs", "prompt_logprobs")}
        if -1 in counts.values():
            counts = {name: self._vocab_size if count == -1 else count for name, count in counts.items()}
            params = replace(params, **counts)
        for name, count in counts.items():
            if count is not None and count > self._max_logprobs:
                raise ParameterError(
                    name,
                    f"{name} is {count}; at most {self._max_logprobs} are allowed: ask for fewer, "
                    "or start the engine with a larger --max-logprobs",
                )
        return params

    def _check_params(self, params: SamplingParams, num_prompt_tokens: int) -> None:
        if params.prompt_logprobs is not None:
            num_logprobs = num_prompt_tokens * (params.prompt_logprobs + 1)
            if num_logprobs > MAX_PROMPT_LOGPROBS:
                raise ParameterError(
                    "prompt_logprobs",
                    f"prompt_logprobs asks for {num_logprobs} log-probabilities, over {num_prompt_tokens} tokens; "
                    f"at most {MAX_PROMPT_LOGPROBS} are allowed: ask for fewer, or shorten the prompt",
                )
        self._check_ids("stop_token_ids", params.stop_token_ids)
        self._check_ids("logit_bias", (token_id for token_id, _ in params.logit_bias))
        self._check_ids("allowed_token_ids", params.allowed_token_ids or ())

    def _check_ids(self, name: str, token_ids: Iterable[int]) -> None:
        for token_id in token_ids:
            if token_id >= self._vocab_size:
                raise ParameterError(
                    name, f"{name} holds {token_id}; token ids are integers from 0 to {self._vocab_size - 1}"
                )

    def _check_choice(self, params: SamplingParams, bad_word_token_ids: Sequence[tuple[int, ...]]) -> None:
        """Refuse a request that could not choose its first token."""
        if params.allowed_token_ids is None:
            return
        banned = {sequence[0] for sequence in bad_word_token_ids if len(sequence) == 1}
        if params.min_tokens > 0:
            banned.update(params.stop_token_ids, () if params.ignore_eos else self._eos_token_ids)
        if banned.issuperset(params.allowed_token_ids):
            raise ParameterError(
                "allowed_token_ids",
                "allowed_token_ids holds only ids that bad_words bans, or that end the request before its min_tokens; "
                "allow others",
            )


def text_to_encode(prompt: Any) -> str | None:
    """The text of a prompt that comes without token ids."""
    if isinstance(prompt, dict) and "prompt_token_ids" not in prompt:
        prompt = prompt.get("prompt")
    return prompt if isinstance(prompt, str) else None


def gets_special_tokens(prompt: Any) -> bool:
    """Whether the text of such a prompt is encoded with the model's special tokens."""
    return not isinstance(prompt, dict) or prompt.get("add_special_tokens", True)


def prompt_text(prompt: Prompt) -> str | None:
    """The text of a prompt that has one."""
    return prompt if isinstance(prompt, str) else prompt.get("prompt") if isinstance(prompt, dict) else None


def derive_seed(engine_seed: int | None, ordinal: int) -> int:
    """Seed of 64 bits for the request with this ordinal: fixed by the engine's own seed; without one, random."""
    if engine_seed is None:
        return int.from_bytes(os.urandom(SEED_BITS // 8), "little")
    # Hashed, for choice i of a request draws with seed + i: neighbours must not come near each other.
    digest = hashlib.blake2b(f"{engine_seed}/{ordinal}".encode(), digest_size=SEED_BITS // 8).digest()
    return int.from_bytes(digest, "little")


def _shown(value: Any) -> str:
    """The value for an error message, which must stay short whatever a client sends."""
    text = repr(value) if isinstance(value, int | float | str | None) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:40]}..."
