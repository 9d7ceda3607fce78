"""How log lines look: for people, or one JSON object a line for machines."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

TEXT = "%(asctime)s %(levelname)s %(message)s"
FORMATS = ("text", "json")
# What a logging call may add with `extra=`; everything else a record has is about Python.
EXTRA_FIELDS = ("method", "path", "status", "elapsed_ms", "request_id")


class JsonFormatter(logging.Formatter):
    """One object a line: time in seconds since 1970, level, logger, message, and what the call added."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in EXTRA_FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure_logging(log_format: str) -> None:
    """Send the log to stderr in one of FORMATS."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
