"""GrammarCompiler: grammars by what requests ask for."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from octavo.core.admission import RequestRejected
from octavo.core.sampling_params import StructuredOutputsParams
from octavo.structured.checker import GrammarChecker
from octavo.structured.matcher import Matcher
from octavo.structured.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from octavo.structured.grammar import Grammar

MAX_KEPT_GRAMMARS = 64  # that nobody uses


class GrammarCompiler:
    """Compiles each grammar once, while it is used or was lately. Costs nothing until the first.

    One thread compiles, another may take matchers meanwhile.
    """

    def __init__(self) -> None:
        self._vocabulary = Vocabulary((), (), ())
        self._tokenizer: LLTokenizer | None = None
        self._checker: GrammarChecker | None = None
        self._grammar_by_params: WeakValueDictionary[StructuredOutputsParams, Grammar] = WeakValueDictionary()
        self._recent: OrderedDict[StructuredOutputsParams, Grammar] = OrderedDict()

    def learn(self, vocabulary: Vocabulary) -> None:
        """Take the model's tokens, before the first grammar."""
        self._vocabulary = vocabulary

    def compile(self, params: StructuredOutputsParams) -> Grammar:
        """The grammar; `matcher` finds it for as long as it is held.

        Raises RequestRejected, which says what is wrong, for a grammar that cannot be compiled within bounds.
        """
        grammar = self._grammar_by_params.get(params) or self._compile(params)
        self._grammar_by_params[params] = self._recent[params] = grammar
        self._recent.move_to_end(params)
        while len(self._recent) > MAX_KEPT_GRAMMARS:
            self._recent.popitem(last=False)
        return grammar

    def close(self) -> None:
        """End what was started for the first grammar."""
        if self._checker is not None:
            self._checker.close()

    def matcher(self, params: StructuredOutputsParams) -> Matcher:
        """A new matcher of a grammar that was compiled and is held. Raises KeyError for any other."""
        return self._grammar_by_params[params].matcher()

    def _compile(self, params: StructuredOutputsParams) -> Grammar:
        from octavo.structured.grammar import Grammar, make_tokenizer

        kind, source = params.constraint
        try:
            if not self._vocabulary.eos_token_ids:
                raise ValueError("the model has no end-of-sequence token, without which no output is ever complete")
            if self._checker is None or self._tokenizer is None:
                self._checker = GrammarChecker(self._vocabulary)  # it builds a tokenizer of its own meanwhile
                self._tokenizer = make_tokenizer(self._vocabulary)
            return Grammar(self._tokenizer, self._checker.check(kind, source))
        except ValueError as error:
            message = f"structured_outputs: this {kind} cannot be compiled: {error}"
            raise RequestRejected("invalid_grammar", message, "structured_outputs") from error
