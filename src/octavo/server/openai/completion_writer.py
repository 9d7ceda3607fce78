"""CompletionWriter: one choice in the completions form, whole or piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from octavo.engine.outputs import CompletionOutput, GenerationOutput
from octavo.server.openai.completion_protocol import CompletionChoice, CompletionLogprobs, CompletionRequest
from octavo.server.openai.logprobs import CompletionLogprobsWriter, prompt_logprobs

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer


class CompletionWriter:
    """Writes the outputs of one choice, in their order. What is shown of the prompt comes with the first."""

    def __init__(self, index: int, body: CompletionRequest, tokenizer: Tokenizer) -> None:
        self._index = index
        self._body = body
        self._tokenizer = tokenizer
        self._logprobs = CompletionLogprobsWriter(tokenizer, shows_ids=body.return_tokens_as_token_ids)
        self._is_first = True

    def write(self, output: GenerationOutput, choice: CompletionOutput) -> CompletionChoice:
        """The choice, as it is part of this output."""
        body, is_first = self._body, self._is_first
        self._is_first = False
        echo = self._echo(output) if is_first and body.echo else ""
        has_scores = is_first and body.prompt_logprobs is not None and output.prompt_logprobs is not None
        return CompletionChoice(
            index=self._index,
            text=echo + choice.text,
            logprobs=self._write_logprobs(output, choice, echo),
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason,
            token_ids=choice.token_ids if body.return_token_ids else UNSET,
            prompt_token_ids=output.prompt_token_ids if body.return_token_ids and is_first else UNSET,
            prompt_logprobs=prompt_logprobs(output.prompt_logprobs or ()) if has_scores else UNSET,
        )

    def _write_logprobs(
        self, output: GenerationOutput, choice: CompletionOutput, echo: str
    ) -> CompletionLogprobs | None:
        if choice.logprobs is None:
            return None
        written = CompletionLogprobs([], [], [], [])
        if echo and output.prompt_logprobs is not None:
            self._logprobs.begin_prompt(echo, output.prompt_token_ids)
            self._logprobs.write(written, output.prompt_token_ids, output.prompt_logprobs)
        self._logprobs.write(written, choice.token_ids, choice.logprobs)
        return written

    def _echo(self, output: GenerationOutput) -> str:
        if output.prompt is not None and self._body.truncate_prompt_tokens is None:
            return output.prompt
        return self._tokenizer.decode(output.prompt_token_ids, skip_special_tokens=False)
