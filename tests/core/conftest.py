from __future__ import annotations

from hypothesis import settings

# Shared machines are slow at times, and a failure that cannot be seen again helps nobody.
settings.register_profile("core", deadline=None, derandomize=True)
settings.load_profile("core")
