"""Streams: what each choice of each request was answered, held against its solo answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo.core.messages import EngineRequest, RequestOutput
from octavo.sim.solo import Answer, continue_solo


class WrongAnswerError(AssertionError):
    """A stream that differs from what the request would be answered alone, or that does not end exactly once."""


@dataclass(slots=True)
class Stream:
    """One choice of one request."""

    request: EngineRequest
    expected: Answer
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    may_abort: bool = False


class Streams:
    """All streams that have been opened."""

    def __init__(self, *, max_model_len: int, vocab_size: int) -> None:
        self._max_model_len = max_model_len
        self._vocab_size = vocab_size
        self._streams: dict[tuple[str, int], Stream] = {}

    def open(self, request: EngineRequest) -> None:
        """Expect one stream for each choice of the request."""
        for index in range(request.sampling_params.n):
            expected = continue_solo(request, index, max_model_len=self._max_model_len, vocab_size=self._vocab_size)
            self._streams[request.request_id, index] = Stream(request, expected)

    def get(self, request_id: str, index: int = 0) -> Stream:
        """The stream of one choice."""
        return self._streams[request_id, index]

    def allow_abort(self, request_id: str, index: int | None) -> None:
        """Accept that one choice, or all, end early."""
        for (stream_id, stream_index), stream in self._streams.items():
            if stream_id == request_id and index in (None, stream_index):
                stream.may_abort = True

    def take(self, outputs: Iterable[RequestOutput]) -> list[Stream]:
        """Check new outputs. Returns the streams they ended. Raises WrongAnswerError."""
        ended = []
        for output in outputs:
            stream = self._streams[output.request_id, output.index]
            if stream.finish_reason is not None:
                raise WrongAnswerError(f"{output} comes after the end, {stream.finish_reason}")
            is_first = output.new_token_ids and not stream.token_ids
            if output.prompt_logprobs != (stream.expected.prompt_logprobs if is_first else ()):
                raise WrongAnswerError(f"{output} scores the prompt otherwise than alone, or not once: {stream}")
            stream.token_ids += output.new_token_ids
            expected = stream.expected.token_ids
            if tuple(stream.token_ids) != expected[: len(stream.token_ids)]:
                raise WrongAnswerError(f"{output} makes {stream.token_ids}; alone it is {expected}")
            if output.finish_reason is not None:
                self._check_end(stream, output)
                stream.finish_reason = output.finish_reason
                ended.append(stream)
        return ended

    def check_all_ended(self) -> None:
        """Raise WrongAnswerError if any stream is still open."""
        open_streams = [key for key, stream in self._streams.items() if stream.finish_reason is None]
        if open_streams:
            raise WrongAnswerError(f"no end came for {open_streams}")

    def _check_end(self, stream: Stream, output: RequestOutput) -> None:
        if output.finish_reason == "error" and output.error:
            return
        if output.finish_reason == "abort" and stream.may_abort:
            return
        if output.finish_reason == "timeout":
            return  # CheckedEngine knows the time
        expected = stream.expected
        end = (len(stream.token_ids), output.finish_reason, output.stop_reason)
        if end != (len(expected.token_ids), expected.finish_reason, expected.stop_reason):
            raise WrongAnswerError(f"{output} ends {stream.token_ids}; alone it is {expected}")
