"""From token ids to vectors, and from vectors to a logit for each token."""

from __future__ import annotations

from octavo.backends.ops import Array, Ops, Weight
from octavo.layers.parameters import Parameters


class VocabParallelEmbedding:
    """A vector for each token id."""

    def __init__(self, params: Parameters, vocab_size: int, hidden_size: int) -> None:
        self.weight = _load_vocabulary(params, vocab_size, hidden_size)

    def __call__(self, ops: Ops, token_ids: Array) -> Array:
        """[T] -> [T, hidden_size]."""
        return ops.embed(token_ids, self.weight)


class ParallelLMHead:
    """The logit of each token id: the product with its row of a matrix, or of the embedding where the two are tied."""

    def __init__(
        self, params: Parameters, vocab_size: int, hidden_size: int, *, tied_to: VocabParallelEmbedding | None
    ) -> None:
        if tied_to is not None:
            self._weight = tied_to.weight
        else:
            self._weight = _load_vocabulary(params, vocab_size, hidden_size)

    def __call__(self, ops: Ops, x: Array) -> Array:
        """[S, hidden_size] -> [S, vocab_size]."""
        return ops.linear(x, self._weight)


def _load_vocabulary(params: Parameters, vocab_size: int, hidden_size: int) -> Weight:
    return params.backend.load_weight([params.stored("weight", (vocab_size, hidden_size))], is_vocabulary=True)
