"""RequestTimes: when what happened to a request, on the clock of time.monotonic()."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.core.messages import EngineRequest


@dataclass(slots=True)
class ChoiceTimes:
    """One of its choices, which has got tokens."""

    first_s: float  # its first tokens
    last_s: float  # its last ones
    num_tokens: int


@dataclass(slots=True)
class RequestTimes:
    """A request from the door on."""

    request: EngineRequest
    traceparent: str = ""  # the client's own span, in W3C's form
    scheduled_s: float = 0.0  # its first step; 0: not yet
    choice_by_index: dict[int, ChoiceTimes] = field(default_factory=dict)
    finish_reason_by_index: dict[int, str] = field(default_factory=dict)

    @property
    def arrival_s(self) -> float:
        """When it came to the door."""
        return self.request.arrival_s
