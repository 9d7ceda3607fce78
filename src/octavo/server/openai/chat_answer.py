"""ChatAnswer: a turn in the form of chat completions, in one piece or in chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from octavo.engine.outputs import Logprob
from octavo.server.openai.answer_head import AnswerHead
from octavo.server.openai.chat_protocol import (
    AnswerMessage,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
    ChatLogprobs,
    ChatToolCall,
    Delta,
    FunctionCall,
    FunctionDelta,
    ToolCallDelta,
)
from octavo.server.openai.logprobs import chat_logprobs, prompt_logprobs
from octavo.server.turns.events import (
    NewTokens,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStart,
    TurnChoice,
    TurnEnd,
    TurnEvent,
)
from octavo.server.turns.turn import Turn

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer


class ChatAnswer:
    """An answer in the chat form. Use `whole` or `chunks`, once."""

    def __init__(self, head: AnswerHead, turn: Turn, tokenizer: Tokenizer, body: ChatCompletionRequest) -> None:
        self._head = head
        self._turn = turn
        self._tokenizer = tokenizer
        self._body = body
        # By choice: what its next chunk says of the tokens that came before the text.
        self._tokens_by_index: dict[int, dict[str, Any]] = {}

    async def whole(self) -> ChatCompletion:
        """The answer in one piece."""
        head = self._head
        choices = [
            ChatChoice(
                index=choice.index,
                message=self._message(choice),
                logprobs=self._logprobs(choice.token_ids, choice.logprobs),
                finish_reason=self._finish_reason(choice.finish_reason),
                stop_reason=choice.stop_reason,
                token_ids=choice.token_ids if self._body.return_token_ids else UNSET,
            )
            for choice in await self._turn.choices()
        ]
        scores = self._turn.prompt_logprobs
        return ChatCompletion(
            head.id,
            head.created,
            head.model,
            choices,
            self._turn.usage,
            prompt_token_ids=self._turn.prompt_token_ids if self._body.return_token_ids else UNSET,
            prompt_logprobs=UNSET if scores is None else prompt_logprobs(scores),
        )

    async def chunks(self) -> AsyncGenerator[ChatCompletionChunk, None]:
        """The answer in pieces: a role for each choice, in order; then deltas; for each choice one finish_reason."""
        for index in range(self._turn.num_choices):
            has_prompt = index == 0 and self._body.return_token_ids
            choice = ChatChunkChoice(index, Delta(role="assistant", content=""))
            yield self._chunk([choice], prompt_token_ids=self._turn.prompt_token_ids if has_prompt else UNSET)
        async for event in self._turn.events():
            if isinstance(event, NewTokens):
                self._keep_tokens(event)
            elif isinstance(event, TurnEnd):
                if tokens := self._tokens_by_index.pop(event.index, None):
                    yield self._chunk([ChatChunkChoice(event.index, Delta(content=""), **tokens)])
                reason = self._finish_reason(event.finish_reason)
                yield self._chunk([ChatChunkChoice(event.index, Delta(), None, reason, event.stop_reason)])
            elif (delta := self._delta(event)) is not None:
                tokens = self._tokens_by_index.pop(event.index, {})
                yield self._chunk([ChatChunkChoice(event.index, delta, **tokens)])
        if self._head.has_usage_chunk:
            yield self._chunk([])

    def _delta(self, event: TurnEvent) -> Delta | None:
        match event:
            case TextDelta(_, text):
                return Delta(content=text)
            case ReasoningDelta(_, text) if self._body.include_reasoning:
                return Delta(reasoning_content=text, reasoning=text)
            case ToolCallStart(_, call_index, call_id, name):
                return Delta(tool_calls=[ToolCallDelta(call_index, FunctionDelta("", name), call_id, "function")])
            case ToolArgumentsDelta(_, call_index, text):
                return Delta(tool_calls=[ToolCallDelta(call_index, FunctionDelta(text))])
            case _:
                return None

    def _message(self, choice: TurnChoice) -> AnswerMessage:
        calls = [ChatToolCall(call.call_id, FunctionCall(call.name, call.arguments)) for call in choice.tool_calls]
        reasoning = choice.reasoning if choice.reasoning and self._body.include_reasoning else UNSET
        return AnswerMessage(
            content=None if calls and not choice.text else choice.text,
            tool_calls=calls or UNSET,
            reasoning_content=reasoning,
            reasoning=reasoning,
        )

    def _finish_reason(self, reason: str) -> str:
        """OpenAI ends a call to the function that the client named by "stop"."""
        is_named = isinstance(self._body.tool_choice, dict) and self._body.tool_choice.get("type") == "function"
        return "stop" if is_named and reason == "tool_calls" else reason

    def _keep_tokens(self, event: NewTokens) -> None:
        kept = self._tokens_by_index.setdefault(event.index, {})
        if self._body.return_token_ids:
            kept["token_ids"] = kept.get("token_ids", []) + event.token_ids
        if logprobs := self._logprobs(event.token_ids, event.logprobs):
            before = kept["logprobs"].content if "logprobs" in kept else []
            kept["logprobs"] = ChatLogprobs(before + logprobs.content)

    def _logprobs(self, token_ids: list[int], logprobs: list[dict[int, Logprob]] | None) -> ChatLogprobs | None:
        num_top = self._body.top_logprobs or 0
        return chat_logprobs(
            token_ids,
            logprobs,
            self._tokenizer.vocab_size if num_top == -1 else num_top,
            self._tokenizer,
            shows_ids=self._body.return_tokens_as_token_ids,
        )

    def _chunk(
        self, choices: list[ChatChunkChoice], *, prompt_token_ids: list[int] | UnsetType = UNSET
    ) -> ChatCompletionChunk:
        head = self._head
        usage = head.chunk_usage(self._turn.usage) if choices else self._turn.usage  # the last one has no choice
        return ChatCompletionChunk(head.id, head.created, head.model, choices, usage, prompt_token_ids)
