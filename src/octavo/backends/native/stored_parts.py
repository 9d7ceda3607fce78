"""Stored tensors as the extension takes them for packing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from octavo.backends.native.weight_kinds import WHOLE_KINDS
from octavo.backends.ops import Int32Array, StoredTensor
from octavo.quantization.codes import CODE_BITS


def parts_to_pack(parts: Sequence[StoredTensor], kind: str) -> tuple[list[Any], Int32Array | None]:
    """The parts of a weight that becomes `kind`, and the input of each of its columns; None: that of its number.

    Codes are taken over as codes by the kinds that have such; everything else is handed over as numbers. Raises
    ValueError for parts whose columns are in different orders.
    """
    coded = [part.scales if kind in WHOLE_KINDS and part.format in CODE_BITS else None for part in parts]
    orders = [None if scales is None else scales.order for scales in coded]
    if not all(_are_equal(order, orders[0]) for order in orders):
        raise ValueError(
            "layers that are computed as one have their columns in different orders, which no kernel multiplies; "
            "--dtype bfloat16 takes them as plain numbers"
        )
    return [_part(part, is_coded=scales is not None) for part, scales in zip(parts, coded, strict=True)], orders[0]


def _are_equal(order: Int32Array | None, other: Int32Array | None) -> bool:
    if order is None or other is None:
        return order is other
    return np.array_equal(order, other)


def _part(part: StoredTensor, *, is_coded: bool) -> tuple[Any, ...]:
    num_columns = part.shape[1]
    if part.scales is None:
        return part.format, part.data, num_columns, None
    if is_coded:
        return part.format, part.data, num_columns, (part.scales.scales, part.scales.zeros, part.scales.group_size)
    return "F32", part.to_float32().view(np.uint8), num_columns, None
