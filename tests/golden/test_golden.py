"""Six trainings and every study give what they gave when golden.json was written; see __main__.py on rewriting it."""

from __future__ import annotations

from pathlib import Path

from analysis import catalog
from tests.golden.record import differences, load, record
from tests.golden.runs import CASES, RECIPES

SHOWN = 40  # differences in a message


def test_nothing_has_changed(tmp_path: Path) -> None:
    """Names the run and file, or the case, study and variable, that came out differently. One test: it trains once."""
    lines = list(differences(load(), record(tmp_path)))
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    assert not lines, "\n".join(["differs from golden.json:", *lines[:SHOWN], *more])


def test_everything_is_covered() -> None:
    """Every study has a case, and golden.json holds every run and case."""
    golden = load()
    assert {case.study for case in CASES.values()} == set(catalog.STUDIES)
    assert (list(golden["runs"]), list(golden["studies"])) == (list(RECIPES), list(CASES))
