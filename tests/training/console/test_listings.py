"""The tables of names: readable on a narrow screen, one line a row on a wide one, and the same in the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console

from training.console import listings, tables
from training.methods import catalog

README = Path(__file__).parents[3] / "README.md"


def printed(width):
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(listings.make_listing("algorithms"))
    return capture.get().splitlines()


def test_the_readme_holds_the_table_of_algorithms():
    text = README.read_text(encoding="utf-8")
    assert listings.update_algorithms(text) == text, (
        "README.md holds an old table of algorithms; run: python -m training.console.listings README.md"
    )
    between = text.partition(listings.BEGIN)[2].partition(listings.END)[0]
    assert between.strip() == listings.write_algorithms()


def test_markdown_has_a_row_for_every_method():
    lines = [line for line in listings.write_algorithms().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {len(row) for row in cells} == {7}
    assert set(cells[1]) == {"---"}
    assert [row[0] for row in cells[2:]] == [f"`{name}`" for name in catalog.ALGORITHMS]
    found = {row[0].strip("`"): row[1:] for row in cells}
    assert found["scaffold"] == ["control variate → mean", "control", "2/2", "1", "eta_g=1", "Karimireddy et al. 2020"]
    assert found["fedntd"][:4] == ["not true loss → mean", "-", "1/1", "1"]
    assert found["fedgmt"][0] == "dual only + ema distillation loss → subtract dual"
    assert found["fedsmoo"][:4] == ["shared SAM + lagrangian → subtract dual", "perturbation dual, dual", "2/2", "2"]
    assert found["naivefedgloss"][2:4] == ["2/2", "4"]
    assert found["perfedavg"][4] == "adapt=0.01, eta_g=1"


def test_a_hundred_columns_break_no_word():
    lines = printed(100)
    assert max(map(len, lines)) <= 100
    words = {word.strip(",") for line in lines for word in line.split()}
    for name, method in catalog.ALGORITHMS.items():
        assert {name, *listings.describe_rules(method).split()} <= words
        assert set(tables.show_settings(catalog.read_settings(method)).split(", ")) <= words
        assert set(re.findall(r"\w+", ", ".join(method.client_vectors).replace("_", " "))) <= words


def test_a_row_is_one_line_where_there_is_room():
    wide = printed(500)
    rows = [line for line in wide if line.split(" ")[0] in catalog.ALGORITHMS]
    assert len(rows) == len(catalog.ALGORITHMS)
    (sol,) = (line for line in rows if line.startswith("fedsol "))
    assert re.split(" {2,}", sol.strip())[5] == tables.show_settings(
        catalog.read_settings(catalog.ALGORITHMS["fedsol"])
    )
    assert len(printed(100)) > len(wide) + len(rows) - 3  # settings below each method; the remarks may break too


@pytest.mark.parametrize(
    ("name", "said"), [("fedsam", "SAM"), ("fedvssam", "mixed SAM"), ("fedfsa", "layer radii"), ("fedasam", "ASAM")]
)
def test_rules_are_named_as_people_say_them(name, said):
    assert listings.name_rule(catalog.ALGORITHMS[name].perturbation) == said


def test_the_command_rewrites_what_is_between_the_markers(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"above\n\n{listings.BEGIN}\n\nstale | table\n\n{listings.END}\n\nbelow → here\n", encoding="utf-8")
    listings.main([str(page)])
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"above\n\n{listings.BEGIN}\n\n| name |")
    assert text.endswith(f"\n\n{listings.END}\n\nbelow → here\n")
    assert "stale" not in text
    listings.main([str(page)])
    assert page.read_text(encoding="utf-8") == text
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]


def test_a_page_without_markers_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"nothing here but {listings.BEGIN}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="expected the table of algorithms between two lines"):
        listings.main([str(page)])
    assert page.read_text(encoding="utf-8") == f"nothing here but {listings.BEGIN}\n"
    with pytest.raises(SystemExit, match=r"python -m training\.console\.listings README\.md"):
        listings.main([])
