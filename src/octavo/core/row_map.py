"""RowMap: which running request has which row of the worker's tables."""

from __future__ import annotations

from octavo.core.request import Request


class RowMap:
    """Gives each running request a row for as long as it runs, and remembers what the worker must be told."""

    def __init__(self, num_rows: int) -> None:
        self._free_rows = list(range(num_rows - 1, -1, -1))
        self._request_by_row: dict[int, Request] = {}
        self._freed_rows: list[int] = []

    def __getitem__(self, row: int) -> Request:
        return self._request_by_row[row]

    @property
    def num_free(self) -> int:
        """Rows nobody has."""
        return len(self._free_rows)

    def take(self, request: Request) -> None:
        """Give the request a row. Raises IndexError when none is free."""
        request.row = self._free_rows.pop()
        self._request_by_row[request.row] = request

    def give_back(self, request: Request) -> None:
        """Take the request's row away."""
        del self._request_by_row[request.row]
        self._free_rows.append(request.row)
        self._freed_rows.append(request.row)
        request.row = -1

    def take_freed(self) -> tuple[int, ...]:
        """The rows given back since the last call. The worker is told once."""
        freed_rows = tuple(self._freed_rows)
        self._freed_rows.clear()
        return freed_rows
