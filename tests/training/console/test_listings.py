"""The tables of names: readable on a narrow screen, one line a row on a wide one."""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from training.console import listings, tables
from training.methods import catalog


def printed(width):
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(listings.make_listing("algorithms"))
    return capture.get().splitlines()


def test_there_is_a_row_for_every_method():
    found = {row[0]: row[1:] for row in listings.make_algorithm_rows()}
    assert list(found) == list(catalog.ALGORITHMS)
    assert found["scaffold"] == ("control variate → mean", "control", "2/2", "1", "eta_g=1", "Karimireddy et al. 2020")
    assert found["fedntd"][:4] == ("not true loss → mean", "-", "1/1", "1")
    assert found["fedgmt"][0] == "dual only + ema distillation loss → subtract dual"
    assert found["fedsmoo"][:4] == ("shared SAM + lagrangian → subtract dual", "perturbation dual, dual", "2/2", "2")
    assert found["naivefedgloss"][2:4] == ("2/2", "4")
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
