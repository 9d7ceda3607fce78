"""MXFP4 (Open Compute's MX formats, 2023) as compressed-tensors packs it: mxfp4-pack-quantized.

weight_packed uint8 [N, K / 2] holds numbers of 4 bits, E2M1, of two the first in the low half; weight_scale uint8
[N, K / 32] the exponents of their scales, E8M0.
"""

from __future__ import annotations

import numpy as np

from octavo.quantization.codes import CodedMatrix, StoredLayer, places
from octavo.quantization.small_floats import E2M1, E8M0

GROUP_SIZE = 32


class MXFP4:
    """See Packing."""

    parts = ("weight_packed", "weight_scale")

    def shape(self, layer: StoredLayer) -> tuple[int, int]:
        """See Packing."""
        num_outputs, num_bytes = layer.shape("weight_packed")
        if layer.shape("weight_scale") != (num_outputs, 2 * num_bytes / GROUP_SIZE):
            raise ValueError(
                f"weight_packed {[num_outputs, num_bytes]} and weight_scale {list(layer.shape('weight_scale'))}, "
                "without a weight_shape, are not MXFP4, which has two inputs a byte and a scale for each 32"
            )
        return num_outputs, 2 * num_bytes

    def read(self, layer: StoredLayer) -> CodedMatrix:
        """See Packing."""
        packed, exponents = layer.array("weight_packed"), layer.array("weight_scale")
        if not packed.dtype == exponents.dtype == np.uint8:
            raise ValueError(
                f"weight_packed is {packed.dtype} and weight_scale {exponents.dtype}; in MXFP4 both are bytes"
            )
        codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(self.shape(layer))
        return places(codes, E8M0[exponents], GROUP_SIZE, E2M1)
