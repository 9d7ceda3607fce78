"""Batches of rows to sample, and the call that samples them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from octavo.backends.ops import Backend, Float32Array, IdLists, SampledBatch, SamplingBatch
from tests.backends.op_calls import SMALL_KV

GREEDY = 0.0
LISTS = ("allowed", "banned", "biased", "seen")
VALUES_OF = {"bias": "biased", "output_counts": "seen"}


def sampling(num_rows: int, vocab_size: int, **columns: object) -> SamplingBatch:
    """Rows drawn at temperature 1 from the whole vocabulary, seed i for row i, unless `columns` say otherwise."""
    defaults: dict[str, object] = {
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "seed": np.arange(num_rows),
        "output_index": 0,
        "num_logprobs": -1,
    }
    types = {"top_k": np.int32, "num_logprobs": np.int32, "seed": np.uint64, "output_index": np.uint64}
    arrays: dict[str, Any] = {
        name: np.broadcast_to(np.asarray(columns.get(name, value), types.get(name, np.float32)), num_rows).copy()
        for name, value in defaults.items()
    }
    arrays |= {name: id_lists([()] * num_rows) for name in LISTS}
    return SamplingBatch(
        **arrays,
        masks=np.zeros((0, -(-vocab_size // 32)), np.uint32),
        mask_index=np.full(num_rows, -1, np.int32),
        bias=np.zeros(0, np.float32),
        output_counts=np.zeros(0, np.int32),
        vocab_size=vocab_size,
    )


def id_lists(ids_by_row: Sequence[Sequence[int]]) -> IdLists:
    start = np.cumsum([0, *map(len, ids_by_row)]).astype(np.int32)
    return IdLists(start, np.array([token_id for row in ids_by_row for token_id in row], np.int32))


def allow(batch: SamplingBatch, ids_by_row: Sequence[Sequence[int]]) -> SamplingBatch:
    return dataclasses.replace(batch, allowed=id_lists(ids_by_row))


def mask(batch: SamplingBatch, ids_by_row: Sequence[Sequence[int] | None]) -> SamplingBatch:
    """Rows that may choose from these ids alone; None: a row without a mask."""
    masked = [ids for ids in ids_by_row if ids is not None]
    bits = np.zeros((len(masked), batch.masks.shape[1] * 32), np.bool_)
    for row, ids in zip(bits, masked, strict=True):
        row[list(ids)] = True
    words = np.packbits(bits, axis=1, bitorder="little").view(np.uint32)
    is_masked = np.array([ids is not None for ids in ids_by_row])
    index = np.where(is_masked, np.cumsum(is_masked) - 1, -1).astype(np.int32)
    return dataclasses.replace(batch, masks=words, mask_index=index)


def ban(batch: SamplingBatch, ids_by_row: Sequence[Sequence[int]]) -> SamplingBatch:
    return dataclasses.replace(batch, banned=id_lists(ids_by_row))


def add_bias(batch: SamplingBatch, bias_by_row: Sequence[Mapping[int, float]]) -> SamplingBatch:
    values = [bias for row in bias_by_row for bias in row.values()]
    return dataclasses.replace(
        batch, biased=id_lists([list(row) for row in bias_by_row]), bias=np.array(values, np.float32)
    )


def count(batch: SamplingBatch, count_by_row: Sequence[Mapping[int, float]]) -> SamplingBatch:
    """For each seen id of a row, how often it is in the output."""
    values = [number for row in count_by_row for number in row.values()]
    return dataclasses.replace(
        batch, seen=id_lists([list(row) for row in count_by_row]), output_counts=np.array(values, np.int32)
    )


def one_row(batch: SamplingBatch, i: int) -> SamplingBatch:
    """Row i as a batch of its own."""
    columns: dict[str, Any] = {}
    for field in dataclasses.fields(batch):
        value = getattr(batch, field.name)
        if field.name in LISTS:
            columns[field.name] = id_lists([value.ids[value.of_row(i)].tolist()])
        elif field.name in VALUES_OF:
            columns[field.name] = value[getattr(batch, VALUES_OF[field.name]).of_row(i)]
        elif field.name == "masks":
            columns[field.name] = value
        elif field.name != "vocab_size":
            columns[field.name] = value[i : i + 1]
    return SamplingBatch(**columns, vocab_size=batch.vocab_size)


def repeated(batch: SamplingBatch, num_rows: int, **columns: np.ndarray) -> SamplingBatch:
    """The one row of `batch` so many times over, each with a seed of its own, but for these columns."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(batch):
        value = getattr(batch, field.name)
        if field.name in LISTS:
            start = np.arange(num_rows + 1, dtype=np.int32) * len(value.ids)
            values[field.name] = IdLists(start, np.tile(value.ids, num_rows))
        elif field.name == "masks":
            values[field.name] = value
        elif field.name != "vocab_size":
            values[field.name] = np.tile(value, num_rows)
    columns = {"seed": np.arange(num_rows), **columns}
    values |= {name: column.astype(values[name].dtype) for name, column in columns.items()}
    return SamplingBatch(**values, vocab_size=batch.vocab_size)


def sample(backend: Backend, logits: Float32Array, batch: SamplingBatch) -> SampledBatch:
    class NoModel:
        def forward(self, ops, batch, kv):
            raise AssertionError("sampling runs no model")

    return backend.prepare(NoModel(), backend.allocate_kv(SMALL_KV)).sample(np.asarray(logits, np.float32), batch)
