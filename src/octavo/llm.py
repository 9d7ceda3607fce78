"""LLM: a model in this process, for batches of prompts."""

from __future__ import annotations

import dataclasses
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from octavo.config import EngineConfig, SpeculativeConfig
from octavo.core.messages import EngineRequest
from octavo.core.sampling_params import RequestOutputKind, SamplingParams
from octavo.engine.beam_search import BeamSearch, BeamSearchOutput, BeamSearchParams
from octavo.engine.build import build_engine
from octavo.engine.input_processor import InputProcessor, Prompt, prompt_text
from octavo.engine.output_processor import OutputProcessor
from octavo.engine.outputs import GenerationOutput
from octavo.engine.tokenizer import Tokenizer
from octavo.weights.checkpoint import open_checkpoint

if TYPE_CHECKING:
    from octavo.engine.chat_template import Message
    from octavo.structured.grammar import Grammar
    from octavo.structured.vocabulary import Vocabulary

Progress = Callable[[int, int], None]  # is told how many requests are done, and how many tokens a step brought


class LLM:
    """Generates text offline. One thread may use it at a time."""

    def __init__(self, model: str, *, seed: int | None = 0, **options: Any) -> None:
        """Load `model`. The options are the fields of EngineConfig, under their names; its parts may be dicts.

        Unlike a server's, requests without a seed repeat from run to run, unless `seed` is None. Raises TypeError for
        an unknown option, ValueError for one out of range and CheckpointError for a model that cannot be opened.
        """
        known = {field.name for field in dataclasses.fields(EngineConfig)}
        unknown = sorted(options.keys() - known)
        if unknown:
            raise TypeError(f"LLM does not know {', '.join(unknown)}; it knows {', '.join(sorted(known))}")
        if isinstance(options.get("speculative_config"), Mapping):
            options["speculative_config"] = SpeculativeConfig.of(options["speculative_config"])
        config = EngineConfig(model=model, seed=seed, **options)
        checkpoint = open_checkpoint(config.model)
        with ThreadPoolExecutor(max_workers=1) as executor:  # the kernels that load weights let other threads run
            tokenizer = executor.submit(lambda: Tokenizer(checkpoint.tokenizer_spec))
            self.engine = build_engine(config, checkpoint)
            self._tokenizer = tokenizer.result()
        self._input_processor = InputProcessor(
            self._tokenizer,
            self.engine.limits,
            vocab_size=self.engine.vocab_size,
            max_logprobs=config.max_logprobs,
            eos_token_ids=self.engine.eos_token_ids,
            seed=seed,
        )
        self._output_processor = OutputProcessor(self._tokenizer)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[GenerationOutput]:
        """Continue each prompt, and return the outputs in the order of the prompts.

        A prompt is a text, a list of token ids or a PromptDict. `sampling_params` hold for all prompts, or are one
        for each; without them, the model's own defaults hold. All prompts are checked before any is run: raises
        ParameterError or RequestRejected. A request that fails alone ends with finish_reason "error". `use_tqdm`
        shows progress where there is a terminal.
        """
        prompt_list = _prompt_list(prompts)
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        requests = [
            self._input_processor.process(prompt, dataclasses.replace(params, output_kind=RequestOutputKind.FINAL_ONLY))
            for prompt, params in zip(prompt_list, _params_list(sampling_params, len(prompt_list)), strict=True)
        ]
        grammars = self._compile_grammars(requests)
        with _progress_bar(len(requests), is_shown=use_tqdm) as progress:
            outputs = self._run(requests, [prompt_text(prompt) for prompt in prompt_list], progress)
        del grammars  # held until here, so that the workers find them
        return outputs

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[GenerationOutput]:
        """Answer one conversation, a list of messages, or each of several. See `generate` and ChatTemplate.render.

        The template shows the model the tools; calls are in the text. Raises ChatTemplateError where the model has no
        chat template, or refuses the messages.
        """
        conversations: Any = [messages] if messages and isinstance(messages[0], Mapping) else messages
        prompts: list[Prompt] = []
        for conversation in conversations:
            text = self._tokenizer.apply_chat_template(
                conversation,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                tools=tools,
                **(chat_template_kwargs or {}),
            )
            token_ids = self._tokenizer.encode(text, add_special_tokens=False)
            prompts.append({"prompt": text, "prompt_token_ids": token_ids})
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def beam_search(self, prompts: Prompt | Sequence[Prompt], params: BeamSearchParams) -> list[BeamSearchOutput]:
        """The most likely continuations of each prompt, all searched together.

        Raises ParameterError or RequestRejected before anything is run.
        """
        prompt_ids = [self._input_processor.token_ids(prompt) for prompt in _prompt_list(prompts)]
        for token_ids in prompt_ids:
            self.engine.limits.check(len(token_ids), params.max_tokens)
        searches = [BeamSearch(token_ids, params, self.engine.eos_token_ids) for token_ids in prompt_ids]
        step = SamplingParams(
            max_tokens=1, logprobs=2 * params.beam_width, temperature=params.temperature, detokenize=False
        )
        for _ in range(params.max_tokens):
            going = [search for search in searches if search.can_go_on(self.engine.limits.max_model_len)]
            if not going:
                break
            outputs = iter(
                self.generate([beam.tokens for search in going for beam in search.beams], step, use_tqdm=False)
            )
            for search in going:
                search.extend(list(islice(outputs, len(search.beams))))
        return [search.output(self._tokenizer) for search in searches]

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's makers recommend, where its generation_config.json (or GGUF metadata) says something."""
        return SamplingParams(**self.engine.sampling_defaults)  # type: ignore[arg-type]

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    def close(self) -> None:
        """Release the model and its KV cache."""
        self.engine.core.close()
        self.engine.grammars.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _compile_grammars(self, requests: list[EngineRequest]) -> list[Grammar]:
        wanted = [params for request in requests if (params := request.sampling_params.structured_outputs)]
        if wanted:
            self.engine.grammars.learn(self._vocabulary)
        return [self.engine.grammars.compile(params) for params in wanted]

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return self._input_processor.vocabulary()

    def _run(
        self, requests: list[EngineRequest], texts: list[str | None], progress: Progress
    ) -> list[GenerationOutput]:
        """Step until every request has ended; whatever happens, leave none behind in the engine."""
        core = self.engine.core
        output_by_id: dict[str, GenerationOutput] = {}
        try:
            for request, text in zip(requests, texts, strict=True):
                self._output_processor.add_request(request, text)
                core.add_request(request)
            with _DeferredInterrupt() as interrupt:
                while core.has_unfinished:
                    result = core.step()
                    outputs, stopped = self._output_processor.process(result.outputs)
                    for request_id, index in stopped:
                        core.abort_request(request_id, index)
                    output_by_id |= {output.request_id: output for output in outputs}
                    progress(len(output_by_id), sum(len(output.new_token_ids) for output in result.outputs))
                    interrupt.raise_if_pending()
        finally:
            for request in requests:
                core.abort_request(request.request_id)
                self._output_processor.forget(request.request_id)
        return [output_by_id[request.request_id] for request in requests]


class _DeferredInterrupt:
    """Ctrl-C while the engine runs is noted at once and raised between two steps, where the engine's state is whole.

    A program that handles SIGINT in a way of its own keeps its handler.
    """

    def __init__(self) -> None:
        self._is_pending = False
        self._is_installed = False

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            self._is_installed = True
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def raise_if_pending(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self._is_pending:
            raise KeyboardInterrupt

    def _note(self, signal_number: int, frame: FrameType | None) -> None:
        self._is_pending = True


@contextmanager
def _progress_bar(num_requests: int, *, is_shown: bool) -> Iterator[Progress]:
    """Requests done and tokens a second, where there is a terminal. Yields what is to be told of each step."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda num_finished, num_new_tokens: None
        return
    # Not above: rich takes long to import, and a program without a terminal does not need it.
    from rich import progress
    from rich.console import Console

    rate = progress.TextColumn("{task.fields[tokens_per_s]:.1f} tokens/s")
    columns = ("generating", progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeElapsedColumn(), rate)
    started_s, num_tokens = time.monotonic(), 0
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=num_requests, tokens_per_s=0.0)

        def take_step(num_finished: int, num_new_tokens: int) -> None:
            nonlocal num_tokens
            num_tokens += num_new_tokens
            tokens_per_s = num_tokens / max(time.monotonic() - started_s, 1e-9)
            bar.update(task, completed=num_finished, tokens_per_s=tokens_per_s)

        yield take_step


def _prompt_list(prompts: Any) -> list[Prompt]:
    """The prompts; a text, a prompt object or a list of token ids is one."""
    is_one = isinstance(prompts, str | Mapping) or (len(prompts) > 0 and isinstance(prompts[0], int))
    return [prompts] if is_one else list(prompts)


def _params_list(sampling_params: SamplingParams | Sequence[SamplingParams], num_prompts: int) -> list[SamplingParams]:
    """One SamplingParams for each prompt."""
    if isinstance(sampling_params, SamplingParams):
        return [sampling_params] * num_prompts
    if len(sampling_params) != num_prompts:
        raise ValueError(
            f"{num_prompts} prompts came with {len(sampling_params)} sampling_params; give one for all, or one for each"
        )
    return list(sampling_params)
