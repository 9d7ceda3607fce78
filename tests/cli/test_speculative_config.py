from __future__ import annotations

import pytest
import typer

from octavo.cli.options import EngineOptions
from octavo.config import SpeculativeConfig


def test_json_on_the_command_line_becomes_a_configuration():
    options = EngineOptions(model="m", speculative_config='{"method": "ngram", "num_speculative_tokens": 5}')
    assert options.engine_config().speculative_config == SpeculativeConfig("ngram", 5)
    assert EngineOptions(model="m").engine_config().speculative_config is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{ngram}", "speculative_config is '{ngram}', which is not JSON"),
        ("5", "speculative_config is 5; it must be a JSON object"),
        ('{"method": "ngram", "tokens": 5}', "does not know tokens; it knows method"),
    ],
)
def test_anything_else_is_a_usage_error(text, message):
    with pytest.raises(typer.BadParameter, match=message):
        EngineOptions(model="m", speculative_config=text).engine_config()
