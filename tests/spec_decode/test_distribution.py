"""Speculation changes no distribution: sampled tokens against the exact one, whoever guesses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from octavo.backends.native.backend import NativeStep
from octavo.backends.native.isa import load_extension
from octavo.backends.ops import StepBatch
from octavo.core.messages import SampledRow
from octavo.core.sampling_params import SamplingParams
from octavo.spec_decode.draft_budget import DraftBudget, Outlook
from octavo.structured.compiler import GrammarCompiler
from octavo.worker.draft_model import DraftModel
from octavo.worker.drafter import Drafter
from octavo.worker.model_runner import ModelRunner
from octavo.worker.request_table import RequestTable
from tests.worker.steps import RecordingKV, entry, new_row, step

VOCAB_SIZE, NUM_ROWS, NUM_SAMPLES, NUM_DRAFTS = 8, 1000, 20_000, 2
PARAMS = SamplingParams(max_tokens=8, temperature=0.7, top_k=5, top_p=0.9)
CHI_SQUARE_AT_0_001 = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52, 6: 22.46, 7: 24.32}  # by degrees of freedom
TARGET = np.random.default_rng(2).normal(0, 1.5, (VOCAB_SIZE, VOCAB_SIZE)).astype(np.float32)  # logits after a token
DRAFTS = {
    "identical": TARGET,
    "good": TARGET + np.random.default_rng(3).normal(0, 0.5, TARGET.shape).astype(np.float32),
    "useless": -TARGET,
}


class AsMany(DraftBudget):
    """Lets every row have all it has room for."""

    def allot(self, outlooks: Sequence[Outlook]) -> dict[int, int]:
        return {outlook.row: outlook.max_drafts for outlook in outlooks if outlook.max_drafts}


@dataclass
class Markov:
    """A language of a few words in which only the last one matters, spoken by a runner whose guesses another makes."""

    draft: np.ndarray

    def __post_init__(self) -> None:
        extension = load_extension()
        self.pool = extension.ThreadPool(1)
        self.table = RequestTable(GrammarCompiler(), max_num_seqs=NUM_ROWS, max_model_len=16)
        target, draft = (NativeStep(extension, self.pool, speaker(logits)) for logits in (TARGET, self.draft))
        kv = RecordingKV([])
        drafter = DraftModel(draft, kv, self.table, num_blocks=NUM_ROWS, vocab_size=VOCAB_SIZE, max_drafts=NUM_DRAFTS)
        self.drafter = Drafter(drafter, AsMany(NUM_DRAFTS, drafter.pass_s), self.table, max_drafts=NUM_DRAFTS)
        self.runner = ModelRunner(target, kv, self.table, vocab_size=VOCAB_SIZE, drafter=self.drafter)

    def speak(self, first_seed: int) -> list[list[int]]:
        """Three words of each row, or some more, after word 0."""
        rows = range(NUM_ROWS)
        spoken: list[list[int]] = [[] for _ in rows]
        entries = [entry(row, 0, 1, blocks=(row,)) for row in rows]
        new_rows = tuple(new_row(row, (0,), params=PARAMS, seed=first_seed + row) for row in rows)
        scheduled = step(*entries, freed_rows=tuple(rows), new_rows=new_rows)
        while scheduled.scheduled:
            sampled: tuple[SampledRow, ...] = self.runner.run(scheduled).sampled
            for row in sampled:
                spoken[row.row] += row.token_ids
            scheduled = step(
                *(
                    entry(row.row, len(spoken[row.row]), 1 + len(row.draft_token_ids), drafts=row.draft_token_ids)
                    for row in sampled
                    if len(spoken[row.row]) < 3
                )
            )
        return spoken


def speaker(logits_by_word: np.ndarray) -> Callable[[StepBatch], np.ndarray]:
    """A model's forward pass: a look at the last word."""
    return lambda batch: logits_by_word[batch.input_ids[batch.logits_rows]]


def exact(row: np.ndarray) -> np.ndarray:
    """What the filters leave of a row of logits, by their definition."""
    p = np.exp(row.astype(np.float64) / PARAMS.temperature)
    order = np.argsort(-p)[: PARAMS.top_k]
    shares = p[order] / p[order].sum()
    kept = order[: 1 + np.argmax(np.cumsum(shares) >= PARAMS.top_p)]
    out = np.zeros(VOCAB_SIZE)
    out[kept] = p[kept] / p[kept].sum()
    return out


def chi_square(counts: Counter[int], expected: np.ndarray) -> tuple[float, int]:
    """The statistic, and its degrees of freedom. What cannot come has not come."""
    possible = np.flatnonzero(expected)
    assert set(counts) <= set(possible.tolist())
    total = sum(counts.values())
    statistic = sum((counts[i] - total * expected[i]) ** 2 / (total * expected[i]) for i in possible.tolist())
    return float(statistic), len(possible) - 1


@pytest.mark.parametrize("name", DRAFTS)
def test_first_and_third_tokens_are_those_of_the_target(name):
    language = Markov(DRAFTS[name])
    spoken = [words for first in range(0, NUM_SAMPLES, NUM_ROWS) for words in language.speak(first)]
    chain = np.array([exact(row) for row in TARGET])
    for place, expected in ((0, chain[0]), (2, chain[0] @ chain @ chain)):
        statistic, freedom = chi_square(Counter(words[place] for words in spoken), expected)
        assert statistic < CHI_SQUARE_AT_0_001[freedom], (place, statistic, freedom)
