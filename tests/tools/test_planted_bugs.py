"""Each planted bug still finds its place; whether it is noticed is what `make mutants` sees."""

from __future__ import annotations

import pytest

from tools.mutants import PACKAGE, plant
from tools.planted_bugs import PLANTED_BUGS, PlantedBug


@pytest.mark.parametrize("bug", PLANTED_BUGS, ids=lambda bug: bug.what)
def test_a_bug_can_be_planted(bug, tmp_path):
    path = tmp_path / bug.file
    path.write_text((PACKAGE / "core" / bug.file).read_text())
    plant(bug, path)


def test_what_can_be_planted_nowhere_or_twice_is_an_error(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("a = 1\nb = 1\n")
    for original in ("= 1", "= 2"):
        with pytest.raises(ValueError, match=r"occurs [02] times in x\.py"):
            plant(PlantedBug("x.py", original, "", ""), path)
    with pytest.raises(SyntaxError):
        plant(PlantedBug("x.py", "a =", "a", ""), path)
