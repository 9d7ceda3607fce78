"""What merged layers compute is what their parts would."""

from __future__ import annotations

import numpy as np

from octavo.backends.reference.backend import ReferenceBackend
from octavo.backends.reference.ops import ReferenceOps
from octavo.layers.linear import QKVParallelLinear
from octavo.layers.parameters import Parameters
from tests.backends.stored_tensors import stored


def test_q_k_and_v():
    rng = np.random.default_rng(1)
    sizes = {"q_proj": 8, "k_proj": 4, "v_proj": 4}
    tensors = {}
    for name, size in sizes.items():
        tensors[f"attn.{name}.weight"] = rng.standard_normal((size, 6)).astype(np.float32)
        tensors[f"attn.{name}.bias"] = rng.standard_normal(size).astype(np.float32)
    params = Parameters(lambda name: stored(tensors[name]), ReferenceBackend()).at("attn")
    x = rng.standard_normal((3, 6)).astype(np.float32)
    outputs = QKVParallelLinear(params, 6, q_size=8, kv_size=4, has_bias=True)(ReferenceOps(), x)
    for name, output in zip(sizes, outputs, strict=True):
        expected = x @ tensors[f"attn.{name}.weight"].T + tensors[f"attn.{name}.bias"]
        np.testing.assert_allclose(output, expected, atol=1e-5)
