"""The dashboard in a real browser, while the engine is under load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import PROGRAM, Page
from tests.e2e.server_process import ServerProcess

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed; `apt-get install chromium` brings one"),
]

KEY = "a-key"
ROWS = "document.querySelectorAll('#requests li').length"
COLOURS = """(() => {  // how many different ones the grid of blocks has
    const canvas = document.querySelector('canvas');
    const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return new Set(pixels).size;
})()"""


def text(element_id: str) -> str:
    return f"document.getElementById('{element_id}').textContent"


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tiny_model, "--max-num-seqs", "4", "--api-key", KEY) as server:
        yield server.wait_until_ready()


@pytest.fixture
def load(server: ServerProcess) -> Iterator[None]:
    """Requests of which four run and others wait, for as long as the test lasts."""
    command = [sys.executable, "-c", "from octavo.cli import main; main()", "bench", "serve"]
    lengths = ["--input-len", "150", "--prefix-len", "100", "--output-len", "200"]
    options = ["--base-url", server.url, "--api-key", KEY, "--num-prompts", "5000", "--max-concurrency", "10"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen([*command, *options, *lengths], stdout=quiet, stderr=quiet) as client:
        yield
        client.terminate()


def test_the_page_shows_the_engine_at_work(server, load):
    with Page() as page:
        page.open(f"{server.url}/dashboard")
        page.wait_for("document.querySelector('form').hidden === false")  # the server wants a key
        page.evaluate(f"document.querySelector('input').value = '{KEY}'; document.querySelector('button').click()")
        page.wait_for(f"{text('state')} === 'serving' && {ROWS} >= 6 && {COLOURS} > 5")
        assert page.evaluate(text("num-running")) == "4"
        assert int(page.evaluate(text("num-waiting"))) >= 2
        note = page.evaluate(text("block-note"))
        assert "held by one request" in note and " 0 shared" not in note
        page.wait_for("document.querySelectorAll('#steps rect.answers').length > 20")
        page.wait_for("document.querySelectorAll('#throughput path').length == 1")
        assert page.evaluate("document.querySelector('canvas').ariaLabel").startswith("KV blocks: ")
        page.evaluate("document.querySelector('#requests li').dispatchEvent(new PointerEvent('pointerenter'))")
        assert page.evaluate("document.querySelectorAll('#requests li.focused').length") == 1
        others = [error for error in page.errors if "401" not in str(error)]  # before the key was given
        assert not others
        assert all(url.startswith((server.url, "data:")) for url in page.urls)


@pytest.mark.parametrize(("width", "is_dark"), [(1280, False), (390, True)])
def test_nothing_sticks_out_of_the_window(server, width, is_dark):
    with Page(width, 800, is_dark=is_dark) as page:
        page.open(f"{server.url}/dashboard")
        page.evaluate(f"sessionStorage.setItem('octavo-key', '{KEY}')")
        page.wait_for(f"{text('request-note')}.startsWith('Nobody asks')")  # the load has ended
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(19, 20, 23)") is is_dark


def test_a_hidden_page_asks_for_nothing_and_a_dead_server_is_told(tiny_model):
    with ServerProcess(tiny_model) as own, Page() as page:
        own.wait_until_ready()
        page.open(f"{own.url}/dashboard")
        page.wait_for(f"{text('state')} === 'serving'")
        page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
        page.evaluate("new Promise(done => setTimeout(done, 1200))")
        num_asked = len(page.urls)
        page.evaluate("new Promise(done => setTimeout(done, 1500))")
        assert len(page.urls) == num_asked
        page.evaluate("Object.defineProperty(document, 'hidden', { value: false })")
        own.process.kill()
        page.wait_for(f"{text('state')}.startsWith('no answer')")
