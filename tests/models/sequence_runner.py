"""Runs a model over token ids through a backend: the smallest thing that fills a StepBatch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.backends.ops import Backend, KVShape, StepBatch
from octavo.config import BLOCK_SIZE, ModelConfig
from octavo.models.registry import build_model
from octavo.weights.source import WeightSource

MAX_POSITIONS = 128


@dataclass(frozen=True)
class Chunk:
    """Consecutive tokens of a sequence whose earlier tokens' KV is in the cache."""

    token_ids: list[int]
    start: int  # position of the first
    block_ids: list[int]  # of the whole sequence

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)

    @property
    def positions(self) -> np.ndarray:
        return np.arange(self.start, self.end)

    @property
    def slots(self) -> np.ndarray:
        return np.array(self.block_ids)[self.positions // BLOCK_SIZE] * BLOCK_SIZE + self.positions % BLOCK_SIZE


class SequenceRunner:
    """A model, a backend and a KV cache that lasts as long as the runner."""

    def __init__(self, config: ModelConfig, weights: WeightSource, backend: Backend, num_blocks: int = 32) -> None:
        model = build_model(config, weights, backend, MAX_POSITIONS)
        shape = KVShape(config.num_layers, num_blocks, BLOCK_SIZE, config.num_kv_heads, config.head_dim)
        self.step = backend.prepare(model, backend.allocate_kv(shape))

    def logits(self, *chunks: Chunk) -> list[np.ndarray]:
        """Run one step over all chunks; the logits of every token of each, [tokens, V]."""
        batch = step_batch(chunks)
        logits = np.array(self.step.run(batch))
        return np.split(logits, batch.query_start_loc[1:-1])

    def logits_in_chunks(self, token_ids: list[int], sizes: list[int], block_ids: list[int]) -> np.ndarray:
        """The logits of one sequence, computed `sizes` tokens at a time, [len(token_ids), V]."""
        parts, start = [], 0
        for size in sizes:
            parts += self.logits(Chunk(token_ids[start : start + size], start, block_ids))
            start += size
        return np.concatenate(parts)


def step_batch(chunks: tuple[Chunk, ...]) -> StepBatch:
    """The chunks as one step that asks for every token's logits."""
    query_start_loc = np.cumsum([0, *(len(chunk.token_ids) for chunk in chunks)])
    unused = 2**30  # nobody may read a block of this number
    block_table = np.full((len(chunks), max(len(chunk.block_ids) for chunk in chunks)), unused)
    for row, chunk in enumerate(chunks):
        block_table[row, : len(chunk.block_ids)] = chunk.block_ids
    return StepBatch(
        input_ids=np.concatenate([chunk.token_ids for chunk in chunks]).astype(np.int32),
        positions=np.concatenate([chunk.positions for chunk in chunks]).astype(np.int32),
        slot_mapping=np.concatenate([chunk.slots for chunk in chunks]).astype(np.int32),
        query_start_loc=query_start_loc.astype(np.int32),
        seq_lens=np.array([chunk.end for chunk in chunks], np.int32),
        block_table=block_table.astype(np.int32),
        logits_rows=np.arange(query_start_loc[-1], dtype=np.int32),
    )
