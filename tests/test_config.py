from __future__ import annotations

import pytest

from octavo.config import EngineConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "dtype is 'float16'; choose 'auto', 'float32' or 'bfloat16'"),
        ({"quantization": "awq"}, "quantization is 'awq'; choose 'int8' or 'int4'"),
        ({"dtype": "bfloat16", "quantization": "int8"}, r"dtype is 'bfloat16' and quantization 'int8'.* out"),
        ({"backend": "reference", "dtype": "bfloat16"}, "reference backend computes in float32, not in bfloat16"),
        ({"backend": "reference", "quantization": "int4"}, "reference backend computes in float32, not in int4"),
    ],
)
def test_a_precision_that_cannot_be_had_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        EngineConfig("model", **options)


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_the_reference_computes_in_float32(dtype):
    assert EngineConfig("model", backend="reference", dtype=dtype).dtype == dtype
