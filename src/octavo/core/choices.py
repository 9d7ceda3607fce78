"""Choices: every request that has not ended, and who waits for whom among the choices of one prompt."""

from __future__ import annotations

from collections.abc import Iterator

from octavo.core.messages import EngineRequest
from octavo.core.request import QueueKey, Request, RequestStatus


class Choices:
    """The choices of each EngineRequest that lives, by its id.

    The first choice computes the prompt; the others are forked from it when that is done, or let loose when it ends.
    """

    def __init__(self) -> None:
        self._choices_by_id: dict[str, dict[int, Request]] = {}

    def __bool__(self) -> bool:
        return bool(self._choices_by_id)

    def __iter__(self) -> Iterator[Request]:
        for choices in self._choices_by_id.values():
            yield from choices.values()

    def enter(self, source: EngineRequest, key: tuple[int, int], max_total_tokens: int) -> Request:
        """Make the choices of a request; return the first of them, which is the one to queue."""
        if source.request_id in self._choices_by_id:
            raise ValueError(f"request_id {source.request_id!r} is in use; ids must be unique while a request lives")
        choices: dict[int, Request] = {}
        for index in range(source.sampling_params.n):
            queue_key: QueueKey = (*key, index)
            choices[index] = Request(source, index, queue_key, max_total_tokens)
        self._choices_by_id[source.request_id] = choices
        leader, *siblings = choices.values()
        for sibling in siblings:
            sibling.status = RequestStatus.FORKING
            sibling.fork_source = leader
        leader.siblings = siblings
        return leader

    def of(self, request_id: str) -> list[Request]:
        """The choices of a request that have not ended; none of an unknown one."""
        return list(self._choices_by_id.get(request_id, {}).values())

    def leave(self, request: Request) -> bool:
        """Forget a choice that has ended; returns whether it was the last of its request."""
        choices = self._choices_by_id[request.request_id]
        del choices[request.index]
        if not choices:
            del self._choices_by_id[request.request_id]
        return not choices

    def take_siblings(self, request: Request) -> list[Request]:
        """The choices that waited for this one's prompt, once: they may be queued now."""
        siblings, request.siblings = request.siblings, []
        released = [sibling for sibling in siblings if sibling.status is RequestStatus.FORKING]
        for sibling in released:
            sibling.status = RequestStatus.WAITING
        return released
