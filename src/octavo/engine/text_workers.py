"""TextWorkers: conversations become text, and long texts token ids, in a few threads beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from octavo.engine.input_processor import InputProcessor, Prompt, PromptDict, text_to_encode

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer

LONG_TEXT_CHARS = 10_000  # tokenizing more takes milliseconds, for which the event loop must not stand still
NUM_THREADS = 2  # that render, and as many that tokenize; whatever more comes waits for one of them


class TextWorkers:
    """The event loop waits for no text, and no short one for a long one. Close it in any case."""

    def __init__(self, tokenizer: Tokenizer, inputs: InputProcessor) -> None:
        self._tokenizer = tokenizer
        self._inputs = inputs
        self._renderers = ThreadPoolExecutor(NUM_THREADS, "octavo-render")
        self._tokenizers = ThreadPoolExecutor(NUM_THREADS, "octavo-tokenize")

    async def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        add_special_tokens: bool = False,
    ) -> PromptDict:
        """The prompt of a conversation, from the model's template; `variables` go to that. Raises ChatTemplateError."""
        # In a thread however short the messages are: how long a template takes, its author decides.
        render: Callable[[], str] = partial(
            self._tokenizer.apply_chat_template,
            messages,
            add_generation_prompt=add_generation_prompt,
            **(variables or {}),
        )
        text = await asyncio.get_running_loop().run_in_executor(self._renderers, render)
        return {"prompt": text, "add_special_tokens": add_special_tokens}

    async def tokenize(self, prompts: Sequence[Prompt], *, truncates: bool) -> list[Prompt]:
        """The prompts, with their token ids where finding them takes long.

        Raises ParameterError, and RequestRejected for a text so long that it need not be tokenized to be refused,
        unless the request `truncates` it.
        """
        texts = [text for text in map(text_to_encode, prompts) if text is not None]
        if sum(map(len, texts)) <= LONG_TEXT_CHARS:
            return list(prompts)
        for text in () if truncates else texts:
            self._inputs.check_text(text)
        return await asyncio.get_running_loop().run_in_executor(self._tokenizers, self._tokenize, prompts)

    async def token_ids(self, prompt: Prompt) -> list[int]:
        """The ids of a prompt, however many. Raises ParameterError."""
        [tokenized] = await self.tokenize([prompt], truncates=True)
        return list(self._inputs.token_ids(tokenized))

    async def decode(self, token_ids: Sequence[int]) -> str:
        """The text of these ids, special tokens included. Raises ValueError for an id outside the vocabulary."""
        decode: Callable[[], str] = partial(self._tokenizer.decode, token_ids, skip_special_tokens=False)
        return await asyncio.get_running_loop().run_in_executor(self._tokenizers, decode)

    def close(self) -> None:
        """Begin no more work."""
        self._renderers.shutdown(wait=False, cancel_futures=True)
        self._tokenizers.shutdown(wait=False, cancel_futures=True)

    def _tokenize(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        return [
            prompt
            if (text := text_to_encode(prompt)) is None
            else {"prompt": text, "prompt_token_ids": self._inputs.token_ids(prompt)}
            for prompt in prompts
        ]
