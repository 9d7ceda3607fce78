"""Request traces that others have published: when requests came, how long they were, what they shared."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

MOONCAKE_BLOCK_TOKENS = 512  # tokens for which each hash id stands


class TracedRequest(NamedTuple):
    """One request of a trace."""

    arrival_s: float  # after the first
    num_prompt_tokens: int
    num_output_tokens: int
    prefix_block_ids: tuple[int, ...] = ()  # equal ids at the beginning of two requests: equal prompts, so far


class _MooncakeLine(msgspec.Struct):
    timestamp: float  # milliseconds
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()


def read_trace(path: Path, max_num_requests: int) -> list[TracedRequest]:
    """The first requests of an Azure CSV file or of a Mooncake JSONL file. Raises ValueError for any other."""
    try:
        with path.open(newline="") as file:
            lines = _azure(file) if path.suffix == ".csv" else _mooncake(file)
            requests = [request for _, request in zip(range(max_num_requests), lines, strict=False)]
    except (KeyError, TypeError, ValueError) as error:  # msgspec's errors are ValueErrors
        raise ValueError(f"{path} is no trace in Azure's CSV or Mooncake's JSONL form: {error!r}") from error
    if not requests:
        raise ValueError(f"{path} holds no request")
    first_s = requests[0].arrival_s
    return [request._replace(arrival_s=request.arrival_s - first_s) for request in requests]


def _azure(lines: Iterator[str]) -> Iterator[TracedRequest]:
    for row in csv.DictReader(lines):
        arrival = datetime.fromisoformat(row["TIMESTAMP"][:26])  # microseconds; the file has a seventh digit
        yield TracedRequest(arrival.timestamp(), int(row["ContextTokens"]), int(row["GeneratedTokens"]))


def _mooncake(lines: Iterator[str]) -> Iterator[TracedRequest]:
    decoder = msgspec.json.Decoder(_MooncakeLine)
    for line in lines:
        entry = decoder.decode(line)
        yield TracedRequest(entry.timestamp / 1000, entry.input_length, entry.output_length, entry.hash_ids)
