"""Environment: a folder of a client's own, into which its pinned packages are installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
FOLDER = HERE.parent.parent / ".clients"
INSTALL_TIMEOUT_S = 600
MAX_REASON_CHARS = 400  # of what the installer said last


class InstallError(Exception):
    """The environment cannot be made here; says why."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """An entry of clients.toml."""

    name: str
    script: str
    python: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where its environment is."""
        return FOLDER / self.name

    @property
    def version(self) -> str:
        """The release of the client itself."""
        package = (self.python or self.npm)[0]
        return package.rpartition("==" if self.python else "@")[2]

    @property
    def command(self) -> list[str]:
        """What runs its script."""
        if self.script.endswith(".mjs"):
            return [str(self.folder / "node_modules/.bin/node"), str(self.folder / self.script)]
        python = self.folder / "bin/python" if self.python else Path(sys.executable)
        return [str(python), str(SCRIPTS / self.script)]

    def install(self) -> None:
        """Make the environment, unless it has these packages already. Raises InstallError."""
        packages = "\n".join((*self.python, *self.npm))
        stamp = self.folder / "installed.txt"
        if not stamp.exists() or stamp.read_text() != packages:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            if self.python:
                self._install_python()
            if self.npm:
                self._install_npm()
            stamp.write_text(packages)
        if self.script.endswith(".mjs"):  # Node looks for packages beside the script
            for path in SCRIPTS.glob("*.mjs"):
                shutil.copy(path, self.folder)

    def _install_python(self) -> None:
        _run(sys.executable, "-m", "venv", str(self.folder))
        pip = [str(self.folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run(*pip, "--constraint", str(HERE / "constraints.txt"), *self.python)

    def _install_npm(self) -> None:
        (self.folder / "package.json").write_text(json.dumps({"private": True}))
        _run("npm", "install", "--prefix", str(self.folder), "--no-audit", "--no-fund", "--loglevel=error", *self.npm)


def clients() -> list[Client]:
    """Every entry of clients.toml."""
    entries = tomllib.loads((HERE / "clients.toml").read_text())
    return [Client(name=name, **entry) for name, entry in entries.items()]


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, timeout=INSTALL_TIMEOUT_S, capture_output=True, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(str(error)) from None
    if done.returncode:
        raise InstallError(done.stderr.strip()[-MAX_REASON_CHARS:] or f"exit status {done.returncode}")
