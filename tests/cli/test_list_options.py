"""Options with several values after them."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from octavo.cli.list_options import ListOptionsCommand, spread
from octavo.cli.options import command
from octavo.cli.serve import ServeOptions

NAMES = {"--name", "--key"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("model --name a b c", "model --name a --name b --name c"),
        ("model --name a --name b", "model --name a --name b"),
        ("model --name a b --port 5 --key c d", "model --name a --name b --port 5 --key c --key d"),
        ("model --name=a b", "model --name=a b"),
        ("model --name", "model --name"),
        ("model --name --port 5", "model --name --port 5"),
        ("--name a model", "--name a model"),  # which of them is the model?
        ("model", "model"),
        ("", ""),
    ],
)
def test_spread(line, expected):
    assert spread(line.split(), NAMES) == expected.split()


def serve_options(*args: str, env: dict[str, str] | None = None) -> ServeOptions:
    parsed: list[ServeOptions] = []
    app = typer.Typer()
    app.command(cls=ListOptionsCommand)(command(ServeOptions, parsed.append))
    result = CliRunner().invoke(app, args, env=env, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return parsed[0]


def test_what_serve_is_told():
    config = serve_options("model", "--served-model-name", "a", "b", "--api-key", "k").server_config()
    assert (config.model_names, config.api_keys, config.allowed_origins) == (("a", "b"), ("k",), ("*",))
    options = serve_options("--served-model-name", "a", "model", "--allowed-origins", "https://x")
    assert options.engine_config().served_model_name == "a"  # in the metrics, too
    assert (options.model, options.server_config().model_names) == ("model", ("a",))
    assert options.server_config().allowed_origins == ("https://x",)
    config = serve_options("model", env={"OCTAVO_API_KEY": "k1 k2"}).server_config()
    assert config.api_keys == ("k1", "k2")
    assert serve_options("model", "--api-key", "k3", env={"OCTAVO_API_KEY": "k1"}).server_config().api_keys == ("k3",)


@pytest.mark.parametrize("args", [["--api-key", ""], ["--ssl-keyfile", "x"]])
def test_what_serve_refuses(args):
    with pytest.raises(typer.BadParameter):
        serve_options("model", *args).server_config()
