from __future__ import annotations

import pytest

from octavo.core.messages import EngineRequest, RequestOutput
from octavo.sim.solo import continue_solo, extend_digest
from octavo.sim.streams import Streams, WrongAnswerError
from tests.core.engine_requests import make_request

REQUEST = make_request("r", [1, 2, 3], n=2, seed=5, max_tokens=4)


def solo(request: EngineRequest, index: int = 0):
    return continue_solo(request, index, max_model_len=50, vocab_size=20)


def opened() -> Streams:
    streams = Streams(max_model_len=50, vocab_size=20)
    streams.open(REQUEST)
    return streams


def test_solo_answers_follow_the_parameters():
    free = solo(make_request("r", [1], seed=3, max_tokens=40)).token_ids
    assert len(free) == 40
    first = free[0]
    assert solo(make_request("r", [1], seed=3, eos=(first,), max_tokens=40)).token_ids == free[:1]
    assert solo(make_request("r", [1], seed=3, eos=(first,), ignore_eos=True, max_tokens=40)).token_ids == free
    kept_alive = solo(make_request("r", [1], seed=3, stop_token_ids=(first,), min_tokens=1, max_tokens=40))
    again = free.index(first, 1)
    assert (kept_alive.token_ids, kept_alive.stop_reason) == (free[: again + 1], first)
    assert len(solo(make_request("r", [1], max_tokens=None)).token_ids) == 49
    assert solo(REQUEST, 1) == solo(make_request("r", [1, 2, 3], seed=6, max_tokens=4))


def test_a_digest_depends_on_all_that_came_before():
    digests = {extend_digest(digest, token, position) for digest in (0, 1) for token in (0, 1) for position in (0, 1)}
    assert len(digests) == 8


def test_right_streams_end_once():
    streams = opened()
    for index in range(2):
        answer = solo(REQUEST, index).token_ids
        assert streams.take([RequestOutput("r", index, answer[:1])]) == []
        (ended,) = streams.take([RequestOutput("r", index, answer[1:], finish_reason="length")])
        assert tuple(ended.token_ids) == answer
    streams.check_all_ended()
    with pytest.raises(WrongAnswerError, match="comes after the end, length"):
        streams.take([RequestOutput("r", 0, (1,))])


def test_a_prompt_is_scored_once_with_the_first_token_of_the_first_choice():
    request = make_request("s", [1, 2, 3], n=2, seed=5, max_tokens=4, prompt_logprobs=0)
    (token_ids, scores), other = ((solo(request, i).token_ids, solo(request, i).prompt_logprobs) for i in range(2))
    assert len(set(scores)) == 2 and other[1] == ()

    def take(*outputs):
        streams = Streams(max_model_len=50, vocab_size=20)
        streams.open(request)
        streams.take(outputs)

    first = RequestOutput("s", 0, token_ids[:1], prompt_logprobs=scores)
    take(first, RequestOutput("s", 0, token_ids[1:2]), RequestOutput("s", 1, other[0][:1]))
    for wrong in (
        [RequestOutput("s", 0, token_ids[:1])],
        [RequestOutput("s", 0, token_ids[:1], prompt_logprobs=scores[::-1])],
        [first, RequestOutput("s", 0, token_ids[1:2], prompt_logprobs=scores)],
        [RequestOutput("s", 1, other[0][:1], prompt_logprobs=scores)],
    ):
        with pytest.raises(WrongAnswerError, match="scores the prompt otherwise than alone, or not once"):
            take(*wrong)


ANSWER = solo(REQUEST).token_ids
WRONG_OUTPUTS = {
    "another token": RequestOutput("r", 0, (20,)),
    "too short": RequestOutput("r", 0, ANSWER[:3], finish_reason="length"),
    "too long": RequestOutput("r", 0, (*ANSWER, 1)),
    "another reason": RequestOutput("r", 0, ANSWER, finish_reason="stop"),
    "a stop reason": RequestOutput("r", 0, ANSWER, finish_reason="length", stop_reason=1),
    "an abort that nobody asked for": RequestOutput("r", 0, (), finish_reason="abort"),
    "an error without a word": RequestOutput("r", 0, (), finish_reason="error"),
}


@pytest.mark.parametrize("what", WRONG_OUTPUTS)
def test_wrong_streams_are_told(what):
    with pytest.raises(WrongAnswerError, match="alone it is"):
        opened().take([WRONG_OUTPUTS[what]])


def test_an_abort_is_expected_of_those_it_was_asked_for():
    streams = opened()
    streams.allow_abort("r", 1)
    streams.take([RequestOutput("r", 1, (), finish_reason="abort")])
    with pytest.raises(WrongAnswerError):
        streams.take([RequestOutput("r", 0, (), finish_reason="abort")])
    with pytest.raises(WrongAnswerError, match=r"no end came for \[\('r', 0\)\]"):
        streams.check_all_ended()
