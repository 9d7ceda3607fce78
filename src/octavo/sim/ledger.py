"""The ledger run: many seeds of the real scheduler over the ledger model, with everything checked at every step.

python -m octavo.sim.ledger --seeds 1000 --steps 500
python -m octavo.sim.ledger --seed 7 --steps 500     one seed, step by step
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from multiprocessing import Pool
from typing import NamedTuple

from octavo.core.engine_core import StepResult
from octavo.core.messages import SchedulerOutput
from octavo.sim.coverage import Coverage
from octavo.sim.trial import Trial, TrialError

MAX_FAILURES_SHOWN = 5


class Outcome(NamedTuple):
    """What became of one seed."""

    coverage: Counter[str]
    num_steps: int
    failure: str | None


def main() -> int:
    """Run as the arguments say; return the exit status: 0 if nothing was found and everything was reached."""
    parser = argparse.ArgumentParser(prog="python -m octavo.sim.ledger", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first-seed", type=int, default=0, help="the smallest of them")
    parser.add_argument("--steps", type=int, default=200, help="steps of each before arrivals stop")
    parser.add_argument("--seed", type=int, help="run this seed alone and print its steps")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return replay(arguments.seed, arguments.steps)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    return run(seeds, arguments.steps, arguments.jobs)


def run(seeds: range, num_steps: int, num_jobs: int) -> int:
    """Run all seeds; print failures as they come and the coverage at the end."""
    coverage = Coverage()
    num_failures = num_steps_run = 0
    for outcome in run_seeds(seeds, num_steps, num_jobs):
        coverage.add(outcome.coverage)
        num_steps_run += outcome.num_steps
        if outcome.failure is not None:
            num_failures += 1
            if num_failures <= MAX_FAILURES_SHOWN:
                print(outcome.failure, flush=True)
    print(coverage)
    print(f"{len(seeds)} seeds, {num_steps_run} steps, {num_failures} failures")
    missing = coverage.missing()
    if missing:
        print(f"reached by too few seeds: {', '.join(missing)}; run more seeds or steps, or mend sim/workload.py")
    return 1 if num_failures or missing else 0


def run_seeds(seeds: range, num_steps: int, num_jobs: int) -> Iterator[Outcome]:
    """The outcome of each seed, in order."""
    with Pool(num_jobs) as pool:
        yield from pool.imap(_run_seed, [(seed, num_steps) for seed in seeds], chunksize=4)


def replay(seed: int, num_steps: int) -> int:
    """Run one seed and print each of its steps."""
    trial = Trial(seed, num_steps, _print_step)
    print(trial.scenario)
    try:
        trial.run()
    except TrialError as failure:
        print(failure)
        return 1
    print(f"seed {seed}: {trial.engine.num_steps} steps, nothing found")
    return 0


def _run_seed(arguments: tuple[int, int]) -> Outcome:
    trial = Trial(*arguments)
    try:
        trial.run()
    except TrialError as failure:
        return Outcome(trial.coverage, trial.engine.num_steps, str(failure))
    return Outcome(trial.coverage, trial.engine.num_steps, None)


def _print_step(scheduled: SchedulerOutput, result: StepResult) -> None:
    print(f"step {scheduled.step_id}: {result.stats}")
    print(f"  freed rows {scheduled.freed_rows}, copies {scheduled.block_copies}")
    for new_row in scheduled.new_rows:
        print(f"  {new_row}")
    for entry in scheduled.scheduled:
        print(f"  {entry}")
    for output in result.outputs:
        print(f"  -> {output}")


if __name__ == "__main__":
    sys.exit(main())
