from __future__ import annotations

from hypothesis import settings

# A shared machine is slow at times, and a failure that cannot be seen again helps nobody.
SHORT = settings(deadline=None, derandomize=True, max_examples=40, stateful_step_count=30)
