"""What a log says, line by line."""

from __future__ import annotations

import json
import logging

import pytest

from octavo.core.messages import StepStats
from octavo.engine import stats_log
from octavo.engine.log_format import JsonFormatter
from octavo.engine.stats_log import StatsLog
from tests.manual_clock import ManualClock


def line_of(record: logging.LogRecord) -> dict:
    text = JsonFormatter().format(record)
    assert "\n" not in text
    return json.loads(text)


def test_a_json_line_holds_what_the_call_added(caplog):
    with caplog.at_level(logging.INFO):
        logging.getLogger("octavo.access").info("GET %s", "/é\n", extra={"status": 200, "request_id": "r"})
    line = line_of(caplog.records[0])
    assert line.pop("time") > 1_600_000_000
    assert line == {
        "level": "info",
        "logger": "octavo.access",
        "message": "GET /é\n",
        "status": 200,
        "request_id": "r",
    }


def test_a_json_line_holds_a_whole_traceback(caplog):
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("octavo.engine").exception("it failed")
    assert line_of(caplog.records[0])["exception"].endswith("ValueError: two\nlines")


@pytest.mark.anyio
async def test_an_exchange_is_one_line(client, caplog):
    with caplog.at_level(logging.INFO, "octavo.access"):
        await client.post("/v1/completions", json={"prompt": "Hi"}, headers={"x-request-id": "mine"})
        await client.get("/health")
    [record] = caplog.records
    line = line_of(record)
    assert (line["method"], line["path"], line["status"], line["request_id"]) == (
        "POST",
        "/v1/completions",
        200,
        "mine",
    )


def test_drafts_have_a_line_of_their_own_where_there_are_any(monkeypatch, caplog):
    clock = ManualClock(7.0)
    monkeypatch.setattr(stats_log, "time", clock)
    log = StatsLog()
    with caplog.at_level(logging.INFO):
        for step in range(2):
            drafts = {"num_drafts_total": 40 * step, "num_draft_tokens_total": 120 * step}
            accepted = (40 * step, 20 * step, 0)
            log.take(
                StepStats(step, num_accepted_tokens_per_pos_total=accepted, no_drafts_reason="why", **drafts),
                num_output_tokens=1,
            )
            clock.now_s += 11
    assert caplog.records[-1].getMessage() == "drafts 120, accepted 60 (50%), 2.50 tokens a run; none now: why"


def test_steps_are_summed_up_now_and_then(monkeypatch, caplog):
    clock = ManualClock(7.0)
    monkeypatch.setattr(stats_log, "time", clock)
    log = StatsLog()
    with caplog.at_level(logging.INFO):
        clock.now_s += 3_600  # nobody came: no line, and not part of the next one's time
        for step in range(81):
            log.take(StepStats(step, 3, 1, 20, 25, 100, 0, 10 * step, 5 * step), num_output_tokens=2)
            clock.now_s += 0.125
    assert [record.getMessage() for record in caplog.records] == [
        "running 3, waiting 1; 8 steps/s, 162 tokens/s computed, 16 generated; "
        "KV cache 75% in use, prefix hits 50%, preemptions 0"
    ]
