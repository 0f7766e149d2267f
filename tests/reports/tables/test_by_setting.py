"""Any setting as a row or a column; runs that differ in more than their seed are never averaged."""

from __future__ import annotations

import re

import pytest

from reports.inputs.runs import Run
from reports.tables.by_setting import tabulate_settings
from reports.tables.table import Table, format_cell
from tests.reports.made_up import make_up


def run(algorithm: str, end: float, alpha: float, *, seed: int = 0, **more: object) -> Run:
    settings = {"partition": {"name": "dirichlet", "alpha": alpha}, **more}
    return make_up(algorithm, [end], seed=seed, settings=settings)


def texts(table: Table) -> list[list[str]]:
    return [
        [
            line.group,
            line.label,
            *(format_cell(cell, column) for cell, column in zip(line.cells, table.columns, strict=True)),
        ]
        for line in table.lines
    ]


RUNS = [
    run("fedsam", 0.5, 10.0),
    run("fedsam", 0.7, 10.0, seed=1),
    run("fedavg", 0.2, 0.5),
    run("fedavg", 0.4, 10.0),
]


def test_methods_by_partition() -> None:
    made = tabulate_settings(RUNS, ["algorithm"], ["partition.alpha"])
    assert [column.title for column in made.columns] == ["Dirichlet α = 0.5", "Dirichlet α = 10"]
    assert texts(made) == [["", "FedAvg", "20.00", "40.00"], ["", "FedSAM", "(a)", "60.00 ± 14.14"]]
    assert made.footnotes == ("(a) not run.",)


def test_settings_before_the_last_make_groups() -> None:
    made = tabulate_settings(RUNS, ["partition.alpha", "algorithm"], ["data"])
    assert texts(made) == [
        ["Dirichlet α = 0.5", "FedAvg", "20.00"],
        ["Dirichlet α = 10", "FedAvg", "40.00"],
        ["Dirichlet α = 10", "FedSAM", "60.00 ± 14.14"],
    ]


def test_swa_may_be_a_column_of_its_own() -> None:
    runs = [run("fedavg", 0.2, 0.5), run("fedavg", 0.4, 0.5, swa={"cycle": 5})]
    assert texts(tabulate_settings(runs, ["algorithm"], ["swa"])) == [["", "FedAvg", "20.00", "40.00"]]
    apart = tabulate_settings(runs, ["algorithm"], ["data"])
    assert [line.label for line in apart.lines] == ["FedAvg", "FedAvg + SWA"]


def test_a_relative_quantity_is_compared_with_the_first_row() -> None:
    made = tabulate_settings(RUNS, ["algorithm"], ["partition.alpha"], "improvement")
    assert texts(made)[1][3].startswith("+10.00 (known of 1 of 2 seeds)")  # FedAvg has no seed 1
    assert "Compared with FedAvg." in made.note


def test_runs_that_differ_in_more_are_refused() -> None:
    with pytest.raises(
        ValueError, match=re.escape("differ in partition.alpha; add --rows or --columns partition.alpha")
    ):
        tabulate_settings(RUNS, ["algorithm"], ["data"])


def test_unknown_names_are_named() -> None:
    with pytest.raises(ValueError, match=r"setting: unknown 'partition\.alpa'; did you mean 'partition\.alpha'"):
        tabulate_settings(RUNS, ["algorithm"], ["partition.alpa"])
    with pytest.raises(ValueError, match="quantity: unknown 'acuracy'; did you mean 'accuracy'"):
        tabulate_settings(RUNS, ["algorithm"], ["partition.alpha"], "acuracy")
    with pytest.raises(ValueError, match="needs settings for both"):
        tabulate_settings(RUNS, ["algorithm"], [])
