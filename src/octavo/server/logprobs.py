"""Log-probabilities in the two forms the API has for them."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from octavo.engine.outputs import CompletionOutput, Logprob
from octavo.server.chat_protocol import ChatLogprobs, TokenLogprob, TopLogprob
from octavo.server.completion_protocol import CompletionLogprobs

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer

MIN_LOGPROB = -9999.0  # stands for minus infinity, which JSON does not have


def chat_logprobs(
    token_ids: list[int], logprobs: list[dict[int, Logprob]] | None, num_top: int, tokenizer: Tokenizer
) -> ChatLogprobs | None:
    """The chat form: bytes beside the text, as the bytes of a token need not be whole characters."""
    if logprobs is None:
        return None
    content = []
    for token_id, by_id in zip(token_ids, logprobs, strict=True):
        chosen = by_id[token_id]
        top = [
            TopLogprob(other.decoded_token, finite(other.logprob), list(tokenizer.token_bytes(other_id)))
            for other_id, other in top_alternatives(by_id, num_top)
        ]
        token_bytes = list(tokenizer.token_bytes(token_id))
        content.append(TokenLogprob(chosen.decoded_token, finite(chosen.logprob), token_bytes, top))
    return ChatLogprobs(content)


class CompletionLogprobsWriter:
    """The completions form, for one choice: it knows at which character of the text the next token begins."""

    def __init__(self, tokenizer: Tokenizer, text_offset: int = 0) -> None:
        self._tokenizer = tokenizer
        self._text_offset = text_offset
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, output: CompletionOutput) -> CompletionLogprobs | None:
        """The log-probabilities of the tokens in `output`, which follow those of the output before."""
        if output.logprobs is None:
            return None
        written = CompletionLogprobs([], [], [], [])
        for token_id, by_id in zip(output.token_ids, output.logprobs, strict=True):
            alternatives: dict[str, float] = {}
            for other in sorted(by_id.values(), key=lambda logprob: logprob.rank):
                alternatives.setdefault(other.decoded_token, finite(other.logprob))
            written.text_offset.append(self._text_offset)
            written.tokens.append(by_id[token_id].decoded_token)
            written.token_logprobs.append(finite(by_id[token_id].logprob))
            written.top_logprobs.append(alternatives)
            self._text_offset += len(self._decoder.decode(self._tokenizer.token_bytes(token_id)))
        return written


def top_alternatives(by_id: dict[int, Logprob], num_top: int) -> list[tuple[int, Logprob]]:
    """The `num_top` most likely tokens. The dict holds the chosen one first, then those; it may be one of them."""
    entries = list(by_id.items())
    if len(entries) > num_top:
        return entries[1:]
    return sorted(entries, key=lambda entry: entry[1].rank)


def finite(logprob: float) -> float:
    """The log-probability as JSON can write it."""
    return max(logprob, MIN_LOGPROB)
