"""Which model a checkpoint asks for."""

from __future__ import annotations

from collections.abc import Callable

from octavo.backends.ops import Backend, Model
from octavo.config import ModelConfig
from octavo.layers.parameters import Parameters
from octavo.layers.rotary import RotaryEmbedding
from octavo.models.llama import LlamaForCausalLM
from octavo.models.qwen2 import qwen2_for_causal_lm
from octavo.models.qwen3 import qwen3_for_causal_lm
from octavo.weights.source import ROPE_FREQS, WeightSource

MODEL_BY_ARCHITECTURE: dict[str, Callable[[ModelConfig, Parameters, RotaryEmbedding], Model]] = {
    "llama": LlamaForCausalLM,
    "qwen2": qwen2_for_causal_lm,
    "qwen3": qwen3_for_causal_lm,
}


def build_model(config: ModelConfig, weights: WeightSource, backend: Backend, max_positions: int) -> Model:
    """Load every weight into `backend` and return the model, for sequences of up to `max_positions` tokens.

    Raises ValueError for an architecture that octavo does not know and for a weight of another shape than `config`
    calls for; a weight that is missing raises as `weights.stored` does.
    """
    model = MODEL_BY_ARCHITECTURE.get(config.architecture)
    if model is None:
        known = ", ".join(sorted(MODEL_BY_ARCHITECTURE))
        raise ValueError(f"architecture is {config.architecture!r}; octavo knows {known}")
    divisors = weights.stored(ROPE_FREQS).to_float32() if ROPE_FREQS in weights else None
    rotary = RotaryEmbedding(backend, config, max_positions, divisors)
    return model(config, Parameters(weights.stored, backend), rotary)
