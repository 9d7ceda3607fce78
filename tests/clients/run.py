"""Runs the scripts of real clients against one `octavo serve`, and prints what works.

    python -m tests.clients.run [--model PATH] [NAME ...]

Each client gets an environment of its own in .clients/NAME. Exits with 1 if a step failed, or a client could not be
installed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.clients.environment import FOLDER, Client, InstallError, clients
from tests.e2e.server_process import ServerProcess
from tools.fetch_model import fetch

SCRIPT_TIMEOUT_S = 300
MODEL_NAME = "octavo"
API_KEY = "a-key"
MAX_REASON_CHARS = 500


@dataclass
class Report:
    """What came of one client."""

    client: Client
    failure: str = ""  # of the client as a whole
    steps: list[str] = field(default_factory=list)
    failure_by_step: dict[str, str] = field(default_factory=dict)  # "" for one that passed

    @property
    def is_ok(self) -> bool:
        """Whether every step passed."""
        return not self.failure and all(self.outcome(step) == "ok" for step in self.steps)

    def outcome(self, step: str) -> str:
        """The cell of the table."""
        if step not in self.steps:
            return ""
        if step not in self.failure_by_step:
            return "not reached"
        return "FAILED" if self.failure_by_step[step] else "ok"

    def reasons(self) -> list[str]:
        """A line for everything that failed."""
        lines = [f"{step}: {why}" for step, why in self.failure_by_step.items() if why]
        return [f"{self.client.name}: {line}" for line in (*([self.failure] if self.failure else []), *lines)]


def main() -> int:
    """Run the clients that the command line names, by default all; return the exit status."""
    parser = argparse.ArgumentParser(description="Run real clients against octavo.")
    parser.add_argument("--model", type=Path, help="what to serve; by default the demo model")
    parser.add_argument("names", nargs="*", metavar="NAME", help="clients to run; by default all")
    arguments = parser.parse_args()
    chosen = [client for client in clients() if not arguments.names or client.name in arguments.names]
    unknown = set(arguments.names) - {client.name for client in chosen}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not in clients.toml")
    model = arguments.model or fetch()
    with ServerProcess(model, "--served-model-name", MODEL_NAME, "--api-key", API_KEY) as server:
        server.wait_until_ready()
        reports = [run(client, server) for client in chosen]
    (FOLDER / "server.log").write_text("".join(server.log))
    print_table(reports)
    return 0 if all(report.is_ok for report in reports) else 1


def run(client: Client, server: ServerProcess) -> Report:
    """Install the client and run its script. What it prints besides goes to .clients/NAME.log."""
    report = Report(client)
    print(f"{client.name} {client.version} ...", file=sys.stderr, flush=True)
    try:
        client.install()
    except InstallError as error:
        report.failure = f"cannot be installed: {error}"
        return report
    environ = os.environ | {"OCTAVO_URL": server.url, "OCTAVO_MODEL": MODEL_NAME, "OCTAVO_API_KEY": API_KEY}
    with (FOLDER / f"{client.name}.log").open("w+") as log:
        with subprocess.Popen(client.command, env=environ, stdout=log, stderr=log, start_new_session=True) as script:
            try:
                status = script.wait(SCRIPT_TIMEOUT_S)
                report.failure = f"exit status {status}" if status else ""
            except subprocess.TimeoutExpired:
                os.killpg(script.pid, signal.SIGKILL)  # with all that it has started
                report.failure = f"not done after {SCRIPT_TIMEOUT_S} s"
        log.seek(0)
        read_steps(log.read(), report)
    if server.process.poll() is not None:
        report.failure = f"the server has left with status {server.process.returncode}: see .clients/server.log"
    elif not report.steps and not report.failure:
        report.failure = "it took no steps"
    return report


def read_steps(text: str, report: Report) -> None:
    """Put the lines that scripts/steps.* write into the report."""
    for line in text.splitlines():
        if line.startswith('{"steps"'):
            report.steps = json.loads(line)["steps"]
        elif line.startswith('{"step"'):
            outcome = json.loads(line)
            report.failure_by_step[outcome["step"]] = outcome["error"] or ""


def print_table(reports: list[Report]) -> None:
    """One line a client, then why what failed did."""
    columns = list(dict.fromkeys(step for report in reports for step in report.steps))
    rows = [["client", "version", *columns]]
    for report in reports:
        rows.append([report.client.name, report.client.version, *map(report.outcome, columns)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for line in (" ".join(reason.split()) for report in reports for reason in report.reasons()):
        print(line if len(line) <= MAX_REASON_CHARS else f"{line[:MAX_REASON_CHARS]} ...")


if __name__ == "__main__":
    sys.exit(main())
