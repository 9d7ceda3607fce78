from __future__ import annotations

from typing import Any

import pytest

from octavo.core.admission import AdmissionLimits, RequestRejected
from octavo.core.sampling_params import ParameterError, SamplingParams
from octavo.engine import input_processor
from octavo.engine.input_processor import InputProcessor, derive_seed, prompt_text
from octavo.engine.request_terms import RequestTerms
from octavo.engine.tokenizer import Tokenizer

VOCAB_SIZE = 259


@pytest.fixture
def make(tiny_tokenizer: Tokenizer):
    def make_processor(**changes):
        limits = AdmissionLimits(max_model_len=64, num_blocks=4, block_size=16)
        settings: dict[str, Any] = {
            "vocab_size": VOCAB_SIZE,
            "max_logprobs": 5,
            "eos_token_ids": [2, 1],
            "seed": 0,
        } | changes
        return InputProcessor(tiny_tokenizer, limits, **settings)

    return make_processor


def test_a_request_holds_what_the_core_needs(make):
    params = SamplingParams(seed=9)
    request = make().process(
        "Hi", params, terms=RequestTerms(priority=3, tenant="t", cache_salt="s", timeout_s=2.0), arrival_s=1.5
    )
    assert request.prompt_token_ids == (ord("H") + 3, ord("i") + 3)
    assert request.sampling_params is params
    assert (request.seed, request.eos_token_ids) == (9, (2, 1))
    assert (request.priority, request.tenant, request.cache_salt) == (3, "t", "s")
    assert (request.arrival_s, request.queue_deadline_s, request.deadline_s) == (1.5, None, 3.5)


@pytest.mark.parametrize(
    ("prompt", "token_ids", "text"),
    [
        ("A", (68,), "A"),
        ([5, VOCAB_SIZE - 1], (5, VOCAB_SIZE - 1), None),
        ((5, 6), (5, 6), None),
        ({"prompt": "A"}, (68,), "A"),
        ({"prompt_token_ids": [5]}, (5,), None),
        ({"prompt": "shown", "prompt_token_ids": [5]}, (5,), "shown"),
    ],
)
def test_every_form_of_a_prompt(make, prompt, token_ids, text):
    assert make().process(prompt, SamplingParams()).prompt_token_ids == token_ids
    assert prompt_text(prompt) == text


@pytest.mark.parametrize("bad", [-1, VOCAB_SIZE, 2**31, 2**63, 1.5, 1.0, "1", True, None, [5]])
@pytest.mark.parametrize("wrap", [lambda ids: ids, lambda ids: {"prompt_token_ids": ids}])
def test_ids_outside_the_vocabulary_are_refused_among_good_ones(make, bad, wrap):
    processor = make()
    for ids in ([bad], [5, bad, 6]):
        with pytest.raises(ParameterError, match=f"integers from 0 to {VOCAB_SIZE - 1}") as refusal:
            processor.process(wrap(ids), SamplingParams())
        assert refusal.value.param == "prompt"
    assert processor.process([5, VOCAB_SIZE - 1], SamplingParams()).prompt_token_ids == (5, VOCAB_SIZE - 1)


@pytest.mark.parametrize("prompt", [None, 5, {}, {"prompt": None}, {"prompt": [5]}, {"prompt_token_ids": 5}, b"A"])
def test_what_is_no_prompt_is_refused(make, prompt):
    with pytest.raises(ParameterError) as refusal:
        make().process(prompt, SamplingParams())
    assert refusal.value.param == "prompt"


@pytest.mark.parametrize("prompt", ["", [], {"prompt": ""}, {"prompt_token_ids": []}])
def test_a_prompt_without_tokens_is_refused(make, prompt):
    with pytest.raises(RequestRejected, match="no tokens"):
        make().process(prompt, SamplingParams())


def test_half_a_surrogate_pair_is_refused(make):
    with pytest.raises(ParameterError, match="surrogate"):
        make().process("A\ud800", SamplingParams())


def test_a_prompt_that_leaves_no_room_is_refused(make):
    assert make().process("x" * 63, SamplingParams())
    with pytest.raises(RequestRejected, match="maximum context length is 64 tokens and the prompt has 64"):
        make().process("x" * 64, SamplingParams())


def test_stop_ids_must_exist(make):
    assert make().process("A", SamplingParams(stop_token_ids=(VOCAB_SIZE - 1,)))
    with pytest.raises(ParameterError, match=str(VOCAB_SIZE)) as refusal:
        make().process("A", SamplingParams(stop_token_ids=(5, VOCAB_SIZE)))
    assert refusal.value.param == "stop_token_ids"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("allowed_token_ids", [0, VOCAB_SIZE - 1], [5, VOCAB_SIZE]),
        ("logit_bias", {VOCAB_SIZE - 1: 1.0}, {5: 1.0, VOCAB_SIZE: 1.0}),
    ],
)
def test_ids_with_rules_must_exist(make, name, good, bad):
    assert make().process("A", SamplingParams(**{name: good}))
    with pytest.raises(ParameterError, match=f"{name} holds {VOCAB_SIZE}; .* 0 to {VOCAB_SIZE - 1}") as refusal:
        make().process("A", SamplingParams(**{name: bad}))
    assert refusal.value.param == name


def test_bad_words_become_sequences_of_ids(make, monkeypatch):
    processor = make()
    params = SamplingParams(bad_words=("no", "!"))
    expected = ((ord("n") + 3, ord("o") + 3), (ord("!") + 3,))
    assert processor.process("A", params).bad_word_token_ids == expected
    assert processor.process("A", SamplingParams()).bad_word_token_ids == ()
    monkeypatch.setattr(Tokenizer, "encode", None)  # they are known by now
    assert processor.process([5], params).bad_word_token_ids == expected


def test_a_request_that_could_not_choose_its_first_token_is_refused(make):
    ends: dict[str, Any] = {"allowed_token_ids": (2, 7), "stop_token_ids": (7,)}
    assert make().process("A", SamplingParams(**ends))
    assert make().process("A", SamplingParams(**ends, min_tokens=1, ignore_eos=True))  # 2 is left
    for params in (
        SamplingParams(**ends, min_tokens=1),
        SamplingParams(allowed_token_ids=(ord("!") + 3,), bad_words=("!",)),
        SamplingParams(allowed_token_ids=(2, ord("!") + 3), bad_words=("!",), min_tokens=1),
    ):
        with pytest.raises(ParameterError, match="holds only ids that bad_words bans") as refusal:
            make().process("A", params)
        assert refusal.value.param == "allowed_token_ids"


def test_end_tokens_beyond_the_vocabulary_end_nothing(make):
    assert make(eos_token_ids=[VOCAB_SIZE, 2]).process("A", SamplingParams()).eos_token_ids == (2,)


def test_logprobs_have_a_limit_that_the_vocabulary_bounds(make):
    assert make().process("A", SamplingParams(logprobs=5))
    with pytest.raises(ParameterError, match=r"logprobs is 6; at most 5 .*--max-logprobs") as refusal:
        make().process("A", SamplingParams(logprobs=6))
    assert refusal.value.param == "logprobs"
    with pytest.raises(ParameterError, match=f"at most {VOCAB_SIZE}"):
        make(max_logprobs=10**6).process("A", SamplingParams(logprobs=VOCAB_SIZE + 1))


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
@pytest.mark.parametrize("count", [-2, -1, 0, 1, 20, 21, VOCAB_SIZE, VOCAB_SIZE + 1, 10**6, 2**31])
def test_a30_log_probabilities_beyond_the_limit(make, name, count):
    for limit in (20, -1):
        largest = VOCAB_SIZE if limit == -1 else limit
        resolved = VOCAB_SIZE if count == -1 else count
        if 0 <= resolved <= largest:
            request = make(max_logprobs=limit).process("A", SamplingParams(**{name: count}))
            assert getattr(request.sampling_params, name) == resolved
        else:
            with pytest.raises(ParameterError) as refusal:
                make(max_logprobs=limit).process("A", SamplingParams(**{name: count}))
            assert refusal.value.param == name


def test_the_log_probabilities_of_a_prompt_are_bounded_in_all(make, monkeypatch):
    monkeypatch.setattr(input_processor, "MAX_PROMPT_LOGPROBS", 12)
    make().process("ABCD", SamplingParams(prompt_logprobs=2))
    for prompt, count in (("ABCDE", 2), ("ABCD", 3)):
        with pytest.raises(ParameterError, match=r"over \d tokens; at most 12 are allowed") as refusal:
            make().process(prompt, SamplingParams(prompt_logprobs=count))
        assert refusal.value.param == "prompt_logprobs"


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"truncate_prompt_tokens": 1}, "D"),
        ({"truncate_prompt_tokens": 3}, "BCD"),
        ({"truncate_prompt_tokens": 4}, "ABCD"),
        ({"truncate_prompt_tokens": 2**31 - 1}, "ABCD"),
        ({"truncate_prompt_tokens": -1}, "ABCD"),
        ({"truncate_prompt_tokens": -1, "max_tokens": 62}, "CD"),
        ({"truncate_prompt_tokens": -1, "max_tokens": 64}, "D"),
    ],
)
def test_a_prompt_is_truncated_from_its_beginning(make, params, kept):
    for prompt in ("ABCD", [68, 69, 70, 71]):
        request = make().process(prompt, SamplingParams(**params))
        assert request.prompt_token_ids == tuple(ord(character) + 3 for character in kept)


def test_a_prompt_far_too_long_is_cut_to_what_fits(make):
    params = SamplingParams(truncate_prompt_tokens=-1, max_tokens=None)
    assert len(make().process("A" * 1000, params).prompt_token_ids) == 63
    with pytest.raises(ParameterError, match="truncate_prompt_tokens is 0"):
        SamplingParams(truncate_prompt_tokens=0)


def test_errors_stay_short(make):
    with pytest.raises(ParameterError) as refusal:
        make().process(["x" * 10**6], SamplingParams())
    assert len(str(refusal.value)) < 200


def test_request_ids_are_unique_and_made_here(make):
    processor = make()
    assert len({processor.process("A", SamplingParams()).request_id for _ in range(20)}) == 20


def test_seeds_follow_the_engines_seed_and_the_requests_place(make):
    def seeds(seed, count=4):
        processor = make(seed=seed)
        return [processor.process("A", SamplingParams()).seed for _ in range(count)]

    assert seeds(1) == seeds(1)
    assert seeds(1) != seeds(2)
    assert len(set(seeds(1, 100))) == 100
    assert seeds(None) != seeds(None)


def test_a_requests_own_seed_changes_nothing_for_its_neighbours(make):
    mixed, plain = make(seed=1), make(seed=1)
    mixed.process("A", SamplingParams(seed=5))
    plain.process("A", SamplingParams())
    assert mixed.process("A", SamplingParams()).seed == plain.process("A", SamplingParams()).seed


def test_a_negative_seed_is_a_key_of_64_bits(make):
    assert make().process("A", SamplingParams(seed=-1)).seed == 2**64 - 1
    assert 0 <= derive_seed(-(2**63), 3) < 2**64
