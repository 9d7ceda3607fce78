"""octavo generate and octavo chat, as somebody at a terminal uses them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from octavo.backends.native.isa import runnable_isas
from tests.e2e.server_process import children_of

OCTAVO = [sys.executable, "-c", "from octavo.cli import main; main()"]
GREEDY = ["--temperature", "0", "--max-tokens", "20"]
PARAMS = SamplingParams(temperature=0, max_tokens=20)


@pytest.fixture(scope="module")
def llm(tiny_model: Path):
    with LLM(str(tiny_model)) as llm:
        yield llm


def run(*arguments: str, answers: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OCTAVO, *arguments], input=answers, capture_output=True, text=True, timeout=60)


def start_chat(model: Path, max_tokens: int) -> subprocess.Popen[bytes]:
    """A chat that asks for the first question, in a process group of its own, as on a terminal."""
    command = [*OCTAVO, "chat", str(model), "--max-tokens", str(max_tokens)]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    chat = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, start_new_session=True)
    assert chat.stdout and chat.stdout.read(2) == b"> "
    return chat


def test_generate(tiny_model, llm):
    finished = run("generate", str(tiny_model), "Once upon", *GREEDY)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == llm.generate("Once upon", PARAMS)[0].outputs[0].text + "\n"


def test_the_user_chooses_the_precision(tiny_model, llm):
    arguments = ["generate", str(tiny_model), "Once upon", *GREEDY]
    with LLM(str(tiny_model), quantization="int4") as llm_of_int4:
        quantized = llm_of_int4.generate("Once upon", PARAMS)[0].outputs[0].text
    assert quantized != llm.generate("Once upon", PARAMS)[0].outputs[0].text
    assert run(*arguments, "--quantization", "int4").stdout == quantized + "\n"
    refused = run(*arguments, "--backend", "reference", "--dtype", "bfloat16")
    assert refused.returncode == 2
    assert "reference backend computes in float32" in " ".join(refused.stderr.split())


def test_chat_remembers(tiny_model, llm):
    messages = [{"role": "system", "content": "Be brief."}]
    expected = ""
    for question in ("One", "Two"):
        messages.append({"role": "user", "content": question})
        answer = llm.chat(messages, PARAMS)[0].outputs[0].text
        messages.append({"role": "assistant", "content": answer})
        expected += f"> {answer}\n"
    finished = run("chat", str(tiny_model), "--system", "Be brief.", *GREEDY, answers="One\n\nTwo\n")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.replace("> > ", "> ") == expected + "> \n"


def test_ctrl_c_stops_the_answer_and_ctrl_d_leaves(tiny_model):
    chat = start_chat(tiny_model, max_tokens=200)
    assert chat.stdin and chat.stdout
    [engine_id] = children_of(chat.pid)
    for _ in range(2):
        chat.stdin.write(b"Tell me.\n")
        chat.stdin.flush()
        printed = chat.stdout.read(1)
        os.kill(engine_id, signal.SIGSTOP)  # so that the answer does not end by itself
        os.killpg(chat.pid, signal.SIGINT)  # as a terminal does: to every process of the group
        while not printed.endswith(b"\n> "):
            piece = chat.stdout.read(1)
            assert piece, printed
            printed += piece
        os.kill(engine_id, signal.SIGCONT)
    chat.stdin.close()
    assert chat.wait(60) == 0


def test_ctrl_c_at_the_end_of_an_answer_does_not_end_the_chat(tiny_model):
    chat = start_chat(tiny_model, max_tokens=1)
    assert chat.stdin and chat.stdout
    for _ in range(8):
        chat.stdin.write(b"Tell me.\n")
        chat.stdin.flush()
        assert chat.stdout.read(1)
        os.kill(chat.pid, signal.SIGINT)
    chat.stdin.close()
    assert b">" in chat.stdout.read()
    assert chat.wait(60) == 0


def test_mistakes_are_one_line(tiny_model, tmp_path):
    for arguments, words in [
        (["generate", str(tmp_path / "none"), "Hi"], "there is no"),
        (["generate", str(tiny_model), "x" * 600], "maximum context length"),
        (["chat", str(tmp_path / "none")], "there is no"),
    ]:
        finished = run(*arguments)
        assert finished.returncode == 1
        [line] = finished.stderr.splitlines()
        assert words in line
    finished = run("generate", str(tiny_model), "Hi", "--temperature", "5")
    assert finished.returncode == 2
    assert "temperature is 5.0" in finished.stderr


def test_help_costs_little():
    """Neither numpy nor the engine is imported to say what the commands are."""
    code = "import sys, octavo.cli; sys.exit(bool({'numpy', 'uvicorn', 'tokenizers'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("isa", runnable_isas())
def test_doctor_names_the_kernels_that_run(monkeypatch, isa):
    monkeypatch.setenv("OCTAVO_ISA", isa)
    finished = run("doctor")
    assert finished.returncode == 0, finished.stderr
    [line] = [line for line in finished.stdout.splitlines() if "run here;" in line]
    assert line.startswith(f"{isa} kernels")


def test_doctor_says_what_cannot_run(monkeypatch):
    monkeypatch.setenv("OCTAVO_ISA", "mmx")
    finished = run("doctor")
    assert finished.returncode == 1
    assert "OCTAVO_ISA='mmx' cannot run here" in finished.stderr
