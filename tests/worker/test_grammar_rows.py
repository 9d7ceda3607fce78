"""Rows that have a grammar, among rows that have none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from octavo.core.sampling_params import SamplingParams, StructuredOutputsParams
from octavo.structured.compiler import GrammarCompiler
from octavo.worker.request_table import RequestTable
from tests.structured.byte_vocabulary import EOS_IDS, NUM_TOKENS, VOCABULARY, ids_of
from tests.worker.steps import entry, new_row, sampling_batch, step

PROMPT = (7, 8, 9)
REGEX = StructuredOutputsParams(regex="ab?")


@pytest.fixture(scope="module")
def grammars() -> Iterator[GrammarCompiler]:
    grammars = GrammarCompiler()
    grammars.learn(VOCABULARY)
    grammars.compile(REGEX)
    yield grammars
    grammars.close()


@pytest.fixture
def table(grammars) -> RequestTable:
    return RequestTable(grammars, max_num_seqs=4, max_model_len=64)


def enter(table: RequestTable, row: int, output: str = "", **params) -> None:
    row_of_request = new_row(
        row,
        (*PROMPT, *ids_of(output)),
        num_prompt_tokens=len(PROMPT),
        params=SamplingParams(**params),
        stop_token_ids=EOS_IDS,
    )
    table.apply(step(new_rows=(row_of_request,)))


def masks(table: RequestTable, *rows: int) -> list[list[int] | None]:
    """What each row may choose; None: it has no mask."""
    batch = sampling_batch(np.array(rows, np.int32), table, NUM_TOKENS)
    bits = np.unpackbits(batch.masks.view(np.uint8), axis=1, bitorder="little")
    return [None if index < 0 else np.flatnonzero(bits[index]).tolist() for index in batch.mask_index]


def banned(table: RequestTable, row: int) -> list[int]:
    return sampling_batch(np.array([row], np.int32), table, NUM_TOKENS).banned.ids.tolist()


def append(table: RequestTable, row: int, token_ids: list[int]) -> None:
    for token_id in token_ids:
        table.append(np.array([row], np.int32), np.array([token_id], np.int32))


def test_masks_belong_to_the_rows_that_have_a_grammar(table):
    enter(table, 0)
    enter(table, 2, structured_outputs=REGEX)
    enter(table, 1, repetition_penalty=2.0)
    enter(table, 3, structured_outputs=REGEX, max_tokens=3)
    append(table, 3, ids_of("a"))
    after_a = sorted([*EOS_IDS, *ids_of("b")])
    assert masks(table, 0, 3, 1, 2) == [None, after_a, None, ids_of("a")]
    assert masks(table, 2, 3) == [ids_of("a"), after_a]
    assert masks(table, 1) == [None]


def test_a_row_that_comes_back_stands_where_it_stood(table):
    enter(table, 0, structured_outputs=REGEX)
    for output in ("", "a", "ab"):
        enter(table, 1, output, structured_outputs=REGEX)
        append(table, 0, ids_of(output[-1:]))
        assert masks(table, 1) == masks(table, 0)


def test_a_freed_row_has_no_grammar(table):
    enter(table, 0, structured_outputs=REGEX)
    table.apply(step(freed_rows=(0,), new_rows=(new_row(0, PROMPT),)))
    assert masks(table, 0) == [None]


def test_ends_are_banned_before_min_tokens_unless_nothing_else_may_follow(table):
    enter(table, 0, "a", structured_outputs=REGEX, min_tokens=10)
    assert banned(table, 0) == list(EOS_IDS)
    append(table, 0, ids_of("b"))
    assert banned(table, 0) == []
    assert masks(table, 0) == [list(EOS_IDS)]


def test_a_token_that_may_not_follow_leaves_nothing_to_choose_and_says_why(table):
    enter(table, 0, structured_outputs=REGEX)
    append(table, 0, ids_of("x"))
    assert masks(table, 0) == [[]]
    assert "x" in (table.rules_by_row[0].error or "")


def test_a_grammar_looks_ahead_over_drafts(table):
    """Also over wrong ones and over an end, after which the row stands where it stood."""
    enter(table, 0, structured_outputs=REGEX)
    for drafts in (ids_of("ab"), [*ids_of("a"), EOS_IDS[0], EOS_IDS[0]], ids_of("xb")):
        table.apply(step(entry(0, 0, len(PROMPT) + len(drafts), blocks=(1,), drafts=drafts)))
        follow = [allowed_after(table, num) for num in range(len(drafts) + 1)]
        assert follow[0] == ids_of("a")
        expected = {"a": sorted([*EOS_IDS, *ids_of("b")]), "x": []}[chr(drafts[0] - ids_of("a")[0] + ord("a"))]
        assert follow[1] == expected
    append(table, 0, ids_of("ab"))
    assert masks(table, 0) == [list(EOS_IDS)]
    assert table.rules_by_row[0].error is None


def allowed_after(table: RequestTable, num_drafts: int) -> list[int]:
    batch = sampling_batch(np.array([0], np.int32), table, NUM_TOKENS, num_drafts)
    return np.flatnonzero(np.unpackbits(batch.masks[0].view(np.uint8), bitorder="little")).tolist()
