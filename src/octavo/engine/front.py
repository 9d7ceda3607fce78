"""Front: text on one side, the core's requests and outputs on the other. It knows nothing of processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octavo.core.messages import RequestOutput
from octavo.core.sampling_params import SamplingParams
from octavo.engine import wire
from octavo.engine.generation_stream import GenerationStream
from octavo.engine.input_processor import (
    InputProcessor,
    Prompt,
    PromptDict,
    gets_special_tokens,
    prompt_text,
    text_to_encode,
)
from octavo.engine.output_processor import OutputProcessor

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer

LONG_TEXT_CHARS = 10_000  # tokenizing more takes milliseconds, for which the event loop must not stand still


class Front:
    """The requests in flight and their streams. `send` takes what is meant for the core."""

    def __init__(self, tokenizer: Tokenizer, inputs: InputProcessor, send: Callable[[wire.FrontMessage], None]) -> None:
        self.tokenizer = tokenizer
        self._inputs = inputs
        self._outputs = OutputProcessor(tokenizer)
        self._send = send
        self._stream_by_id: dict[str, GenerationStream] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    async def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
        add_special_tokens: bool,
    ) -> PromptDict:
        """The prompt of a conversation. Raises ChatTemplateError."""

        def render() -> PromptDict:
            text = self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=add_generation_prompt, **variables
            )
            token_ids = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
            return {"prompt": text, "prompt_token_ids": token_ids}

        num_chars = sum(len(str(message.get("content"))) for message in messages)
        return await asyncio.to_thread(render) if num_chars > LONG_TEXT_CHARS else render()

    async def tokenize(self, prompt: Prompt) -> Prompt:
        """The prompt as it is, or with its token ids where finding them takes long."""
        text = text_to_encode(prompt)
        if text is None or len(text) <= LONG_TEXT_CHARS:
            return prompt
        adds_special_tokens = gets_special_tokens(prompt)
        token_ids = await asyncio.to_thread(self.tokenizer.encode, text, add_special_tokens=adds_special_tokens)
        return {"prompt": text, "prompt_token_ids": token_ids}

    def submit(
        self, prompts: Sequence[Prompt], params: SamplingParams, *, priority: int, cache_salt: str
    ) -> GenerationStream:
        """Send one request a prompt, all or none. Raises ParameterError and RequestRejected."""
        requests = [
            self._inputs.process(prompt, params, priority=priority, cache_salt=cache_salt) for prompt in prompts
        ]
        stream = GenerationStream(requests, self._abort)
        for request, prompt in zip(requests, prompts, strict=True):
            self._stream_by_id[request.request_id] = stream
            self._outputs.add_request(request, prompt_text(prompt))
            self._send(wire.Add(request))
        self._idle.clear()
        return stream

    def take_outputs(self, outputs: Sequence[RequestOutput]) -> None:
        """Hand one step's outputs to their streams; tell the core of choices that ended here, by a stop string."""
        processed = self._outputs.process(outputs)
        for request_id, index in processed.stopped:
            self._send(wire.Abort(request_id, index))
        for output in processed.outputs:
            self._stream_by_id[output.request_id].put(output)
            if output.finished:
                self._forget(output.request_id)

    def fail(self, request_id: str, error: Exception) -> None:
        """End the stream of a request with an error. Unknown ids are ignored."""
        if request_id in self._stream_by_id:
            self._stream_by_id[request_id].put(error)
            self._forget(request_id)

    def fail_all(self, error: Exception) -> None:
        """End every stream with an error."""
        for request_id in list(self._stream_by_id):
            self.fail(request_id, error)

    async def wait_until_idle(self) -> None:
        """Wait until no request is in flight."""
        await self._idle.wait()

    def _abort(self, request_id: str) -> None:
        if request_id in self._stream_by_id:
            self._forget(request_id)
            self._send(wire.Abort(request_id))

    def _forget(self, request_id: str) -> None:
        self._outputs.forget(request_id)
        del self._stream_by_id[request_id]
        if not self._stream_by_id:
            self._idle.set()
