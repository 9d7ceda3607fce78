from __future__ import annotations

import pytest

from octavo.config import EngineConfig, SpeculativeConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "dtype is 'float16'; choose 'auto', 'float32' or 'bfloat16'"),
        (
            {"quantization": "q4"},
            "quantization is 'q4'; choose one of int8, int4, or the method of a quantized checkpoint, awq",
        ),
        ({"activation_dtype": "int8"}, "activation_dtype is 'int8'; choose 'auto' or 'float'"),
        ({"activation_dtype": "float", "quantization": "int4"}, "activation_dtype is 'float' and quantization 'int4'"),
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


def test_a_speculative_config_is_vllms():
    ngram = SpeculativeConfig.of({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3})
    assert ngram == SpeculativeConfig("ngram", 5, None, prompt_lookup_max=3, prompt_lookup_min=2)
    assert SpeculativeConfig.of({"model": "m.gguf", "num_speculative_tokens": 4}).method == "draft_model"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "eagle", "num_speculative_tokens": 2}, "method is 'eagle'; choose 'ngram' or 'draft_model'"),
        ({"method": "ngram"}, "lacks num_speculative_tokens"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "num_speculative_tokens is 0; it must be from 1 to 64"),
        ({"method": "ngram", "num_speculative_tokens": "5"}, "num_speculative_tokens is '5'; it must be an integer"),
        ({"method": "ngram", "num_speculative_tokens": 5, "model": "m"}, "'draft_model' needs a model"),
        ({"method": "draft_model", "num_speculative_tokens": 5}, "'draft_model' needs a model"),
        ({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 9}, "prompt_lookup_min is 9"),
        ({"methods": "ngram"}, "does not know methods; it knows method, num_speculative_tokens, model"),
    ],
)
def test_a_speculative_config_that_makes_no_sense_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        SpeculativeConfig.of(values)
