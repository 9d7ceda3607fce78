"""Trial: one seed of the ledger run, from the first arrival to an empty engine."""

from __future__ import annotations

from collections import Counter
from random import Random

from octavo.core.admission import RequestRejected
from octavo.sim.checked_engine import CheckedEngine, Listener
from octavo.sim.ledger_model import Noise
from octavo.sim.workload import Workload, draw_scenario


class TrialError(AssertionError):
    """A seed that found something; the message says how to see it again."""


class Trial:
    """An engine and its users, drawn from one seed.

    First come `num_steps` steps of arrivals, aborts, failing rows and drafts of all kinds (safety). Then arrivals,
    aborts and failures stop, and whoever is in must come to an end within a bound (liveness).
    """

    def __init__(self, seed: int, num_steps: int, listener: Listener | None = None) -> None:
        self.seed = seed
        self.num_steps = num_steps
        random = Random(seed)
        self.scenario = scenario = draw_scenario(random)
        self._noise = Noise(Random(seed + 1), max_drafts=scenario.max_drafts, error_rate=scenario.error_rate)
        self.engine = CheckedEngine(
            scenario.engine,
            vocab_size=scenario.vocab_size,
            max_drafts=scenario.max_drafts,
            noise=self._noise,
            listener=listener,
        )
        self._workload = Workload(random, scenario)

    @property
    def coverage(self) -> Counter[str]:
        """How often each situation was reached so far."""
        return self.engine.coverage

    def run(self) -> None:
        """Run to the end. Raises TrialError."""
        try:
            for _ in range(self.num_steps):
                self._add_arrivals()
                self._abort_somebody()
                self._step()
            self._noise.error_rate = 0.0
            self.engine.drain()
        except Exception as error:  # a broken scheduler may fail in any way
            raise TrialError(
                f"seed {self.seed}, step {self.engine.num_steps}: {type(error).__name__}: {error}\n"
                f"  {self.scenario}\n  last step: {self.engine.last_scheduled}\n"
                f"  replay: python -m octavo.sim.ledger --seed {self.seed} --steps {self.num_steps}"
            ) from error

    def _add_arrivals(self) -> None:
        num_unfinished = sum(1 for _ in self.engine.scheduler.requests())
        for request in self._workload.arrivals(num_unfinished, self.engine.num_steps):
            try:
                self.engine.add(request)
            except RequestRejected:
                continue  # the engine has checked that it had to be

    def _abort_somebody(self) -> None:
        abort = self._workload.abort(list(self.engine.scheduler.requests()))
        if abort is not None:
            request_id, index, state = abort
            self.engine.abort(request_id, index)
            self.coverage[f"abort {state}"] += 1
            self.coverage["abort of one choice"] += index is not None

    def _step(self) -> None:
        _, ended = self.engine.step()
        for stream in ended:
            self._workload.remember(stream.request.prompt_token_ids + tuple(stream.token_ids))
