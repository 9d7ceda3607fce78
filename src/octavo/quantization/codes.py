"""Matrices of codes whose scales lie apart, which is how every format but GGUF's keeps them.

    weight[n, order[k]] = scale[n, k // group_size] * (value(code[n, k]) - zero[n, k // group_size])

Computed as written in float32. Where codes and zero points are whole numbers of up to 8 bits and scales are halves or
bfloat16, that rounds nothing: the tools that made a file get the same numbers, rounded to the type they compute in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

KERNEL_GROUP = 32  # kernels share a scale among multiples of so many columns, or all


@dataclass(frozen=True, eq=False, slots=True)
class CodeScales:
    """What a matrix of codes, [N, K], stands for, see above."""

    scales: NDArray[np.float32]  # [N, ceil(K / group_size)]
    group_size: int  # columns that share a scale
    zeros: NDArray[np.float32] | None = None  # as scales, whole numbers; None: all are 0
    order: NDArray[np.int32] | None = None  # [K] the input that a column belongs to; None: the one of its number
    table: NDArray[np.float32] | None = None  # the value of each code; None: codes are their own values

    def decode(self, codes: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The weights, [N, K], columns in the order of the inputs."""
        values = self.table[codes] if self.table is not None else codes.view(np.int8).astype(np.float32)
        for start in range(0, codes.shape[1], self.group_size):
            group, columns = start // self.group_size, slice(start, start + self.group_size)
            if self.zeros is not None:
                values[:, columns] -= self.zeros[:, group, None]
            values[:, columns] *= self.scales[:, group, None]
        if self.order is None:
            return values
        weights = np.empty_like(values)
        weights[:, self.order] = values
        return weights


@dataclass(frozen=True, eq=False, slots=True)
class CodedMatrix:
    """A matrix [N, K] as codes."""

    # A byte a code. I4, I8: signed whole numbers of so many bits; TABLE4: places in a table of 16; TABLE: places in a
    # table of any size, and groups of any size.
    format: str
    codes: NDArray[np.uint8]  # [N, K]
    scales: CodeScales


class StoredLayer(Protocol):
    """The tensors of a file that together are one linear layer's weight, by the last part of their names."""

    def __contains__(self, part: str) -> bool: ...

    def shape(self, part: str) -> tuple[int, ...]:
        """The shape of a tensor. Raises ValueError if there is none of that name."""
        ...

    def array(self, part: str) -> NDArray:
        """A tensor, floats as float32 but for those of 8 bits, which are bytes. Raises as `shape` does."""
        ...


class Packing(Protocol):
    """A format: which tensors make a weight, and what they say. Both methods raise ValueError where they disagree."""

    @property
    def parts(self) -> Sequence[str]:
        """The names of the tensors, besides "weight"."""
        ...

    def shape(self, layer: StoredLayer) -> tuple[int, int]:
        """[N, K]."""
        ...

    def read(self, layer: StoredLayer) -> CodedMatrix:
        """The weight."""
        ...


def unpack(words: NDArray[np.int32], bits: int) -> NDArray[np.uint8]:
    """[..., n] words -> [..., n, 32 / bits] numbers of so many bits, 4 or 8, the lowest first."""
    octets = np.ascontiguousarray(words).astype("<i4", copy=False).view(np.uint8).reshape(*words.shape, 4)
    return octets if bits == 8 else np.stack([octets & 15, octets >> 4], axis=-1).reshape(*words.shape, 8)


def has_kernel_groups(group_size: int, num_columns: int) -> bool:
    """Whether kernels can share scales as the file does."""
    return group_size % KERNEL_GROUP == 0 or group_size >= num_columns


def places(
    codes: NDArray[np.uint8], scales: NDArray[np.float32], group_size: int, table: NDArray[np.float32]
) -> CodedMatrix:
    """A matrix of places [N, K] in a table of 16 numbers."""
    name = "TABLE4" if has_kernel_groups(group_size, codes.shape[1]) else "TABLE"
    return CodedMatrix(name, codes, CodeScales(scales, group_size, table=table))


def whole_numbers(
    codes: NDArray[np.uint8],
    zeros: NDArray[np.uint8] | None,
    scales: NDArray[np.float32],
    *,
    bits: int,
    group_size: int,
    order: NDArray[np.int32] | None = None,
) -> CodedMatrix:
    """A matrix of unsigned codes [N, K] with zero points [N, G]; without them those are the middle, 8 or 128.

    Codes in groups that kernels do not have go into a table.
    """
    middle = 1 << bits - 1
    moved = None if zeros is None else zeros.astype(np.float32, order="C") - np.float32(middle)
    if moved is not None and not moved.any():
        moved = None
    apart = CodeScales(scales.copy(order="C"), group_size, moved, order)  # a lone column's strides, too
    if not has_kernel_groups(group_size, codes.shape[1]):
        values = np.arange(1 << bits, dtype=np.float32) - np.float32(middle)
        return CodedMatrix("TABLE", codes, dataclasses.replace(apart, table=values))
    signed = (codes - np.uint8(middle)).view(np.uint8)  # wraps: the bytes are those of signed numbers
    return CodedMatrix(f"I{bits}", signed, apart)


def order_of_groups(g_idx: NDArray[np.int32], num_groups: int) -> tuple[NDArray[np.int32] | None, int]:
    """Columns sorted by their groups, `g_idx` [K], and the number of columns of a group.

    No order where they are sorted already. Raises ValueError unless the groups are of one size, but for the last.
    """
    num_columns = len(g_idx)
    group_size = int(np.count_nonzero(g_idx == 0)) if num_groups > 1 else num_columns
    order = np.argsort(g_idx, kind="stable").astype(np.int32)
    if group_size < 1 or not np.array_equal(g_idx[order], np.arange(num_columns) // group_size):
        raise ValueError(f"g_idx does not put {num_columns} columns into {num_groups} groups of one size")
    return (None if np.array_equal(order, np.arange(num_columns)) else order), group_size
