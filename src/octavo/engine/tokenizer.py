"""Tokenizer: text to token ids and back, and conversations to prompts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers

from octavo.engine.gguf_tokenizer import build_gguf_tokenizer
from octavo.engine.token_decoder import read_token_decoder
from octavo.engine.token_reach import read_token_reach
from octavo.weights.source import CheckpointError
from octavo.weights.tokenizer_spec import GGUFVocabulary, TokenizerSpec

if TYPE_CHECKING:
    from octavo.engine.chat_template import ChatTemplate, Message


class Tokenizer:
    """A model's tokenizer. Nothing changes after construction, so threads may share one.

    Raises CheckpointError if the checkpoint's tokenizer is damaged or of a kind that is not supported.
    """

    def __init__(self, spec: TokenizerSpec) -> None:
        self._tokenizer = _build(spec.vocabulary)
        self._decoder = read_token_decoder(self._tokenizer)
        added = self._tokenizer.get_added_tokens_decoder()
        self._added = {token_id: token.content for token_id, token in added.items()}
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        vocabulary = self._tokenizer.get_vocab()
        self.vocab_size: int = 1 + max(vocabulary.values(), default=-1)
        self._reach = read_token_reach(self._tokenizer, vocabulary, self._decoder)
        self.bos_token_id = self._id_of(spec.bos_token)
        self.eos_token_id = self._id_of(spec.eos_token)
        self._bos_ids = self._ids_before_text(spec)
        self._chat_template_source = spec.chat_template
        tokens = {"bos_token": spec.bos_token, "eos_token": spec.eos_token}
        self._chat_variables = {name: token for name, token in tokens.items() if token is not None}

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template."""
        # Not above: Jinja takes long to import, and may not be used.
        from octavo.engine.chat_template import ChatTemplate

        return ChatTemplate(self._chat_template_source, self._chat_variables)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The ids of a text. Special tokens written out in it become their ids.

        With `add_special_tokens`, and if the model wants text to begin with its BOS token, that token is put in front,
        unless the text begins with it already: it is there exactly once either way. A prompt from the chat template
        is encoded without, since writing the special tokens is the template's business.
        Raises ValueError for a string that is not text: one with half a surrogate pair.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the text holds half a surrogate pair at character {error.start}") from None
        # For a batch, and not for a single text, the library lets other threads run meanwhile.
        [encoding] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        if add_special_tokens and ids[:1] != self._bos_ids:
            return self._bos_ids + ids
        return ids

    def min_num_tokens(self, text: str) -> int:
        """Tokens that the text has at least, found without tokenizing it; 0 where that says nothing of them."""
        return 0 if self._reach is None else self._reach.min_num_tokens(text)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool, is_continuation: bool = False) -> str:
        """The text of these ids; bytes that are not UTF-8 become U+FFFD, as Unicode recommends.

        SentencePiece encodes a text with a space before it, which is taken off again, unless the ids continue another
        text (`is_continuation`), where the space is part of it. Raises ValueError for an id outside the vocabulary.
        """
        kept = (i for i in token_ids if not (skip_special_tokens and self.is_special(i)))
        data = b"".join(map(self.token_bytes, kept))
        if self._decoder.strips_leading_space and not is_continuation:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token stands for. They need not be whole characters; of an unused id there are none.

        Raises ValueError for an id outside the vocabulary.
        """
        if not 0 <= token_id < self.vocab_size:
            raise ValueError(f"token id {token_id} is outside the vocabulary; ids go from 0 to {self.vocab_size - 1}")
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self._tokenizer.id_to_token(token_id)
        return b"" if token is None else self._decoder.to_bytes(token)

    def token(self, token_id: int) -> str:
        """The token as the vocabulary writes it; empty for an unused id."""
        return self._tokenizer.id_to_token(token_id) or ""

    def is_special(self, token_id: int) -> bool:
        """Whether the token steers the model rather than being text."""
        return token_id in self._special_ids

    def apply_chat_template(self, messages: Sequence[Message], **options: Any) -> str:
        """The prompt of a conversation, see ChatTemplate.render; encode it without `add_special_tokens`."""
        return self.chat_template.render(messages, **options)

    def _id_of(self, token: str | None) -> int | None:
        return None if token is None else self._tokenizer.token_to_id(token)

    def _ids_before_text(self, spec: TokenizerSpec) -> list[int]:
        """[BOS] if text begins with it, else nothing."""
        adds_bos = spec.adds_bos
        if adds_bos is None:  # ask tokenizer.json's own post-processor
            adds_bos = self.bos_token_id in self._tokenizer.encode("", add_special_tokens=True).ids
        if not adds_bos:
            return []
        if self.bos_token_id is None:
            raise CheckpointError(
                f"text is to begin with the BOS token, but {spec.bos_token!r} is not in the vocabulary"
            )
        return [self.bos_token_id]


def _build(vocabulary: Path | GGUFVocabulary) -> tokenizers.Tokenizer:
    try:
        if isinstance(vocabulary, GGUFVocabulary):
            return build_gguf_tokenizer(vocabulary)
        tokenizer = tokenizers.Tokenizer.from_file(str(vocabulary))
    except (CheckpointError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the library raises bare Exceptions, and its panics are not even those
        raise CheckpointError(f"the tokenizer cannot be built: {error}") from error
    tokenizer.no_truncation()  # left over from training, in some files
    tokenizer.no_padding()
    return tokenizer
