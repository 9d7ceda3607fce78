"""The promise, on the demo model: fewer requests and ways than on the tiny one, real weights and real text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM
from octavo.weights.checkpoint import open_checkpoint
from tests.e2e.scenarios import (
    KV_CACHE_DTYPES,
    PRECISIONS,
    SCENARIOS,
    as_choice,
    serve_alone,
    serve_together,
    with_choices,
)

pytestmark = [pytest.mark.equality, pytest.mark.model]

SOME = tuple(scenario for scenario in SCENARIOS if scenario.name in ("greedy", "seeded", "stop-string", "long"))


def demo_llm(path: Path, **options: Any) -> LLM:
    return LLM(str(path), **({"max_model_len": 97, "max_num_seqs": 8} | options))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_demo_model_keeps_the_promise(demo_model_path, precision):
    options = PRECISIONS[precision] | {"kv_cache_dtype": KV_CACHE_DTYPES[precision]}
    with demo_llm(demo_model_path, **options, max_num_seqs=1, enable_prefix_caching=False) as llm:
        answers = serve_alone(llm, SOME)
        seeded = SOME[1]
        choices = [
            replace(serve_alone(llm, [as_choice(seeded, index)])[f"{seeded.name} + {index}"][0], index=index)
            for index in range(2)
        ]
    with demo_llm(demo_model_path, **options) as llm:
        assert serve_together(llm, SOME) == answers
        assert serve_together(llm, SOME[::-1]) == answers  # from the prefix cache
        assert serve_together(llm, [with_choices(seeded, 2)]) == {f"{seeded.name} x 2": choices}
        assert llm.engine.core.scheduler.totals.num_prefix_hits > 0
    block_bytes = open_checkpoint(demo_model_path).config.block_bytes(options["kv_cache_dtype"])
    small = {"max_num_batched_tokens": 7, "kv_cache_memory_bytes": 6 * block_bytes}
    with demo_llm(demo_model_path, **options, **small) as llm:
        assert serve_together(llm, SOME) == answers
        assert llm.engine.core.scheduler.totals.num_preemptions > 0
