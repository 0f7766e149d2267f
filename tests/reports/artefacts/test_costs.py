"""What artefacts take is told quickly, from counted sizes, and fits terminals of 80 columns."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from reports.artefacts import costs, sizes
from reports.artefacts.costs import Cost, list_artefacts, list_costs
from reports.artefacts.parts import Made, write_part
from reports.artefacts.plan import plan_paper
from reports.artefacts.scales import SCALES
from reports.reproduction import PAPERS
from tests.reports.artefacts.sample import PAPER
from training.console.tables import to_records

SMALL = 100_000  # parameters of networks that are counted again here


def render(table: object, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(table)
    return console.export_text()


def test_every_network_and_method_was_counted() -> None:
    """Otherwise listing artefacts would open torch. To count again: reports.reproduction.write_sizes()."""
    plans = [plan_paper(paper, scale) for paper in PAPERS.values() for scale in SCALES.values()]
    contents = [run.content for plan in plans for run in plan.values()]
    counted = sizes._read()
    assert {sizes._describe_network(one) for one in contents} == set(counted["networks"])
    assert {str(one["algorithm"]["name"]) for one in contents} == set(counted["methods"])


def test_counted_sizes_are_those_of_the_code() -> None:
    counted = sizes._read()
    for name, pair in counted["methods"].items():
        assert sizes._count_method(name) == pair, name
    small = {key: pair for key, pair in counted["networks"].items() if pair[1] < SMALL}
    assert len(small) > 10
    for key, pair in small.items():
        assert sizes._count_network(key) == pair, key


def test_a_network_is_counted_by_hand() -> None:
    content = {"model": {"name": "mlp", "hidden": [5]}, "data": {"name": "digits"}}
    flops, parameters = sizes.size_network(content)  # not in the file
    assert parameters == 64 * 5 + 5 + 5 * 10 + 10
    assert flops == 2 * (64 * 5 + 5 * 10)


@pytest.mark.parametrize(
    ("cost", "time", "disk"),
    [
        (Cost(1, 0.001, 2e5), "1 min", "1 MB"),
        (Cost(1, 0.5, 83e6), "30 min", "83 MB"),
        (Cost(1, 36.2, 2.44e9), "36 h", "2.4 GB"),
        (Cost(1, 24 * 3319, 3.27e12), "3,319 days", "3.3 TB"),
    ],
)
def test_costs_are_told_in_units_that_fit(cost: Cost, time: str, disk: str) -> None:
    assert (cost.time, cost.disk) == (time, disk)


def test_shared_runs_are_counted_once() -> None:
    table, again = PAPER.artefacts[:2]
    one, both = (costs._cost(PAPER, some, SCALES["full"]) for some in ([table], [table, again]))
    assert (one.runs, both.runs) == (15, 15)
    assert both.hours == pytest.approx(one.hours)


def test_the_listing_tells_data_hours_disk_and_what_is_done(tmp_path: Path) -> None:
    write_part(tmp_path / "digits" / "sample", Made("table1", "Accuracy", ("a.md",), "", "", ""))
    write_part(tmp_path / "small" / "sample", Made("table2", "Sharpness", ("a.md",), "", "", "1 of 2 runs are missing"))
    table = list_artefacts({"sample": PAPER}, tmp_path)
    narrow = render(table, 80)
    assert max(map(len, narrow.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in narrow.splitlines()]
    place = next(number for number, line in enumerate(lines) if line.startswith("table1"))
    assert lines[place].startswith("table1 Accuracy ")
    assert lines[place + 1].startswith("cifar10, landmarks ")
    assert lines[place + 2] == "made"
    place = next(number for number, line in enumerate(lines) if line.startswith("table2"))
    assert lines[place + 2] == "in part"
    records = {one["artefact"]: one for one in to_records(table)}
    assert records["sample/table1"]["state"] == "digits: made"
    assert records["sample/table1"]["data"] == "cifar10, landmarks"
    assert records["sample/table2"]["state"] == "small: made, but 1 of 2 runs are missing"
    assert records["sample/figure1"]["what it shows"] == "A concept (nothing to reproduce: a concept drawing)"


def test_a_dry_run_fits_80_columns(tmp_path: Path) -> None:
    text = render(list_costs([(PAPER, PAPER.artefacts)], SCALES["digits"], tmp_path), 80)
    assert max(map(len, text.splitlines())) <= 80
    rows = [line.split() for line in text.splitlines()]
    assert next(row for row in rows if row[:1] == ["sample/table1"])[-1] == "made"  # not made
    assert next(row for row in rows if row[:1] == ["all"])[5] == "10"
