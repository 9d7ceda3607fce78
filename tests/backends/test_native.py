"""What only the native backend has: threads, checked arguments, memory of its own."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from octavo.backends.native.backend import NativeBackend
from octavo.backends.ops import KVShape
from tests.backends.conftest import make_backend
from tests.backends.op_calls import call, normal
from tests.backends.paged_sequences import Chunk, Heads, attend, make_sequences
from tests.backends.stored_tensors import stored


@pytest.fixture
def native(native_name):
    return make_backend(native_name)


@pytest.mark.parametrize("num_threads", [0, -3])
def test_the_number_of_threads_must_be_positive(num_threads):
    with pytest.raises(ValueError, match=f"num_threads is {num_threads}"):
        NativeBackend(num_threads)


def test_an_idle_pool_uses_no_cpu():
    backend = NativeBackend(4, is_recorded=False)
    call(backend, lambda ops: ops.add(np.ones((500, 500), np.float32), np.ones((500, 500), np.float32)))
    time.sleep(0.05)  # until all sleep
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1


def test_python_may_end_while_the_pool_lives():
    code = (
        "import numpy as np\n"
        "from octavo.backends.native.backend import NativeBackend\n"
        "from octavo.backends.ops import StoredTensor\n"
        "backend = NativeBackend(3)\n"
        "weight = backend.load_weight([StoredTensor('F32', np.ones((500, 2000), np.uint8), (500, 500))])\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_two_python_threads_may_call_one_backend(native):
    rng = np.random.default_rng(0)
    weight = native.load_weight([stored(normal(rng, 300, 200))])
    inputs = [normal(rng, 50, 200) for _ in range(2)]

    def linear(i: int) -> np.ndarray:
        return call(native, lambda ops: ops.linear(inputs[i], weight))

    expected = [linear(0), linear(1)]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(50):
            if not np.array_equal(linear(i), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (KVShape(1, 4, 8, 1, 64), "block_size is 8, expected a multiple of 16"),
        (KVShape(1, 4, 16, 1, 20), "head_dim is 20, expected a multiple of 8 up to 256"),
        (KVShape(1, 4, 16, 1, 264), "head_dim is 264"),
        (KVShape(1, 0, 16, 1, 64), "must be positive"),
    ],
)
def test_a_cache_that_the_kernels_do_not_know_is_refused(native, shape, message):
    with pytest.raises(ValueError, match=message):
        native.allocate_kv(shape)


def test_a_cache_becomes_resident_by_itself_and_keeps_what_is_written(native):
    heads = Heads(2, 1, 64)
    shape = heads.kv_shape(16_000)  # 128 MiB, so that it is in use before it is resident
    resident_before = resident_bytes()
    kv = native.allocate_kv(shape)
    (sequence,) = make_sequences(np.random.default_rng(0), heads, [400], shape.num_blocks)
    first = attend(native, kv, [Chunk(sequence, 0, 399)], heads.params)
    deadline_s = time.monotonic() + 60
    while resident_bytes() - resident_before < 120 << 20:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    fresh = native.allocate_kv(shape)
    (expected,) = attend(native, fresh, [Chunk(sequence, 0, 400)], heads.params)
    (last,) = attend(native, kv, [Chunk(sequence, 399, 400)], heads.params)
    assert np.array_equal(last, expected[399:])
    assert np.array_equal(first[0], expected[:399])


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_cache_too_large_for_the_machine_is_refused_with_its_size(native):
    with pytest.raises(MemoryError, match=r"could not allocate \d+ bytes"):
        native.allocate_kv(KVShape(1000, 10**9, 16, 100, 256))


def test_arguments_that_do_not_fit_are_refused_with_their_values(native):
    weight = native.load_weight([stored(np.zeros((10, 6), np.float32))])
    x = np.zeros((2, 5), np.float32)
    for message, op in {
        "columns of x is 5, expected 6": lambda ops: ops.linear(x, weight),
        r"token_ids\[1\] is 10, expected 0 to 9": lambda ops: ops.embed(np.array([9, 10], np.int32), weight),
        r"token_ids\[0\] is -1": lambda ops: ops.embed(np.array([-1], np.int32), weight),
        "columns of y is 4, expected 5": lambda ops: ops.add(x, x[:, :4]),
        r"rows\[0\] is 2, expected 0 to 1": lambda ops: ops.gather_rows(x, np.array([2], np.int32)),
        "columns of gate_up modulo 2 is 1": lambda ops: ops.silu_mul(x),
    }.items():
        with pytest.raises(ValueError, match=message):
            call(native, op)


def test_a_block_that_does_not_exist_is_refused(native):
    heads = Heads(2, 1, 16)
    kv = native.allocate_kv(heads.kv_shape(3))
    (sequence,) = make_sequences(np.random.default_rng(0), heads, [20], 3)
    attend(native, kv, [Chunk(sequence, 0, 16)], heads.params)
    sequence.block_ids[0] = 3
    with pytest.raises(ValueError, match="request 0: block 0 is 3, the cache has 3"):
        attend(native, kv, [Chunk(sequence, 16, 20)], heads.params)
    with pytest.raises(ValueError, match="pairs"):
        kv.copy_blocks([(0, 3)])


def test_a_weight_of_one_dimension_has_no_bias(native):
    with pytest.raises(ValueError, match="has no bias"):
        native.load_weight([stored(np.ones(4, np.float32))], np.ones(4, np.float32))
