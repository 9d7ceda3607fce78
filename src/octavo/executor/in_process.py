"""InProcessExecutor: the worker in the engine's own process."""

from __future__ import annotations

from octavo.core.executor import FinishedStep
from octavo.core.messages import SchedulerOutput
from octavo.worker.model_runner import ModelRunner


class InProcessExecutor:
    """Runs each step to its end before `execute` returns."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner: ModelRunner | None = runner

    def execute(self, scheduled: SchedulerOutput) -> FinishedStep:
        """Run one step. Raises whatever the worker raises, and RuntimeError once closed."""
        if self._runner is None:
            raise RuntimeError("the engine is closed; build a new one")
        return FinishedStep(self._runner.run(scheduled))

    def close(self) -> None:
        """Let go of the model and its KV cache."""
        self._runner = None
