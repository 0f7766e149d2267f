"""The printed numbers: some looked up in the papers, and a file that is wrong is refused with its line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from reports.tables.published import COLUMNS, FILE, Printed, _read_file, read_printed


def test_numbers_that_were_looked_up() -> None:
    assert read_printed("fedfsa/table1")["FedAvg-FT", "fmnist dir beta=0.5"] == Printed(91.59, 0.47, "%")
    speed = read_printed("fedgloss/table10")["FedProx (SGD)", "cnn cifar10 alpha=0 rounds"]
    assert (speed.value, speed.unit, math.isnan(speed.spread)) == (7600.0, "rounds", True)
    failed = read_printed("fedfsa/table1")["FedCR", "tiny dir beta=0.3"]
    assert (math.isnan(failed.value), failed.sign) == (True, "\N{EN DASH}")
    assert {one.sign for one in read_printed("fedgloss/table3").values()} == {"", "\N{MULTIPLICATION SIGN}"}
    assert read_printed("fedgloss/figure1") == {}


def test_the_file_holds_all_of_them() -> None:
    cells = [one for some in _read_file(FILE).values() for one in some.values()]
    assert (len(cells), sum(not one.sign for one in cells)) == (2337, 2149)
    assert all(one.unit for one in cells)
    assert max(len(one.note) for one in cells) < 60


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("p/t,a,x,1.0,,%", "line 2: expected 7 fields, got 6"),
        ("p/t,a,x,much,,%,", "line 2: expected a number or one of -, x; got 'much'"),
        ("p/t,a,x,nan,,%,", "got 'nan'"),
        ("p/t,a,x,1.0,-1,%,", "a spread is not negative, got '-1'"),
        ("p/t,a,x,-,1,%,", "there is no spread of a '-'"),
        ("p/t,a,x,1.0,,,", "a number needs a unit"),
        ("t,a,x,1.0,,%,", "expected paper/artefact"),
        ("p/t,a,x,1.0,,%,\np/t,a,x,2.0,,%,", "line 3: p/t, a, x occurs twice"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "published.csv"
    path.write_text(f"{','.join(COLUMNS)}\n{line}\n")
    with pytest.raises(ValueError, match=said):
        _read_file(path)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    path.write_text("artefact,row\n")
    with pytest.raises(ValueError, match="expected the columns artefact, row"):
        _read_file(path)
