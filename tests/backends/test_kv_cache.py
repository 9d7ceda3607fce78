"""The KV cache: what write_kv leaves alone, what copy_blocks copies."""

from __future__ import annotations

import dataclasses

import numpy as np

from octavo.backends.ops import KVShape
from tests.backends.op_calls import call_with_kv, normal
from tests.backends.paged_sequences import (
    Chunk,
    Heads,
    attend,
    fill_with_nan,
    make_sequences,
    step_batch,
    without_slots,
)

HEADS = Heads(num_heads=4, num_kv_heads=2, head_dim=24)


def read(backend, kv, chunk, num_layers=1):
    """What attention makes of the chunk's last query in each layer, without writing anything."""
    batch = step_batch([Chunk(chunk.sequence, chunk.end - 1, chunk.end)], 16)
    q = chunk.sequence.q[chunk.end - 1 : chunk.end]

    def attend_in_layer(i):
        return call_with_kv(backend, kv, batch, lambda ops, batch, kv: ops.attend(q, kv.layers[i], batch, HEADS.params))

    return [attend_in_layer(i) for i in range(num_layers)]


def test_one_token_alone_gives_its_value_exactly(backend):
    (sequence,) = make_sequences(np.random.default_rng(0), HEADS, [1], 3)
    (out,) = attend(backend, backend.allocate_kv(HEADS.kv_shape(3)), [Chunk(sequence, 0, 1)], HEADS.params)
    values = sequence.v.reshape(1, 2, 24)
    assert np.array_equal(out.reshape(1, 4, 24), np.repeat(values, 2, axis=1))


def test_padding_is_not_written(backend):
    (sequence,) = make_sequences(np.random.default_rng(1), HEADS, [40], 5)
    kv = backend.allocate_kv(HEADS.kv_shape(5))
    chunk = Chunk(sequence, 0, 40)
    attend(backend, kv, [chunk], HEADS.params)
    (before,) = read(backend, kv, chunk)
    batch = step_batch([chunk], 16)
    padded = dataclasses.replace(batch, slot_mapping=without_slots(batch))
    nan = np.full_like(sequence.k, np.nan)

    def write(ops, batch, kv):
        ops.write_kv(nan, nan, kv.layers[0], batch.slot_mapping)
        return np.zeros(0, np.float32)

    call_with_kv(backend, kv, padded, write)
    (after,) = read(backend, kv, chunk)
    assert np.array_equal(before, after)


def test_blocks_are_copied_in_all_layers_pair_after_pair(backend):
    rng = np.random.default_rng(2)
    shape = KVShape(num_layers=3, num_blocks=6, block_size=16, num_kv_heads=2, head_dim=24)
    kv = backend.allocate_kv(shape)
    fill_with_nan(backend, kv, shape)
    (sequence,) = make_sequences(rng, HEADS, [32], 6)
    sequence.block_ids[:] = [0, 1]
    chunk = Chunk(sequence, 0, 32)
    written = [(normal(rng, 32, 48), normal(rng, 32, 48)) for _ in range(3)]

    def write(ops, batch, kv):
        for layer, (k, v) in zip(kv.layers, written, strict=True):
            ops.write_kv(k, v, layer, batch.slot_mapping)
        return np.zeros(0, np.float32)

    call_with_kv(backend, kv, step_batch([chunk], 16), write)
    expected = read(backend, kv, chunk, num_layers=3)
    kv.copy_blocks([(0, 4), (1, 0), (4, 5), (0, 3)])  # block 5 gets what 0 held at first, block 3 what 1 did
    sequence.block_ids[:] = [5, 3]
    copied = read(backend, kv, chunk, num_layers=3)
    for one, two in zip(expected, copied, strict=True):
        assert np.array_equal(one, two)
    assert not np.array_equal(expected[0], expected[1])


def test_no_pairs_copy_nothing(backend):
    backend.allocate_kv(HEADS.kv_shape(2)).copy_blocks([])
