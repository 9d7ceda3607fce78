"""StepLog: writes down what each step ran and how long it took, for `octavo simulate --fit`."""

from __future__ import annotations

import json
import time
from pathlib import Path

from octavo.core.executor import Executor, StepHandle
from octavo.core.messages import SchedulerOutput
from octavo.core.step_work import StepWork


class StepLog:
    """Another executor, with a line of JSON for each of its steps: the fields of StepWork, and `seconds`.

    A step's time begins where the one before ended, so that the loop's own work and what is sent to the front count;
    but where no row goes on from that step, the engine may have waited for requests, and the time begins with the step.
    Raises OSError for a file that cannot be written.
    """

    def __init__(self, executor: Executor, path: Path) -> None:
        self._executor = executor
        self._file = path.open("a", buffering=1)  # a line at a time: a process that is killed keeps what it wrote
        self._ended_s = 0.0

    def execute(self, scheduled: SchedulerOutput) -> StepHandle:
        """Run one step to its end, and write it down."""
        goes_on = len(scheduled.scheduled) > len(scheduled.new_rows)
        began_s = self._ended_s if goes_on else time.perf_counter()
        handle = self._executor.execute(scheduled)
        handle.result()
        self._ended_s = time.perf_counter()
        step = StepWork.of(scheduled)._asdict() | {"seconds": round(self._ended_s - began_s, 7)}
        self._file.write(json.dumps(step) + "\n")
        return handle

    def close(self) -> None:
        """Close the file, and the other executor."""
        self._file.close()
        self._executor.close()
