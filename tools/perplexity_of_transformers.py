"""The perplexity that transformers finds for a folder, over the text and the windows of tools/perplexity.py.

    python -m tools.perplexity_of_transformers FOLDER

It computes with the file's weights and float activations. Runs in the golden environment.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

TEXT = Path(__file__).parent.parent / "benchmarks" / "data" / "ordinary_topics.txt"
WINDOW = 512


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure how well a model predicts a text, by transformers.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="float32", help="what is computed in; some formats leave no choice")
    args = parser.parse_args()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(args.folder / "tokenizer.json"))
    token_ids = tokenizer.encode(TEXT.read_text("utf-8"), add_special_tokens=False)
    model = AutoModelForCausalLM.from_pretrained(args.folder, dtype=getattr(torch, args.dtype), device_map="cpu")
    losses = []
    with torch.inference_mode():
        for start in range(0, len(token_ids), WINDOW):
            ids = torch.tensor([token_ids[start : start + WINDOW]])
            logprobs = model(ids).logits[0, :-1].double().log_softmax(-1)
            losses += (-logprobs.gather(1, ids[0, 1:, None])).flatten().tolist()
    print(f"perplexity: {math.exp(sum(losses) / len(losses)):.4f} over {len(losses)} tokens")


if __name__ == "__main__":
    main()
