"""FairQueue: a waiting queue whose next request is that of the tenant who was served least.

The virtual token counter of Sheng et al. 2024 ("Fairness in Serving Large Language Models"): every token served to a
tenant counts, an output token twice as much as one of a prompt. Whoever has been away comes back with no more credit
than the least served of those who wait. So nobody gets more by asking more often, and nothing stands idle.
"""

from __future__ import annotations

from octavo.core.request import Request
from octavo.core.waiting_queue import WaitingQueue

PROMPT_TOKEN_COST = 1
OUTPUT_TOKEN_COST = 2
MAX_TENANTS = 10_000  # remembered; of more, those who have been served least are forgotten, and come back as if new


class FairQueue:
    """Tenants take turns; among its own requests a tenant's turn falls to the smallest key."""

    def __init__(self) -> None:
        self._queue_by_tenant: dict[str, WaitingQueue] = {}  # of tenants who wait
        self._cost_by_tenant: dict[str, int] = {}  # of tenants who were ever served
        self._num_waiting = 0

    def __len__(self) -> int:
        return self._num_waiting

    def add(self, request: Request) -> None:
        """Enter a request behind those of its tenant."""
        tenant = request.tenant
        if tenant not in self._queue_by_tenant:
            if self._queue_by_tenant:
                least = min(self._cost(other) for other in self._queue_by_tenant)
                self._cost_by_tenant[tenant] = max(self._cost(tenant), least)
            self._queue_by_tenant[tenant] = WaitingQueue()
        self._queue_by_tenant[tenant].add(request)
        self._num_waiting += 1

    def peek(self) -> Request:
        """The request that is next. Raises ValueError when nobody waits."""
        heads = [(self._cost(tenant), queue.peek()) for tenant, queue in self._queue_by_tenant.items()]
        return min(heads, key=lambda head: (head[0], head[1].queue_key))[1]

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it stands."""
        queue = self._queue_by_tenant[request.tenant]
        queue.remove(request)
        if not queue:
            del self._queue_by_tenant[request.tenant]
        self._num_waiting -= 1

    def charge(self, request: Request, *, num_prompt_tokens: int = 0, num_output_tokens: int = 0) -> None:
        """Count tokens that the request was served against its tenant."""
        cost = PROMPT_TOKEN_COST * num_prompt_tokens + OUTPUT_TOKEN_COST * num_output_tokens
        self._cost_by_tenant[request.tenant] = self._cost(request.tenant) + cost
        if len(self._cost_by_tenant) > MAX_TENANTS:
            by_cost = sorted(self._cost_by_tenant, key=self._cost)
            for tenant in by_cost[: MAX_TENANTS // 2]:
                del self._cost_by_tenant[tenant]

    def _cost(self, tenant: str) -> int:
        return self._cost_by_tenant.get(tenant, 0)
