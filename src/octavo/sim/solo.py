"""What a request is answered when nobody else is there: the ledger model's arithmetic, without any engine.

The ledger model replaces a language model by a hash. The "KV" of a token is a digest of everything up to it, and the
next token is a function of the last digest, so one wrong slot anywhere before it changes the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.core.messages import EngineRequest, TokenLogprobs

ROOT_DIGEST = 0x243F6A8885A308D3  # stands before position 0
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Answer:
    """All that one choice of a request is answered."""

    token_ids: tuple[int, ...]
    finish_reason: str
    stop_reason: int | None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()  # come with its first token


def extend_digest(digest: int, token_id: int, position: int) -> int:
    """The 64-bit digest of a token at a position after everything that `digest` stands for (multiply, xor, shift)."""
    mixed = (digest ^ (token_id * 0x9E3779B97F4A7C15 + position * 0xC2B2AE3D27D4EB4F)) & _MASK
    mixed = ((mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93) & _MASK
    return mixed ^ mixed >> 32


def choose_token(digest: int, seed: int, output_index: int, vocab_size: int) -> int:
    """The token after the last digest: like a sampler's, it depends on the seed and on its place in the output."""
    return extend_digest(digest, seed, output_index) % vocab_size


def score_next(digest: int) -> TokenLogprobs:
    """The log-probability of the token after a digest: whatever that token is, a number that shows the digest."""
    return TokenLogprobs(-float(digest % 2**20), 1, ())


def continue_solo(request: EngineRequest, index: int, *, max_model_len: int, vocab_size: int) -> Answer:
    """The answer of choice `index` of a request, from the meaning of its parameters alone."""
    params = request.sampling_params
    digest = ROOT_DIGEST
    position = 0
    scores: list[TokenLogprobs] = []
    for token_id in request.prompt_token_ids:
        if position and index == 0 and params.prompt_logprobs is not None:
            scores.append(score_next(digest))
        digest = extend_digest(digest, token_id, position)
        position += 1
    max_tokens = max_model_len - position
    if params.max_tokens is not None:
        max_tokens = min(max_tokens, params.max_tokens)
    finish_reason, stop_reason = "length", None
    output: list[int] = []
    while len(output) < max_tokens:
        token_id = choose_token(digest, (request.seed + index) % 2**64, len(output), vocab_size)
        output.append(token_id)
        if len(output) > params.min_tokens:
            is_eos = token_id in request.eos_token_ids and not params.ignore_eos
            if token_id in params.stop_token_ids or is_eos:
                finish_reason = "stop"
                is_plain_end = token_id not in params.stop_token_ids and token_id == request.eos_token_ids[0]
                stop_reason = None if is_plain_end else token_id
                break
        digest = extend_digest(digest, token_id, position)
        position += 1
    return Answer(tuple(output), finish_reason, stop_reason, tuple(scores))
