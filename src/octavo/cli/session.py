"""Session: an engine for a command that asks one thing after the other and prints each answer as it comes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, NamedTuple

from octavo.cli.failure import exit_on
from octavo.config import EngineConfig
from octavo.core.sampling_params import SamplingParams
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.engine_status import EngineUnavailableError
from octavo.engine.input_processor import Prompt


class PrintedAnswer(NamedTuple):
    """What has been printed of an answer, and whether that is all of it."""

    text: str
    is_complete: bool


class Session:
    """Prints answers. The event loop runs during an answer only, where Ctrl-C stops that answer and nothing else."""

    def __init__(self, engine: AsyncEngine, runner: asyncio.Runner) -> None:
        self._engine = engine
        self._runner = runner

    @property
    def sampling_defaults(self) -> Mapping[str, int | float]:
        """What the model's makers recommend for the parameters that nobody set."""
        return self._engine.ready.sampling_defaults

    def continue_prompt(self, prompt: str, params: SamplingParams) -> PrintedAnswer:
        """Print what follows the prompt."""
        pieces: list[str] = []
        return self._run(self._print(prompt, params, pieces), pieces)

    def answer(self, messages: Sequence[Mapping[str, Any]], params: SamplingParams) -> PrintedAnswer:
        """Print the next turn of the conversation."""
        pieces: list[str] = []
        return self._run(self._print_turn(messages, params, pieces), pieces)

    def _run(self, printing: Coroutine[Any, Any, None], pieces: list[str]) -> PrintedAnswer:
        is_complete = self._runner.run(_until_interrupted(printing))
        print()
        return PrintedAnswer("".join(pieces), is_complete)

    async def _print_turn(
        self, messages: Sequence[Mapping[str, Any]], params: SamplingParams, pieces: list[str]
    ) -> None:
        await self._print(await self._engine.texts.render_chat(messages), params, pieces)

    async def _print(self, prompt: Prompt, params: SamplingParams, pieces: list[str]) -> None:
        async with aclosing(self._engine.generate(prompt, params)) as outputs:
            async for output in outputs:
                for choice in output.outputs:
                    print(choice.text, end="", flush=True)
                    pieces.append(choice.text)


@contextmanager
def open_session(config: EngineConfig) -> Iterator[Session]:
    """Start an engine and end it. Exits with one line and status 1 for what it refuses or cannot do."""
    with asyncio.Runner() as runner:
        engine = AsyncEngine(config)
        try:
            with exit_on(ValueError, EngineUnavailableError):
                runner.run(_start(engine))
                yield Session(engine, runner)
        finally:
            runner.run(engine.close())


async def _until_interrupted(printing: Coroutine[Any, Any, None]) -> bool:
    """Whether it came to its end before Ctrl-C, which is ignored from then on: it was meant for the answer."""
    task = asyncio.ensure_future(printing)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    await asyncio.wait([task])
    if task.cancelled():
        return False
    task.result()  # raises what went wrong
    return True


async def _start(engine: AsyncEngine) -> None:
    await engine.start()
    await engine.wait_until_ready()
