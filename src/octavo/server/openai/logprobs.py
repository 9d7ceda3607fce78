"""Log-probabilities in the two forms the API has for them."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import TYPE_CHECKING

from octavo.engine.outputs import Logprob
from octavo.server.openai.chat_protocol import ChatLogprobs, TokenLogprob, TopLogprob
from octavo.server.openai.completion_protocol import CompletionLogprobs
from octavo.server.openai.prompt_logprob import PromptLogprob, PromptLogprobs

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer

MIN_LOGPROB = -9999.0  # stands for minus infinity, which JSON does not have


def chat_logprobs(
    token_ids: list[int],
    logprobs: list[dict[int, Logprob]] | None,
    num_top: int,
    tokenizer: Tokenizer,
    *,
    shows_ids: bool = False,
) -> ChatLogprobs | None:
    """The chat form: bytes beside the text, as the bytes of a token need not be whole characters."""
    if logprobs is None:
        return None
    content = []
    for token_id, by_id in zip(token_ids, logprobs, strict=True):
        chosen = by_id[token_id]
        top = [
            TopLogprob(
                shown_token(other_id, other.decoded_token, shows_ids),
                finite(other.logprob),
                list(tokenizer.token_bytes(other_id)),
            )
            for other_id, other in top_alternatives(by_id, num_top)
        ]
        token_bytes = list(tokenizer.token_bytes(token_id))
        shown = shown_token(token_id, chosen.decoded_token, shows_ids)
        content.append(TokenLogprob(shown, finite(chosen.logprob), token_bytes, top))
    return ChatLogprobs(content)


class CompletionLogprobsWriter:
    """The completions form, for one choice: it knows at which character of the text the next token begins."""

    def __init__(self, tokenizer: Tokenizer, *, shows_ids: bool = False) -> None:
        self._tokenizer = tokenizer
        self._shows_ids = shows_ids
        self._text_offset = 0
        self._decoder = _text_decoder()

    def begin_prompt(self, text: str, token_ids: Sequence[int]) -> None:
        """The tokens that come next are those of the prompt, which stands in the answer as this text.

        Where they say more than it does, a BOS token or SentencePiece's first space, that comes before its beginning.
        """
        decoder = _text_decoder()
        self._text_offset = len(text) - sum(len(decoder.decode(self._tokenizer.token_bytes(i))) for i in token_ids)

    def write(
        self, written: CompletionLogprobs, token_ids: Sequence[int], logprobs: Sequence[dict[int, Logprob] | None]
    ) -> None:
        """Add the log-probabilities of these tokens, which follow those before."""
        for token_id, by_id in zip(token_ids, logprobs, strict=True):
            written.text_offset.append(max(0, self._text_offset))
            self._text_offset += len(self._decoder.decode(self._tokenizer.token_bytes(token_id)))
            if by_id is None:
                text = self._tokenizer.decode([token_id], skip_special_tokens=False, is_continuation=True)
                written.tokens.append(shown_token(token_id, text, self._shows_ids))
                written.token_logprobs.append(None)
                written.top_logprobs.append(None)
                continue
            alternatives: dict[str, float] = {}
            for other_id, other in sorted(by_id.items(), key=lambda entry: entry[1].rank):
                shown = shown_token(other_id, other.decoded_token, self._shows_ids)
                alternatives.setdefault(shown, finite(other.logprob))
            written.tokens.append(shown_token(token_id, by_id[token_id].decoded_token, self._shows_ids))
            written.token_logprobs.append(finite(by_id[token_id].logprob))
            written.top_logprobs.append(alternatives)


def prompt_logprobs(entries: Sequence[dict[int, Logprob] | None]) -> PromptLogprobs:
    """The form that vLLM has for those of the prompt."""
    return [by_id if by_id is None else _prompt_logprob_by_id(by_id) for by_id in entries]


def _prompt_logprob_by_id(by_id: dict[int, Logprob]) -> dict[str, PromptLogprob]:
    return {str(i): PromptLogprob(finite(entry.logprob), entry.rank, entry.decoded_token) for i, entry in by_id.items()}


def shown_token(token_id: int, text: str, shows_ids: bool) -> str:
    """The token as log-probabilities name it."""
    return f"token_id:{token_id}" if shows_ids else text


def _text_decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


def top_alternatives(by_id: dict[int, Logprob], num_top: int) -> list[tuple[int, Logprob]]:
    """The `num_top` most likely tokens. The dict holds the chosen one first, then those; it may be one of them."""
    entries = list(by_id.items())
    if len(entries) > num_top:
        return entries[1:]
    return sorted(entries, key=lambda entry: entry[1].rank)


def finite(logprob: float) -> float:
    """The log-probability as JSON can write it."""
    return max(logprob, MIN_LOGPROB)
