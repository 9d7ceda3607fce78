"""octavo chat: a conversation on the terminal."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from octavo.cli.options import SamplingOptions


@dataclass(frozen=True, kw_only=True)
class ChatOptions(SamplingOptions):
    """What `octavo chat` can be told."""

    system: Annotated[str, typer.Option(help="What the model is told before the conversation.")] = ""


def chat(options: ChatOptions) -> None:
    """Talk to a model. Ctrl-C stops an answer, Ctrl-D leaves."""
    from octavo.cli.session import open_session

    options.sampling_params()  # what is wrong is said before the model is loaded
    messages: list[dict[str, Any]] = [{"role": "system", "content": options.system}] if options.system else []
    with open_session(options.engine_config()) as session:
        params = options.sampling_params(session.sampling_defaults)
        typer.echo("Ctrl-C stops an answer, Ctrl-D leaves.", err=True)
        while (question := _ask()) is not None:
            if not question.strip():
                continue
            messages.append({"role": "user", "content": question})
            answer = session.answer(messages, params)
            messages.append({"role": "assistant", "content": answer.text})


def _ask() -> str | None:
    """The next line of the user; None when there is none. Ctrl-C is heard here and, by the session, in answers."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return input("> ")
    except KeyboardInterrupt:
        print()
        return ""
    except EOFError:
        print()
        return None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
