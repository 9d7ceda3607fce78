"""Beam search: the most likely continuations of a prompt, found by extending the best ones token by token."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from octavo.core.sampling_params import RANGES, Range, check_range
from octavo.engine.outputs import GenerationOutput, Logprob

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class BeamSearchParams:
    """How to search; names and meaning are vLLM's. Raises ParameterError for what is out of range."""

    beam_width: int  # sequences kept; each token takes twice as many log-probabilities, see EngineConfig.max_logprobs
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0  # above 0, a token drawn at it is tried beside the most likely ones
    length_penalty: float = 1.0  # scores are divided by the length, prompt and all, to this power

    def __post_init__(self) -> None:
        check_range("beam_width", self.beam_width, Range(int, 1, 128))
        check_range("max_tokens", self.max_tokens, RANGES["max_tokens"]._replace(optional=False))
        check_range("temperature", self.temperature, RANGES["temperature"])
        check_range("length_penalty", self.length_penalty, Range(float, -10.0, 10.0))


@dataclass(frozen=True, slots=True)
class BeamSearchSequence:
    """One continuation with its prompt."""

    tokens: list[int]
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)  # what each generated token was chosen from
    cum_logprob: float = 0.0  # of the generated tokens
    finish_reason: str = "length"  # or "stop": the last token ends it
    text: str = ""  # of prompt and continuation, special tokens included


@dataclass(frozen=True, slots=True)
class BeamSearchOutput:
    """The sequences found, the best one first."""

    sequences: list[BeamSearchSequence]


class BeamSearch:
    """The search from one prompt. `beams`, all of one length, are to be extended; others have ended."""

    def __init__(self, prompt_token_ids: Sequence[int], params: BeamSearchParams, end_ids: Collection[int]) -> None:
        self.beams = [BeamSearchSequence(list(prompt_token_ids))]
        self._ended: list[BeamSearchSequence] = []
        self._params = params
        self._end_ids = end_ids

    def can_go_on(self, max_model_len: int) -> bool:
        """Whether there is a beam to extend, and room for a token."""
        return bool(self.beams) and len(self.beams[0].tokens) < max_model_len

    def extend(self, next_tokens: Sequence[GenerationOutput]) -> None:
        """Go on with the best of all extensions: each beam by each token that may come next, of one output a beam.

        Raises RuntimeError if one of them failed.
        """
        extended: list[BeamSearchSequence] = []
        for beam, output in zip(self.beams, next_tokens, strict=True):
            choice = output.outputs[0]
            if not choice.logprobs:
                raise RuntimeError(f"the search broke off: {choice.error or choice.finish_reason}")
            [by_id] = choice.logprobs
            for token_id, entry in by_id.items():
                is_end = token_id in self._end_ids and not self._params.ignore_eos
                longer = BeamSearchSequence(
                    [*beam.tokens, token_id],
                    [*beam.logprobs, by_id],
                    beam.cum_logprob + entry.logprob,
                    "stop" if is_end else "length",
                )
                (self._ended if is_end else extended).append(longer)
        self.beams = self._best(extended)

    def output(self, tokenizer: Tokenizer) -> BeamSearchOutput:
        """The best of all sequences, ended or not."""
        found = self._best(self._ended + self.beams)
        texts = [tokenizer.decode(sequence.tokens, skip_special_tokens=False) for sequence in found]
        return BeamSearchOutput([replace(one, text=text) for one, text in zip(found, texts, strict=True)])

    def _best(self, sequences: Sequence[BeamSearchSequence]) -> list[BeamSearchSequence]:
        return sorted(sequences, key=self._score, reverse=True)[: self._params.beam_width]

    def _score(self, sequence: BeamSearchSequence) -> float:
        length = len(sequence.tokens) - (sequence.tokens[-1] in self._end_ids)
        return sequence.cum_logprob / float(max(1, length) ** self._params.length_penalty)
