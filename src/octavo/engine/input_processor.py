"""InputProcessor: what a user sends becomes an EngineRequest, or an error that says what to change."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypedDict

from octavo.core.admission import AdmissionLimits
from octavo.core.messages import EngineRequest
from octavo.core.sampling_params import SEED_BITS, ParameterError, SamplingParams
from octavo.engine.bad_words import tokenize_bad_words

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer


class PromptDict(TypedDict, total=False):
    """A prompt as text, or as token ids; with both, the ids are computed and the text is only shown."""

    prompt: str
    prompt_token_ids: Sequence[int]


Prompt = str | Sequence[int] | PromptDict


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
        self._max_logprobs = min(max_logprobs, vocab_size)
        self._eos_token_ids = tuple(token_id for token_id in eos_token_ids if token_id < vocab_size)
        self._seed = seed
        self._num_requests = 0
        # The same few lists come with request after request, and with each prompt of one.
        self._tokenize_bad_words = lru_cache(maxsize=16)(lambda words: tokenize_bad_words(words, tokenizer, vocab_size))

    def process(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        priority: int = 0,
        cache_salt: str = "",
        arrival_s: float = 0.0,
    ) -> EngineRequest:
        """Return the request, under an id made here. The text of a `str` prompt gets the model's special tokens.

        Raises ParameterError for a prompt or parameter outside what the model can take, and RequestRejected for a
        sequence that the engine can never serve.
        """
        token_ids = self._token_ids(prompt)
        bad_word_token_ids = self._tokenize_bad_words(params.bad_words)
        self._check_params(params)
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
            priority=priority,
            cache_salt=cache_salt,
            arrival_s=arrival_s,
        )

    def _token_ids(self, prompt: Any) -> tuple[int, ...]:
        """Ids of a prompt in any form; every form may come straight from a client's JSON."""
        source = prompt
        if isinstance(prompt, dict):
            if "prompt_token_ids" not in prompt and not isinstance(prompt.get("prompt"), str):
                raise ParameterError("prompt", 'a prompt object needs "prompt", a text, or "prompt_token_ids", a list')
            source = prompt.get("prompt_token_ids", prompt.get("prompt"))
        if isinstance(source, str):
            try:
                return tuple(self._tokenizer.encode(source, add_special_tokens=True))
            except ValueError as error:
                raise ParameterError("prompt", str(error)) from error
        if not isinstance(source, list | tuple):
            raise ParameterError("prompt", f"the prompt is {_shown(source)}; it must be a text or a list of token ids")
        for token_id in source:
            # bool is an int, and 1.0 == 1: only the exact type is an id.
            if type(token_id) is not int or not 0 <= token_id < self._vocab_size:
                raise ParameterError(
                    "prompt",
                    f"the prompt holds {_shown(token_id)}; token ids are integers from 0 to {self._vocab_size - 1}",
                )
        return tuple(source)

    def _check_params(self, params: SamplingParams) -> None:
        if params.logprobs is not None and params.logprobs > self._max_logprobs:
            raise ParameterError(
                "logprobs",
                f"logprobs is {params.logprobs}; at most {self._max_logprobs} are allowed: ask for fewer, "
                "or start the engine with a larger --max-logprobs",
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
