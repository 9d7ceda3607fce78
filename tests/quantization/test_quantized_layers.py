"""A layer in each quantized format is what the format's own tool reads in it (tools/make_golden_quantized.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.weights.hugging_face import read_fields
from octavo.weights.quantization_config import read_packing
from octavo.weights.quantized import QuantizedSource
from octavo.weights.safetensors import SafetensorsSource

GOLDEN = Path(__file__).parent / "golden"
COMPUTES_IN_HALVES = ("awq", "gptq-4", "gptq-4-asymmetric", "gptq-4-v2-act-order", "gptq-8-channel")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.safetensors")), ids=lambda path: path.stem)
def test_a_layer_is_what_its_tool_reads(path):
    files = SafetensorsSource([path])
    packing = read_packing(read_fields(path.with_suffix(".json")))
    assert packing is not None
    source = QuantizedSource(files, packing[1])
    assert sorted(source.names()) == ["layer.weight", "numbers"]
    numbers = files.array("numbers")
    assert source.shape("layer.weight") == numbers.shape
    weight = source.stored("layer.weight").to_float32()
    if path.stem in COMPUTES_IN_HALVES:
        weight = weight.astype(np.float16).astype(np.float32)
    if path.stem == "bnb-int8":  # multiplied in another order there
        assert (np.abs(weight - numbers) <= 2.0**-23 * np.abs(numbers)).all()
    else:
        assert np.array_equal(weight, numbers)
