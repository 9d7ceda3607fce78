"""RequestTerms: when a request is served and with whom it shares. None of it changes the answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestTerms:
    """The terms of one request; the defaults are those of a caller who says nothing."""

    priority: int = 0  # smaller runs first, under the priority policy
    tenant: str = ""  # whose request it is: under the fair policy, tenants take turns
    cache_salt: str = ""  # requests share cached prefixes only with requests of the same salt
    queue_timeout_s: float | None = None  # after which it ends unless it has begun; None: it waits
    timeout_s: float | None = None  # after which it ends in any case
    explains_cache_miss: bool = False  # whether to tell why the prefix cache had no more of the prompt
    traceparent: str = ""  # the client's span, in W3C's form: the parent of the request's own

    def __post_init__(self) -> None:
        for name in ("queue_timeout_s", "timeout_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")

    def queue_deadline_s(self, arrival_s: float) -> float | None:
        """When its time in the queue is over."""
        return None if self.queue_timeout_s is None else arrival_s + self.queue_timeout_s

    def deadline_s(self, arrival_s: float) -> float | None:
        """When all its time is over."""
        return None if self.timeout_s is None else arrival_s + self.timeout_s


DEFAULT_TERMS = RequestTerms()
