"""What weights become, from the formats of their file and from what the user asks for."""

from __future__ import annotations

import pytest

from octavo.backends.native.weight_kinds import KINDS, choose_kind
from octavo.quantization.gguf import BLOCK_FORMATS

AS_STORED = {
    "F32": "float32",
    "F16": "bfloat16",
    "BF16": "bfloat16",
    "Q8_0": "int8",
    "Q6_K": "int8",
    "Q5_K": "int8",
    "Q5_1": "int8",
    "Q5_0": "int8",
    "Q4_K": "int4",
    "Q4_1": "int4",
    "Q4_0": "int4",
    "MXFP4": "int4",
}


def choose(*formats, dtype="auto", quantization=None, is_vocabulary=False, are_layers_quantized=False):
    return choose_kind(
        formats,
        dtype=dtype,
        quantization=quantization,
        is_vocabulary=is_vocabulary,
        are_layers_quantized=are_layers_quantized,
    )


@pytest.mark.parametrize(("stored", "kind"), [("F16", "int8"), ("F32", "int8"), ("I8", "int8"), ("I4", "int4")])
def test_beside_quantized_layers_rows_for_tokens_are_not_floats(stored, kind):
    assert choose(stored, is_vocabulary=True, are_layers_quantized=True) == kind
    assert choose("F16", are_layers_quantized=True) == "bfloat16"
    assert choose(stored, is_vocabulary=True, are_layers_quantized=True, dtype="float32") == "float32"


def test_every_format_has_a_kind():
    assert AS_STORED.keys() == BLOCK_FORMATS.keys()
    assert set(AS_STORED.values()) == set(KINDS)


@pytest.mark.parametrize(("stored", "kind"), AS_STORED.items())
@pytest.mark.parametrize("is_vocabulary", [False, True])
def test_unless_told_otherwise_the_file_decides(stored, kind, is_vocabulary):
    assert choose(stored, is_vocabulary=is_vocabulary) == kind


@pytest.mark.parametrize(
    ("formats", "kind"),
    [
        (("Q4_K", "Q4_K", "Q6_K"), "int8"),
        (("Q4_0", "F16", "Q8_0"), "bfloat16"),
        (("BF16", "F32"), "float32"),
        (("Q4_K", "Q4_1"), "int4"),
    ],
)
def test_a_merged_matrix_is_as_precise_as_its_best_part(formats, kind):
    assert choose(*formats) == choose(*reversed(formats)) == kind


@pytest.mark.parametrize("stored", AS_STORED)
@pytest.mark.parametrize("is_vocabulary", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtype_forces_all(stored, is_vocabulary, dtype):
    assert choose(stored, dtype=dtype, is_vocabulary=is_vocabulary) == dtype


@pytest.mark.parametrize("stored", AS_STORED)
def test_quantization_forces_all_but_the_vocabulary_in_four_bits(stored):
    for quantization in ("int8", "int4"):
        assert choose(stored, quantization=quantization) == quantization
    assert choose(stored, quantization="int8", is_vocabulary=True) == "int8"
    expected = "int4" if stored in ("Q4_0", "Q4_1", "Q4_K", "MXFP4") else "int8"
    assert choose(stored, quantization="int4", is_vocabulary=True) == expected
