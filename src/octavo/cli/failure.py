"""How a command ends that cannot do what it was told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def exit_on(*errors: type[Exception]) -> Iterator[None]:
    """Exit with status 1, and one line that says why, where one of these is raised."""
    try:
        yield
    except errors as error:
        typer.echo(f"octavo: {error}", err=True)
        raise typer.Exit(1) from None
