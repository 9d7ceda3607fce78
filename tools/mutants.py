"""Plant bugs in the core, one at a time, and see that the ledger run or the tests notice each.

    python -m tools.mutants [--jobs 2] [--only WORDS]

A planted bug survives if a short ledger run and the tests of core and sim all pass, or if they take too long: a hang
is no finding. Prints a table; exits with 1 if any survives.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tools.planted_bugs import PLANTED_BUGS, PlantedBug

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "octavo"
LEDGER_RUN = ("-m", "octavo.sim.ledger", "--seeds", "30", "--steps", "200", "--jobs", "1")
# The conftest.py of all tests imports the engine, which has no part in this.
TEST_RUN = ("-m", "pytest", "-xq", "-p", "no:cacheprovider", "--confcutdir", "tests/core", "tests/core", "tests/sim")
TIMEOUT_S = 300
SURVIVED = "SURVIVED"


def main() -> int:
    """Run the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="how many to try at a time")
    parser.add_argument("--only", default="", help="only bugs in whose file name or description this occurs")
    arguments = parser.parse_args()
    bugs = [bug for bug in PLANTED_BUGS if arguments.only in f"{bug.file} {bug.what}"]
    with patched_source(None) as source:
        verdict = find_killer(source)
    if verdict != SURVIVED:
        print(f"the source as it is does not pass: {verdict}")
        return 1
    return report(bugs, arguments.jobs)


def report(bugs: Sequence[PlantedBug], num_jobs: int) -> int:
    """Try all bugs; print a line for each as it comes; return 1 if any survived."""
    num_survivors = 0
    with ThreadPoolExecutor(num_jobs) as pool:
        for bug, verdict in zip(bugs, pool.map(try_bug, bugs), strict=True):
            num_survivors += verdict.startswith(SURVIVED)
            print(f"{verdict:20} {bug.file:22} {bug.what}", flush=True)
    print(f"{len(bugs)} planted bugs, {num_survivors} survived")
    return 1 if num_survivors else 0


def try_bug(bug: PlantedBug) -> str:
    """What noticed the bug."""
    with patched_source(bug) as source:
        return find_killer(source)


@contextmanager
def patched_source(bug: PlantedBug | None) -> Iterator[Path]:
    """A folder with a copy of the package, and the bug planted in it."""
    with tempfile.TemporaryDirectory() as folder:
        package = shutil.copytree(
            PACKAGE, Path(folder) / "octavo", ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
        if bug is not None:
            plant(bug, package / "core" / bug.file)
        yield Path(folder)


def plant(bug: PlantedBug, path: Path) -> None:
    """Replace the bug's original by what is planted. Raises ValueError unless it stands there exactly once.

    The result must be Python: what does not even compile is noticed by no merit of a test.
    """
    text = path.read_text()
    num_places = text.count(bug.original)
    if num_places != 1:
        raise ValueError(f"{bug.original!r} occurs {num_places} times in {bug.file}; adapt tools/planted_bugs.py")
    planted = text.replace(bug.original, bug.planted)
    compile(planted, bug.file, "exec")
    path.write_text(planted)


def find_killer(source: Path) -> str:
    """Name the first run that fails over this source, or SURVIVED, with the reason.

    Raises RuntimeError if a run does not even begin.
    """
    for name, command in (("ledger", LEDGER_RUN), ("tests", TEST_RUN)):
        try:
            run = subprocess.run(
                # -S leaves out the .pth files, and with them the hook of an editable install: the copy is imported.
                [sys.executable, "-S", *command],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join((str(source), sysconfig.get_path("purelib")))},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return f"{SURVIVED}: {name} hung"
        if run.returncode not in (0, 1):
            raise RuntimeError(f"{' '.join(command)} ended with {run.returncode}: {run.stdout}{run.stderr}")
        if run.returncode == 1:
            return f"killed by {name}"
    return SURVIVED


if __name__ == "__main__":
    sys.exit(main())
