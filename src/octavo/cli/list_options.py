"""Options that take several values: `--served-model-name a b c`, as well as one at a time."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from typer.core import TyperCommand


class ListOptionsCommand(TyperCommand):
    """A command whose list options may be followed by all their values at once, if its argument comes first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line."""
        list_options = {name for param in self.params if getattr(param, "multiple", False) for name in param.opts}
        return super().parse_args(ctx, spread(args, list_options))


def spread(args: Sequence[str], list_options: Set[str]) -> list[str]:
    """`MODEL --name a b` in the only form that click knows: `MODEL --name a --name b`."""
    if not args or args[0].startswith("-"):
        return list(args)  # the argument is yet to come, and might be taken for a value
    result: list[str] = []
    option = ""
    for arg in args:
        if arg.startswith("-"):
            option = arg if arg in list_options else ""
        elif option and result[-1] != option:
            result.append(option)
        result.append(arg)
    return result
