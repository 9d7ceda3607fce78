from __future__ import annotations

import pytest

from octavo.bench.draft_counts import DraftCounts
from octavo.bench.http_client import HttpError, Server

METRICS = b"""# HELP vllm:spec_decode_num_drafts_total Drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 5.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 20.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1.5e+01
vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="m",position="0"} 4.0
vllm:generation_tokens_total{model_name="m"} 99.0
"""

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("text", [METRICS, METRICS.replace(b"vllm:", b"octavo:")])
async def test_counters_are_found_behind_any_prefix(monkeypatch, text):
    async def get(self: Server, path: str) -> bytes:
        assert path == "/metrics"
        return text

    monkeypatch.setattr(Server, "get", get)
    counts = await DraftCounts.read(Server.parse("http://127.0.0.1:1"))
    assert counts == DraftCounts(5, 20, 15)
    assert counts.since(DraftCounts(1, 4, 2)) == DraftCounts(4, 16, 13)
    assert counts.since(counts) is None
    assert counts.render() == "drafts                20 verified, 15 accepted (75%), 4.00 tokens a run"


async def test_a_server_without_metrics_has_no_drafts(monkeypatch):
    async def get(self: Server, path: str) -> bytes:
        raise HttpError("status 404")

    monkeypatch.setattr(Server, "get", get)
    assert await DraftCounts.read(Server.parse("http://127.0.0.1:1")) == DraftCounts()
