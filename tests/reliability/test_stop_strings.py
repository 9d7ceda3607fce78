"""A15: a stop string within tokens, across tokens, streamed and whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from octavo import LLM, SamplingParams
from octavo.core.sampling_params import RequestOutputKind
from octavo.engine.output_processor import OutputProcessor
from octavo.engine.outputs import CompletionOutput
from tests.engine.tiny_model import byte_id

NUM_SAMPLES = 300
NUM_TOKENS = 60
MAX_STOP_CHARS = 12
# Few letters, so that beginnings of stop strings are everywhere; and the bytes of some characters, in any order.
ALPHABET = tuple(sorted(byte_id(byte) for byte in set("ab. é안".encode())))
BASELINE = SamplingParams(max_tokens=NUM_TOKENS, seed=15, temperature=1.5, allowed_token_ids=ALPHABET)


@dataclass
class Streamed:
    """The deltas of one request put together, and how it ended."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    end: tuple[str | None, int | str | None] = (None, None)

    def add(self, choice: CompletionOutput) -> None:
        assert self.end == (None, None)
        self.text += choice.text
        self.token_ids += choice.token_ids
        self.end = choice.finish_reason, choice.stop_reason


@pytest.fixture(scope="module")
def llm(tiny_model: Path) -> Iterator[LLM]:
    with LLM(str(tiny_model), num_threads=1, max_model_len=128) as llm:
        yield llm


@pytest.fixture(scope="module")
def baseline(llm: LLM) -> str:
    """The text without stop strings."""
    [output] = llm.generate("stop", BASELINE)
    text = output.outputs[0].text
    assert len(output.outputs[0].token_ids) == NUM_TOKENS and len(set(text)) > 4
    return text


def with_stop(*stop: str, **fields) -> SamplingParams:
    settings = {name: getattr(BASELINE, name) for name in ("max_tokens", "seed", "temperature", "allowed_token_ids")}
    return SamplingParams(**settings | fields, stop=stop)


def stream(llm: LLM, params: list[SamplingParams]) -> list[Streamed]:
    """The same requests, their outputs taken as a server takes them: what is new, step by step."""
    core, outputs = llm.engine.core, OutputProcessor(llm.get_tokenizer())
    streamed: dict[str, Streamed] = {}
    for one in params:
        request = llm._input_processor.process("stop", one)
        streamed[request.request_id] = Streamed()
        outputs.add_request(request)
        core.add_request(request)
    while core.has_unfinished:
        processed = outputs.process(core.step().outputs)
        for request_id, index in processed.stopped:
            core.abort_request(request_id, index)
        for output in processed.outputs:
            streamed[output.request_id].add(output.outputs[0])
    return list(streamed.values())


def first_end(text: str, stops: tuple[str, ...]) -> tuple[int, str]:
    """Where the stop string that ends first ends, of several that end there the longest."""
    return min(((text.index(stop) + len(stop), stop) for stop in stops), key=lambda found: (found[0], -len(found[1])))


def substrings(text: str, random: Random) -> list[str]:
    known = {text[i : i + size] for size in range(1, MAX_STOP_CHARS + 1) for i in range(len(text) - size + 1)}
    return random.sample(sorted(known), NUM_SAMPLES)


@pytest.mark.parametrize("includes", [False, True])
def test_a15_every_piece_of_the_text_stops_it_where_it_first_occurs(llm, baseline, includes):
    check(llm, baseline, [(stop,) for stop in substrings(baseline, Random(15))], includes)


@pytest.mark.parametrize("includes", [False, True])
def test_a15_of_several_the_earliest_wins(llm, baseline, includes):
    random = Random(16)
    pieces = iter(substrings(baseline, random))
    check(llm, baseline, [tuple(group) for group in zip(pieces, pieces, pieces, strict=True)], includes)


def check(llm: LLM, baseline: str, stops: Sequence[tuple[str, ...]], includes: bool) -> None:
    delta = {"output_kind": RequestOutputKind.DELTA, "include_stop_str_in_output": includes}
    streams = stream(llm, [with_stop(*stop, **delta) for stop in stops])
    whole = llm.generate(
        ["stop"] * len(stops), [with_stop(*stop, include_stop_str_in_output=includes) for stop in stops]
    )
    for stop, streamed, output in zip(stops, streams, whole, strict=True):
        end, found = first_end(baseline, stop)
        choice = output.outputs[0]
        assert choice.text == baseline[: end if includes else end - len(found)], stop
        assert (choice.finish_reason, choice.stop_reason) == ("stop", found)
        assert streamed == Streamed(choice.text, choice.token_ids, ("stop", found))
        assert len(choice.token_ids) <= NUM_TOKENS


def test_a15_what_does_not_occur_changes_nothing(llm, baseline):
    stops = [f"{baseline[i : i + 3]}\0" for i in range(0, 40, 7)]
    for streamed, output in zip(
        stream(llm, [with_stop(*stops, output_kind=RequestOutputKind.DELTA)]),
        llm.generate(["stop"], with_stop(*stops)),
        strict=True,
    ):
        assert streamed.text == output.outputs[0].text == baseline
        assert streamed.end == ("length", None)


def test_a15_the_first_min_tokens_do_not_stop_it(llm, baseline):
    first = baseline[0]
    later = baseline.index(first, 30)
    [output] = llm.generate("stop", with_stop(first, min_tokens=NUM_TOKENS))
    assert output.outputs[0].text == baseline
    tokens_until = next(
        number
        for number in range(1, NUM_TOKENS)
        if len(llm.get_tokenizer().decode(output.outputs[0].token_ids[:number], skip_special_tokens=True)) > later - 1
    )
    [output] = llm.generate("stop", with_stop(first, min_tokens=tokens_until))
    assert output.outputs[0].text == baseline[: baseline.index(first, later)]
