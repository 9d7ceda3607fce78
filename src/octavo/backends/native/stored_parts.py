"""Stored tensors as the extension takes them for packing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from octavo.backends.native.number_table import round_table
from octavo.backends.native.weight_kinds import WHOLE_KINDS, keeps_codes
from octavo.backends.ops import Int32Array, StoredTensor
from octavo.quantization.gguf_types import BLOCK_SIZES

_LARGEST_SCALE = float(np.finfo(np.float16).max)


def parts_to_pack(parts: Sequence[StoredTensor], kind: str) -> tuple[list[Any], Int32Array | None]:
    """The parts of a weight that becomes `kind`, and the input of each of its columns; None: that of its number.

    Codes are taken over as codes by the kinds that have such; everything else is handed over as numbers. Raises
    ValueError for parts whose columns are in different orders and for scales too large for halves.
    """
    coded = [part.scales if keeps_codes(part.format, kind) else None for part in parts]
    orders = [None if scales is None else scales.order for scales in coded]
    if not all(_are_equal(order, orders[0]) for order in orders):
        raise ValueError(
            "layers that are computed as one have their columns in different orders, which no kernel multiplies; "
            "--dtype bfloat16 takes them as plain numbers"
        )
    return [_part(part, kind) for part in parts], orders[0]


def _are_equal(order: Int32Array | None, other: Int32Array | None) -> bool:
    if order is None or other is None:
        return order is other
    return np.array_equal(order, other)


def _part(part: StoredTensor, kind: str) -> tuple[Any, ...]:
    num_columns = part.shape[1]
    if part.scales is None:
        if part.format == "MXFP4" and kind in WHOLE_KINDS:
            _check_scale(2.0 ** (int(part.data[:, :: BLOCK_SIZES["MXFP4"].num_bytes].max()) - 128))
        return part.format, part.data, num_columns, None
    if not keeps_codes(part.format, kind):
        return "F32", part.to_float32().view(np.uint8), num_columns, None
    scales, table = part.scales.scales, None
    if part.scales.table is not None:
        table, unit = round_table(part.scales.table)
        scales = scales * unit
    _check_scale(float(scales.max()))
    return part.format, part.data, num_columns, (scales, part.scales.zeros, part.scales.group_size, table)


def _check_scale(largest: float) -> None:
    if largest > _LARGEST_SCALE:
        raise ValueError(
            f"a scale is {largest:g} and kernels hold none above {_LARGEST_SCALE:g}; "
            "--dtype bfloat16 takes the weights as plain numbers"
        )
