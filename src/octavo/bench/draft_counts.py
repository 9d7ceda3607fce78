"""DraftCounts: what speculative decoding brought, by the server's own metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass

from octavo.bench.http_client import HttpError, Server

# vLLM's names, behind whatever prefix.
_COUNTER = re.compile(rb"^\w+:spec_decode_num_(drafts|draft_tokens|accepted_tokens)_total(?:\{[^\n]*\})? (\S+)$", re.M)


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Counted since the server's start, or between two moments."""

    num_drafts: int = 0  # runs of drafts
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0

    @classmethod
    async def read(cls, server: Server) -> DraftCounts:
        """What the server has counted so far; zeros for one that counts no drafts or shows no metrics."""
        try:
            text = await server.get("/metrics")
        except (HttpError, OSError):
            return cls()
        return cls(**{f"num_{name.decode()}": int(float(value)) for name, value in _COUNTER.findall(text)})

    def since(self, earlier: DraftCounts) -> DraftCounts | None:
        """What was counted since then; None if nothing was."""
        if self.num_drafts <= earlier.num_drafts:
            return None
        return DraftCounts(
            self.num_drafts - earlier.num_drafts,
            self.num_draft_tokens - earlier.num_draft_tokens,
            self.num_accepted_tokens - earlier.num_accepted_tokens,
        )

    def render(self) -> str:
        """In one line."""
        share = self.num_accepted_tokens / max(1, self.num_draft_tokens)
        mean_length = 1 + self.num_accepted_tokens / max(1, self.num_drafts)
        return (
            f"drafts                {self.num_draft_tokens} verified, {self.num_accepted_tokens} accepted "
            f"({share:.0%}), {mean_length:.2f} tokens a run"
        )
