"""What a parameter is packed into: the kind of number that the kernels multiply with.

float32 and bfloat16 are what their names say; int8 and int4 are whole numbers in groups of 32 along K, each with a
scale (and in int4 a minimum) of its own; files with larger groups keep these.
"""

from __future__ import annotations

from collections.abc import Iterable

KINDS = ("int4", "int8", "bfloat16", "float32")  # the least precise first

WHOLE_KINDS = ("int4", "int8")  # which multiply activations as whole numbers

# Formats without a kind of their own become the next more precise one: five bits or six are requantized to eight.
_KIND_BY_FORMAT = {
    "Q4_0": "int4",
    "Q4_1": "int4",
    "Q4_K": "int4",
    "Q5_0": "int8",
    "Q5_1": "int8",
    "Q5_K": "int8",
    "Q6_K": "int8",
    "Q8_0": "int8",
    "MXFP4": "int4",
    "I4": "int4",
    "I8": "int8",
    "TABLE4": "int4",
    "TABLE": "int8",
    "F16": "bfloat16",
    "BF16": "bfloat16",
    "F32": "float32",
}

# Of formats whose scales lie apart, the kinds that have room for their codes and scales as they are.
_KINDS_BY_CODES = {"I4": ("int4", "int8"), "I8": ("int8",), "TABLE4": ("int4",)}


def choose_kind(
    formats: Iterable[str],
    *,
    dtype: str,
    quantization: str | None,
    is_vocabulary: bool,
    are_layers_quantized: bool = False,
) -> str:
    """The kind, one of KINDS, of a matrix whose parts are stored in these formats.

    `dtype` "float32" or "bfloat16" and `quantization` "int8" or "int4" force that kind; with "auto" and None the
    formats decide, and parts that become one matrix all get the kind of the most precise of them. Rows that stand for
    tokens, of the embedding and of the head, become int8 where int4 is forced, unless the file has them in four bits:
    an error in a row of the embedding is not averaged with that of others, and one in the head goes into a logit as it
    is, which is why llama.cpp's mixtures keep these two more precise, too. They become int8 as well where they are
    floats and the layers between them are quantized in the file: in bfloat16 the head would be read as long as half of
    the layers, for no less of an error (docs/quantization.md).
    """
    stored = max((_KIND_BY_FORMAT[name] for name in formats), key=KINDS.index)
    if dtype != "auto":
        return dtype
    if is_vocabulary and (quantization == "int4" or (quantization is None and are_layers_quantized)):
        return min(stored, "int8", key=KINDS.index)
    return quantization or stored


def keeps_codes(stored_format: str, kind: str) -> bool:
    """Whether a matrix that is stored as codes with scales apart is taken over by `kind` as it is."""
    return kind in _KINDS_BY_CODES.get(stored_format, ())
