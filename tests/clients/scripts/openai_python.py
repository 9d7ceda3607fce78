"""openai for Python: `OpenAI(base_url=URL/v1)`."""

from __future__ import annotations

import openai

from steps import API_KEY, MODEL, QUESTION, TOO_LONG, URL, run_steps, step

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=API_KEY)
conversation = [{"role": "user", "content": QUESTION}]


@step
def plain() -> None:
    """A question, and one about the answer."""
    answer = ask(conversation)
    follow_up = [*conversation, {"role": "assistant", "content": answer}, {"role": "user", "content": "And of Italy?"}]
    assert ask(follow_up) != answer


def ask(messages) -> str:
    """The answer to a conversation."""
    completion = client.chat.completions.create(model=MODEL, messages=messages, temperature=0, stop=["."])
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
    assert completion.choices[0].finish_reason == "stop"
    return completion.choices[0].message.content


@step
def streamed() -> None:
    """The same text, piece by piece."""
    with client.chat.completions.stream(
        model=MODEL, messages=conversation, temperature=0, stop=["."], stream_options={"include_usage": True}
    ) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        completion = stream.get_final_completion()
    assert len(pieces) > 1
    assert "".join(pieces) == completion.choices[0].message.content == ask(conversation)
    assert completion.usage.completion_tokens >= len(pieces)


@step
def embeddings() -> None:
    """Refused: this is a model that generates."""
    try:
        client.embeddings.create(model=MODEL, input="text")
    except (openai.NotFoundError, openai.BadRequestError) as error:
        assert error.code, error.body
    else:
        raise AssertionError("not refused")


@step
def errors() -> None:
    """An unknown model and a prompt too long, streamed or not."""
    try:
        client.chat.completions.create(model="unknown", messages=conversation)
    except openai.NotFoundError as error:
        assert error.code == "model_not_found" and error.request_id, error.body
    for stream in (False, True):
        try:
            client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": TOO_LONG}], stream=stream)
        except openai.BadRequestError as error:
            assert error.code == "context_length_exceeded" and "maximum context length" in error.message, error.body
        else:
            raise AssertionError("not refused")


if __name__ == "__main__":
    run_steps()
