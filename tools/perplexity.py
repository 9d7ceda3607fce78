"""How well a model predicts a text, with its weights and its KV cache in the precision that is asked for.

    python tools/perplexity.py MODEL [--dtype float32 | --quantization int4] [--kv-cache-dtype int8] [--text FILE]

The text is cut into windows of --window tokens, each read from its beginning; every token but a window's first counts.
Prints the perplexity, the exponential of the mean negative log-probability: what the weights lose by being stored in
fewer bits shows as a ratio of two perplexities of one text. Other texts and other windows give other numbers.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends.native.backend import NativeBackend
from octavo.backends.ops import Float32Array, Step, StepBatch
from octavo.config import BLOCK_SIZE, EngineConfig
from octavo.engine import host
from octavo.engine.tokenizer import Tokenizer
from octavo.models.registry import build_model
from octavo.weights.checkpoint import open_checkpoint
from octavo.worker.kv_cache import kv_shape

TEXT = Path(__file__).parent.parent / "benchmarks" / "data" / "ordinary_topics.txt"
CHUNK_TOKENS = 128  # computed at once: the logits of more would take hundreds of megabytes


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure how well a model predicts a text.")
    parser.add_argument("model", help="a .gguf file, a Hugging Face folder or a repository name")
    parser.add_argument("--dtype", default="auto", help="float32, bfloat16, or auto: what is nearest to the file")
    parser.add_argument("--quantization", help="int8 or int4")
    parser.add_argument("--activation-dtype", default="auto", choices=["auto", "float"])
    parser.add_argument("--kv-cache-dtype", default="float32", choices=["float32", "bfloat16", "int8"])
    parser.add_argument("--text", type=Path, default=TEXT, help="what to predict; by default %(default)s")
    parser.add_argument("--window", type=int, default=512, help="tokens that are read in one go")
    args = parser.parse_args()
    config = EngineConfig(
        model=args.model, dtype=args.dtype, quantization=args.quantization, activation_dtype=args.activation_dtype
    )
    checkpoint = open_checkpoint(config.model)
    token_ids = Tokenizer(checkpoint.tokenizer_spec).encode(args.text.read_text("utf-8"), add_special_tokens=False)
    backend = NativeBackend(
        host.num_usable_cpus(),
        dtype=config.dtype,
        quantization=config.requantization,
        are_layers_quantized=checkpoint.are_layers_quantized,
        has_float_activations=config.activation_dtype == "float",
    )
    model = build_model(checkpoint.config, checkpoint.tensors, backend, args.window)
    kv = backend.allocate_kv(kv_shape(checkpoint.config, -(-args.window // BLOCK_SIZE), args.kv_cache_dtype))
    step = backend.prepare(model, kv)
    windows = [token_ids[start : start + args.window] for start in range(0, len(token_ids), args.window)]
    logprobs = np.concatenate([window_logprobs(step, np.array(window, np.int32)) for window in windows])
    for kind, num_bytes in backend.weight_bytes_by_kind.items():
        print(f"weights: {num_bytes / 1e6:.1f} MB {kind}")
    print(f"perplexity: {np.exp(-logprobs.mean()):.4f} over {len(logprobs)} tokens")


def window_logprobs(step: Step, token_ids: NDArray[np.int32]) -> NDArray[np.float64]:
    """The log-probability of every token but the first, after those before it."""
    parts = []
    for start in range(0, len(token_ids), CHUNK_TOKENS):
        chunk, following = token_ids[start : start + CHUNK_TOKENS], token_ids[start + 1 : start + 1 + CHUNK_TOKENS]
        logits = step.run(chunk_batch(chunk, start))[: len(following)]
        parts.append(logprobs_of(logits, following))
    return np.concatenate(parts)


def chunk_batch(token_ids: NDArray[np.int32], start: int) -> StepBatch:
    """One step over the tokens from position `start` on, of the only sequence, in blocks 0, 1, ...; all need logits."""
    end = start + len(token_ids)
    positions = np.arange(start, end, dtype=np.int32)
    return StepBatch(
        input_ids=token_ids,
        positions=positions,
        slot_mapping=positions,
        query_start_loc=np.array([0, len(token_ids)], np.int32),
        seq_lens=np.array([end], np.int32),
        block_table=np.arange(-(-end // BLOCK_SIZE), dtype=np.int32)[None],
        logits_rows=np.arange(len(token_ids), dtype=np.int32),
    )


def logprobs_of(logits: Float32Array, token_ids: NDArray[np.int32]) -> NDArray[np.float64]:
    """log softmax(logits)[i, token_ids[i]] for each row i."""
    centered: Any = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return centered[np.arange(len(token_ids)), token_ids] - np.log(np.exp(centered).sum(axis=1))


if __name__ == "__main__":
    main()
