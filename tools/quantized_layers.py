"""One layer's weight in each quantized format, packed by the tool whose format it is. Runs in the golden environment.

A `Recipe` turns a weight into the tensors of a checkpoint and the numbers that the tool itself says they are. Rounding
is to the nearest: what is tested is how bytes are read, not how well they were chosen.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

Tensors = dict[str, torch.Tensor]


class Recipe(NamedTuple):
    """A format: what config.json says of it, and how a weight [N, K] becomes (tensors by part, the tool's numbers)."""

    config: dict[str, Any]
    pack: Callable[[torch.Tensor], tuple[Tensors, torch.Tensor]]


def awq(group_size: int) -> Recipe:
    """AutoAWQ's WQLinear_GEMM."""

    def pack(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        _without_its_init("awq")
        gemm = importlib.import_module("awq.modules.linear.gemm")
        packing = importlib.import_module("awq.utils.packing_utils")
        scales, zeros, rounded = _asymmetric(weight, 4, group_size)
        linear = _linear(rounded.half())
        packed = gemm.WQLinear_GEMM.from_linear(linear, 4, group_size, scales=scales.T, zeros=zeros.T)
        numbers = packing.dequantize_gemm(packed.qweight, packed.qzeros, packed.scales, 4, group_size)
        return {name: getattr(packed, name) for name in ("qweight", "qzeros", "scales")}, numbers.T

    config = {"quant_method": "awq", "bits": 4, "group_size": group_size, "zero_point": True, "version": "gemm"}
    return Recipe(config, pack)


def gptq(
    bits: int, group_size: int, *, version: int = 1, is_symmetric: bool = True, by_activations: bool = False
) -> Recipe:
    """GPTQModel's TorchLinear; `by_activations`: groups of inputs that do not follow each other."""

    def pack(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        qlinear = importlib.import_module("gptqmodel.nn_modules.qlinear.torch")
        num_outputs, num_inputs = weight.shape
        size = num_inputs if group_size == -1 else group_size
        order = torch.randperm(num_inputs, generator=torch.Generator().manual_seed(num_inputs))
        order = order if by_activations else torch.arange(num_inputs)
        quantize = _symmetric if is_symmetric else _asymmetric
        scales, zeros, rounded = quantize(weight[:, order], bits, size)
        g_idx, weight = torch.empty(num_inputs, dtype=torch.int32), torch.empty_like(rounded)
        g_idx[order] = (torch.arange(num_inputs) // size).int()
        weight[:, order] = rounded
        packed = qlinear.TorchLinear(
            bits=bits, group_size=group_size, sym=is_symmetric, desc_act=by_activations, in_features=num_inputs,
            out_features=num_outputs, bias=False, pack_dtype=torch.int32, register_buffers=True,
        )  # fmt: skip
        packed.pack_original(_linear(weight), scales, zeros, g_idx)
        packed.post_init()
        numbers = packed.dequantize_weight().T.float()
        tensors = {name: getattr(packed, name).clone() for name in ("qweight", "qzeros", "scales", "g_idx")}
        if version == 1:  # its packer writes version 2; version 1 has one less in every field
            ones = sum(1 << shift for shift in range(0, 32, bits))
            tensors["qzeros"] = (tensors["qzeros"].long() - ones).int()
        return tensors, numbers

    config = {
        "quant_method": "gptq", "bits": bits, "group_size": group_size, "desc_act": by_activations,
        "sym": is_symmetric, "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
    }  # fmt: skip
    return Recipe(config, pack)


def compressed(layout: str, weights: dict[str, Any]) -> Recipe:
    """compressed-tensors' own compressors, `weights` being its QuantizationArgs."""

    def pack(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights), format=layout)
        compressor = BaseCompressor.get_value_from_registry(layout)
        state = {"weight": weight.float(), **_scales(weight, weights)}
        tensors = compressor.compress(state, scheme)
        numbers = compressor.decompress(dict(tensors), scheme)["weight"]
        return tensors, numbers

    # Without a format of its own, transformers takes a group whose activations are floats to be pack-quantized.
    group = {"targets": ["Linear"], "format": layout, "weights": weights, "input_activations": None}
    config = {"quant_method": "compressed-tensors", "format": layout, "config_groups": {"group_0": group}}
    return Recipe(config | {"ignore": ["lm_head"], "quantization_status": "compressed"}, pack)


def bitsandbytes_4bit(kind: str, *, is_double: bool) -> Recipe:
    """bitsandbytes' NF4 and FP4."""

    def pack(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        import bitsandbytes.functional as bnb

        packed, state = bnb.quantize_4bit(
            weight.bfloat16(), blocksize=64, quant_type=kind, compress_statistics=is_double
        )
        tensors = {f"weight.{name}": tensor for name, tensor in state.as_dict(packed=True).items()}
        state.dtype = torch.float32  # its own numbers before it rounds them
        return {"weight": packed, **tensors}, bnb.dequantize_4bit(packed, state)

    config = {
        "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind,
        "bnb_4bit_use_double_quant": is_double, "bnb_4bit_compute_dtype": "float32",
    }  # fmt: skip
    return Recipe(config, pack)


def bitsandbytes_int8() -> Recipe:
    """bitsandbytes' LLM.int8."""

    def pack(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        import bitsandbytes.functional as bnb

        codes, scales, _ = bnb.int8_vectorwise_quant(weight.half())
        numbers = bnb.int8_vectorwise_dequant(codes, scales)
        return {"weight": codes, "SCB": scales, "weight_format": torch.zeros((), dtype=torch.uint8)}, numbers

    return Recipe({"quant_method": "bitsandbytes", "load_in_8bit": True}, pack)


def fp8(block: int | None) -> Recipe:
    """FP8 as transformers' fine-grained kernels and vLLM's read it, by their definition: codes times scales."""

    def pack(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        num_outputs, num_inputs = weight.shape
        size = block or max(weight.shape)
        rows, columns = -(-num_outputs // size), -(-num_inputs // size)
        padded = torch.zeros(rows * size, columns * size)
        padded[:num_outputs, :num_inputs] = weight
        blocks = padded.reshape(rows, size, columns, size)
        scales = blocks.abs().amax((1, 3), keepdim=True).clamp(min=1e-12) / 448

        def cut(x: torch.Tensor) -> torch.Tensor:
            return x.reshape(padded.shape)[:num_outputs, :num_inputs].contiguous()

        codes = cut(blocks / scales).to(torch.float8_e4m3fn)
        numbers = codes.float() * cut(scales.expand_as(blocks))
        name = "weight_scale" if block is None else "weight_scale_inv"
        return {"weight": codes, name: scales.reshape(rows, columns) if block else scales.reshape(())}, numbers

    config: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    return Recipe(config | ({"weight_block_size": [block, block]} if block else {}), pack)


def recipes(group_size: int) -> dict[str, Recipe]:
    """All of them by name; `group_size` must divide every K."""
    int4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": group_size}
    channel = {"type": "int", "strategy": "channel", "num_bits": 8, "symmetric": True}
    float8 = {"type": "float", "num_bits": 8, "symmetric": True}
    float4 = {"type": "float", "num_bits": 4, "symmetric": True, "strategy": "group", "group_size": 32}
    return {
        "awq": awq(group_size),
        "gptq-4": gptq(4, group_size),
        "gptq-4-asymmetric": gptq(4, group_size, is_symmetric=False),
        "gptq-4-v2-act-order": gptq(4, group_size, version=2, is_symmetric=False, by_activations=True),
        "gptq-8-channel": gptq(8, -1),
        "w4a16": compressed("pack-quantized", int4 | {"symmetric": True}),
        "w4a16-asymmetric": compressed("pack-quantized", int4 | {"symmetric": False}),
        "w8a8": compressed("int-quantized", channel),
        "fp8-channel": compressed("float-quantized", float8 | {"strategy": "channel"}),
        "mxfp4": compressed("mxfp4-pack-quantized", float4),
        "nf4": bitsandbytes_4bit("nf4", is_double=False),
        "nf4-double": bitsandbytes_4bit("nf4", is_double=True),
        "fp4": bitsandbytes_4bit("fp4", is_double=False),
        "bnb-int8": bitsandbytes_int8(),
        "fp8": fp8(None),
        "fp8-block": fp8(128),
    }


def _linear(weight: torch.Tensor) -> torch.nn.Linear:
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
    linear.weight.data = weight
    return linear


def _asymmetric(weight: torch.Tensor, bits: int, group_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scales and zero points [N, G], and the rounded weight."""
    groups = weight.float().reshape(len(weight), -1, group_size)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    most = (1 << bits) - 1
    scales = ((high - low) / most).clamp(min=1e-5).half().float()
    zeros = (-low / scales).round().clamp(0, most)
    return scales, zeros, _rounded(groups, scales, zeros, most)


def _symmetric(weight: torch.Tensor, bits: int, group_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    groups = weight.float().reshape(len(weight), -1, group_size)
    middle = 1 << bits - 1
    scales = (groups.abs().amax(-1) / (middle - 1)).clamp(min=1e-5).half().float()
    zeros = torch.full_like(scales, middle)
    return scales, zeros, _rounded(groups, scales, zeros, 2 * middle - 1)


def _rounded(groups: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, most: int) -> torch.Tensor:
    codes = ((groups / scales[..., None]).round() + zeros[..., None]).clamp(0, most)
    return ((codes - zeros[..., None]) * scales[..., None]).flatten(1)


def _scales(weight: torch.Tensor, args: dict[str, Any]) -> Tensors:
    """What compressed-tensors needs besides a weight: scales in bfloat16, and zero points where there are such."""
    size = args.get("group_size") or weight.shape[1]
    if args["type"] == "float":
        largest = weight.float().reshape(len(weight), -1, size).abs().amax(-1)
        if args["num_bits"] == 4:  # MXFP4's scales are powers of two
            return {"weight_scale": torch.exp2((largest / 6).log2().ceil())}
        return {"weight_scale": (largest / 448).bfloat16().float()}
    if args["symmetric"]:
        scales, _, _ = _symmetric(weight, args["num_bits"], size)
        return {"weight_scale": scales.bfloat16().float()}
    scales, zeros, _ = _asymmetric(weight, args["num_bits"], size)
    middle = 1 << args["num_bits"] - 1
    return {"weight_scale": scales.bfloat16().float(), "weight_zero_point": (zeros - middle).to(torch.int8)}


def _without_its_init(package: str) -> None:
    """Let a package's modules be imported without what its __init__ imports, which needs a GPU or an old torch."""
    if package not in sys.modules:
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.origin is not None
        module = types.ModuleType(package)
        module.__path__ = [str(Path(spec.origin).parent)]
        sys.modules[package] = module
