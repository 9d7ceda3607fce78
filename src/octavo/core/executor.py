"""The seam between the loop and whatever runs the model: workers when serving, a model of one when simulating."""

from __future__ import annotations

from typing import Protocol

from octavo.core.messages import ModelRunnerOutput, SchedulerOutput


class StepHandle(Protocol):
    """A step under way."""

    def result(self) -> ModelRunnerOutput:
        """Wait for the step and return what it sampled. Raises whatever stopped the worker."""
        ...


class Executor(Protocol):
    """Runs steps, in the order given."""

    def execute(self, scheduled: SchedulerOutput) -> StepHandle:
        """Start a step and return at once; the handle's `result()` waits."""
        ...

    def close(self) -> None:
        """Release the workers and their memory. Harmless when called twice."""
        ...


class FinishedStep:
    """The handle of an executor that has computed the step before `execute` returned."""

    __slots__ = ("_output",)

    def __init__(self, output: ModelRunnerOutput) -> None:
        self._output = output

    def result(self) -> ModelRunnerOutput:
        """Return the step's output."""
        return self._output
