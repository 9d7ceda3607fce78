"""OutputProcessor: the tokens that the core sends become text, choice by choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from octavo.core.messages import CacheMiss, EngineRequest, RequestOutput, TokenLogprobs
from octavo.core.sampling_params import RequestOutputKind, SamplingParams
from octavo.engine.detokenizer import Detokenizer
from octavo.engine.outputs import CompletionOutput, GenerationOutput, Logprob
from octavo.engine.stop_checker import StopChecker

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer


class ProcessedOutputs(NamedTuple):
    """What came of one batch of the core's outputs."""

    outputs: list[GenerationOutput]
    stopped: list[tuple[str, int]]  # (request_id, index) that a stop string ended: the core must abort them


class OutputProcessor:
    """Holds what is known of every request in flight, and forgets each with its last output."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._request_by_id: dict[str, _RequestState] = {}

    @property
    def num_requests(self) -> int:
        """Requests in flight."""
        return len(self._request_by_id)

    def add_request(self, request: EngineRequest, prompt: str | None = None) -> None:
        """Expect the outputs of a request; `prompt` is its text, if it has one."""
        self._request_by_id[request.request_id] = _RequestState(request, prompt, self._tokenizer)

    def forget(self, request_id: str) -> None:
        """Drop a request that was aborted. Outputs still on their way, and unknown ids, are ignored."""
        self._request_by_id.pop(request_id, None)

    def process(self, outputs: Iterable[RequestOutput]) -> ProcessedOutputs:
        """Take in one step's outputs and return what each request's output_kind lets through.

        CUMULATIVE and DELTA bring one GenerationOutput for each request with news, of the choices that have some;
        FINAL_ONLY one of all choices, once the last of them has ended.
        """
        stopped: list[tuple[str, int]] = []
        news_by_id: dict[str, list[CompletionOutput]] = {}
        for output in outputs:
            request = self._request_by_id.get(output.request_id)
            if request is None or request.choices[output.index].is_finished:
                continue  # it ended here before the core heard of it
            news_by_id.setdefault(output.request_id, []).append(request.add(output))
            if request.choices[output.index].is_finished and output.finish_reason is None:
                stopped.append((output.request_id, output.index))
        generations = []
        for request_id, news in news_by_id.items():
            request = self._request_by_id[request_id]
            if request.is_finished:
                del self._request_by_id[request_id]
            if request.kind is not RequestOutputKind.FINAL_ONLY:
                generations.append(request.output(news))
            elif request.is_finished:
                generations.append(request.output([choice.output() for choice in request.choices]))
        return ProcessedOutputs(generations, stopped)


class _RequestState:
    """One request: its prompt and its choices."""

    def __init__(self, request: EngineRequest, prompt: str | None, tokenizer: Tokenizer) -> None:
        self._request_id = request.request_id
        self._prompt = prompt
        self._prompt_token_ids = list(request.prompt_token_ids)  # one list, which every output of the request shows
        self._num_cached_tokens = 0
        self._cache_miss: CacheMiss | None = None
        self._has_prompt_logprobs = request.sampling_params.prompt_logprobs is not None
        self._prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        self._tokenizer = tokenizer
        self.kind = request.sampling_params.output_kind
        self.choices = [
            _Choice(index, request.sampling_params, tokenizer) for index in range(request.sampling_params.n)
        ]

    @property
    def is_finished(self) -> bool:
        return all(choice.is_finished for choice in self.choices)

    def add(self, output: RequestOutput) -> CompletionOutput:
        """Take in one choice's news; return what its user may see of it."""
        if output.index == 0:  # the other choices share this one's prompt, whatever the cache holds
            self._num_cached_tokens = output.num_cached_tokens
            self._cache_miss = output.cache_miss
            if self._has_prompt_logprobs and output.new_token_ids and self._prompt_logprobs is None:
                self._prompt_logprobs = self._decoded(output.prompt_logprobs)
        choice = self.choices[output.index]
        num_tokens_before, num_characters_before = len(choice.token_ids), len(choice.text)
        choice.add(output)
        if self.kind is RequestOutputKind.DELTA:
            return choice.output(num_tokens_before, num_characters_before)
        return choice.output()

    def output(self, choices: list[CompletionOutput]) -> GenerationOutput:
        """The request as its user sees it, with these of its choices."""
        return GenerationOutput(
            request_id=self._request_id,
            prompt=self._prompt,
            prompt_token_ids=self._prompt_token_ids,
            outputs=sorted(choices, key=lambda choice: choice.index),
            finished=self.is_finished,
            num_cached_tokens=self._num_cached_tokens,
            cache_miss=self._cache_miss,
            prompt_logprobs=self._prompt_logprobs,
        )

    def _decoded(self, entries: Sequence[TokenLogprobs]) -> list[dict[int, Logprob] | None]:
        later_ids = self._prompt_token_ids[1:]  # nothing comes before the first
        pairs = zip(later_ids, entries, strict=True)
        return [None, *(logprob_by_id(token_id, entry, self._tokenizer) for token_id, entry in pairs)]


class _Choice:
    """One of the n answers: its tokens, and its text as far as it may be shown."""

    def __init__(self, index: int, params: SamplingParams, tokenizer: Tokenizer) -> None:
        self._index = index
        self._params = params
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens=params.skip_special_tokens)
        self._stop_checker = StopChecker(params.stop, include_stop_str_in_output=params.include_stop_str_in_output)
        self.text = ""
        self.token_ids: list[int] = []
        self._logprobs: list[dict[int, Logprob]] = []
        self._cumulative_logprob = 0.0
        self._finish_reason: str | None = None
        self._stop_reason: int | str | None = None
        self._error: str | None = None

    @property
    def is_finished(self) -> bool:
        return self._finish_reason is not None

    def add(self, output: RequestOutput) -> None:
        """Take in new tokens, up to the one that completes a stop string, and the end if this is it."""
        is_stop_token_last = output.finish_reason == "stop" and not self._params.include_stop_str_in_output
        for place, token_id in enumerate(output.new_token_ids):
            self.token_ids.append(token_id)
            if output.logprobs:
                self._logprobs.append(logprob_by_id(token_id, output.logprobs[place], self._tokenizer))
                self._cumulative_logprob += output.logprobs[place].logprob
            is_last = place == len(output.new_token_ids) - 1
            if self._params.detokenize and not (is_last and is_stop_token_last):
                self._add_text(self._detokenizer.add(token_id))
            if self.is_finished:
                return
        if output.finish_reason is not None:
            self._finish(output)

    def output(self, first_token: int = 0, first_character: int = 0) -> CompletionOutput:
        """The choice from this token and this character on."""
        has_logprobs = self._params.logprobs is not None
        return CompletionOutput(
            index=self._index,
            text=self.text[first_character:],
            token_ids=self.token_ids[first_token:],
            cumulative_logprob=self._cumulative_logprob if has_logprobs else None,
            logprobs=self._logprobs[first_token:] if has_logprobs else None,
            finish_reason=self._finish_reason,
            stop_reason=self._stop_reason,
            error=self._error,
        )

    def _add_text(self, delta: str) -> None:
        can_stop = len(self.token_ids) > self._params.min_tokens
        shown, stop = self._stop_checker.add(delta, can_stop=can_stop)
        self.text += shown
        if stop is not None:
            self._finish_reason, self._stop_reason = "stop", stop

    def _finish(self, output: RequestOutput) -> None:
        self._add_text(self._detokenizer.finish())
        if self.is_finished:  # what was left completed a stop string
            return
        self.text += self._stop_checker.finish()
        self._finish_reason, self._stop_reason = output.finish_reason, output.stop_reason
        self._error = output.error


def logprob_by_id(token_id: int, entry: TokenLogprobs, tokenizer: Tokenizer) -> dict[int, Logprob]:
    """The token that stands there first, then the most likely ones; it is listed once where it is one of them."""
    ranked = [(token_id, entry.logprob, entry.rank)]
    ranked += [(top_id, logprob, rank) for rank, (top_id, logprob) in enumerate(entry.top, start=1)]
    by_id: dict[int, Logprob] = {}
    for each_id, logprob, rank in ranked:
        if each_id not in by_id:
            text = tokenizer.decode([each_id], skip_special_tokens=False, is_continuation=True)
            by_id[each_id] = Logprob(logprob, rank, text)
    return by_id
