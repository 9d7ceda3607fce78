"""instructor: around an openai client whose `base_url` is octavo's address with /v1."""

from __future__ import annotations

import instructor
import openai
from instructor.exceptions import InstructorRetryException

import steps
from person import PERSON_QUESTION, Person
from steps import API_KEY, MODEL, URL, step

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=API_KEY)
request = {
    "model": MODEL,
    "messages": [{"role": "user", "content": PERSON_QUESTION}],
    "max_tokens": 64,
    "temperature": 0,
    "max_retries": 0,
}


def create(mode: instructor.Mode) -> Person:
    """A person, asked for in one of instructor's ways."""
    return instructor.from_openai(client, mode=mode).create(response_model=Person, **request)


@step
def streamed() -> None:
    """A person that grows, until it is the same as the one made at once."""
    people = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).create_partial(
        response_model=Person, **request
    )
    *_, last = people
    assert last.model_dump() == create(instructor.Mode.JSON_SCHEMA).model_dump()


@step
def tools() -> None:
    """A person as the arguments of a tool."""
    assert isinstance(create(instructor.Mode.TOOLS), Person)


@step
def structured() -> None:
    """A person by a schema."""
    assert isinstance(create(instructor.Mode.JSON_SCHEMA), Person)


@step
def responses() -> None:
    """A person as the arguments of a tool, by the other API."""
    responding = instructor.from_openai(client, mode=instructor.Mode.RESPONSES_TOOLS)
    person = responding.responses.create(
        model=MODEL, input=PERSON_QUESTION, response_model=Person, max_output_tokens=64, max_retries=0
    )
    assert isinstance(person, Person)


@step
def errors() -> None:
    """An unknown model, and a prompt that is too long."""
    patched = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    too_long = [{"role": "user", "content": steps.TOO_LONG}]
    for wrong, code in (({"model": "unknown"}, "model_not_found"), ({"messages": too_long}, "context_length_exceeded")):
        error = steps.check_raises(
            InstructorRetryException, lambda wrong=wrong: patched.create(response_model=Person, **request | wrong)
        )
        assert code in str(error), error


if __name__ == "__main__":
    steps.run_steps()
