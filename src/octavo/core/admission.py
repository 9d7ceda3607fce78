"""The door: requests that can never be served are refused before they enter, with the numbers."""

from __future__ import annotations

from dataclasses import dataclass


class RequestRejected(ValueError):  # noqa: N818  (a verdict, not a fault)
    """A request that no amount of waiting could serve; `code` is the wire format's error code, `param` a field."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """What one sequence may take. Known to the front and to the scheduler, so that both refuse alike."""

    max_model_len: int  # tokens of prompt and output together
    num_blocks: int  # blocks of the whole pool
    block_size: int

    def max_total_tokens(self, num_prompt_tokens: int, max_tokens: int | None) -> int:
        """Tokens the sequence may come to: prompt + max_tokens, clipped to max_model_len."""
        if max_tokens is None:
            return self.max_model_len
        return min(num_prompt_tokens + max_tokens, self.max_model_len)

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold the KV of `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def check(self, num_prompt_tokens: int, max_tokens: int | None) -> None:
        """Raise RequestRejected unless the sequence can be served when it has the whole pool to itself."""
        if num_prompt_tokens == 0:
            raise RequestRejected("invalid_value", "the prompt holds no tokens; send at least one")
        if num_prompt_tokens >= self.max_model_len:
            raise RequestRejected(
                "context_length_exceeded",
                f"This model's maximum context length is {self.max_model_len} tokens and the prompt has "
                f"{num_prompt_tokens}, which leaves no room for an output token; shorten the prompt",
            )
        # The last token of a sequence is returned but never computed, so it needs no KV.
        num_kv_tokens = self.max_total_tokens(num_prompt_tokens, max_tokens) - 1
        needed = self.num_blocks_for(num_kv_tokens)
        if needed > self.num_blocks:
            raise RequestRejected(
                "context_length_exceeded",
                f"prompt and max_tokens together need {needed} KV blocks of {self.block_size} tokens and the pool has "
                f"{self.num_blocks}; lower max_tokens or give the KV cache more memory",
            )
