"""Tables: the numbers in them, what is best, and that each format can be read by its readers."""

from __future__ import annotations

import csv
import io
import math
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from reports.figure_type import TOPICS
from reports.inputs.runs import Collection, read_runs
from reports.plotting.measured import get_data
from reports.tables.catalog import TABLES, make_tables, render, save
from reports.tables.table import Cell, Column, Line, Table, format_cell, rank_cells
from tests.reports.conftest import make_run
from tests.reports.results import personal, training
from tests.reports.results.answers import write_answer
from tests.reports.results.seeds_and_settings import varied
from training.data.dealing import ClientIndices
from training.data.partition import Partition
from training.data.partition import save as save_partition

KINDS = ("latex", "markdown", "csv", "html")


@pytest.fixture
def compared(tmp_path: Path) -> Collection:
    """Two partitions, two seeds of fedavg in one of them, and fedasam with SWA."""
    runs = [
        make_run(tmp_path / "a0", "fedavg", scale=1.0),
        make_run(tmp_path / "a1", "fedavg", seed=1, scale=0.5),
        make_run(tmp_path / "c0", "fedasam", swa=True, scale=0.8),
        varied(make_run(tmp_path / "even", "fedavg", scale=2.0), partition_alpha=100.0),
    ]
    for run in runs:
        write_answer(run, training.stored(swa=run.name == "c0"))
        write_answer(run, personal.stored(0.5 if run.name == "a1" else 1.0))
        (run / "partition.npz").unlink(missing_ok=True)
    parts = tuple(np.array(part) for part in ([0, 1, 2], [3], [4, 5, 6], [7]))
    save_partition(
        Partition("iid", {}, 0, ClientIndices.of(parts), np.array([0, 1, 2, 7, 5, 6, 5, 7])), runs[0] / "partition.npz"
    )
    return read_runs(runs)


def example(**more: object) -> Table:
    """Every trap: special signs, ties, notes, missing numbers, one and several seeds."""
    columns = (Column("loss_1 & 50 % | <x>", "a_b", "lower", 2), Column("size", better="higher"), Column("λ₁", "c"))
    lines = (
        Line("fed_avg #1", ("r1", "r 2"), (Cell(1.004, 0.5, 2), Cell(0.001234, seeds=1), Cell(3.0, seeds=1))),
        Line("{fed}~^\\", ("r3",), (Cell(1.0, math.nan, 1), Cell(1234.5, seeds=1), Cell(2.0, seeds=1))),
        Line("*three*", ("r4",), (Cell(0.5, note="1 of 2 never"), Cell(20.0, 3.0, 2), Cell())),
        Line("<b>four</b>", ("r5",), (Cell(2.0, 0.1, 2), Cell(), Cell(missing="<never>"))),
    )
    about = {"bold": "plain", **more}
    return Table("example", "good", "A & B", "Read.", "method_x", columns, lines, "50 % of <it>.", **about)  # type: ignore[arg-type]


def test_best_and_second_best_follow_the_direction() -> None:
    found = rank_cells(example())
    assert found == {
        (0, 0): 1,  # equal as written, 1.00
        (1, 0): 1,
        (1, 1): 1,
        (2, 1): 2,
    }  # 2.0 is the worse of two; a number with a note is never the best; the third column has no direction


def test_along_rows_columns_of_one_title_are_compared() -> None:
    columns = (Column("own", "x"), Column("all", "x", "lower"), Column("own", "y"), Column("all", "y", "lower"))
    lines = (Line("0", (), (Cell(1.0), Cell(5.0), Cell(0.5), Cell(4.0))), Line("1", (), (Cell(1.0),) * 4))
    table = Table("t", "good", "T", "R.", "client", columns, lines, across=True, bold="plain")
    assert rank_cells(table) == {(0, 3): 1}


@pytest.mark.parametrize(
    ("cell", "column", "text"),
    [
        (Cell(12.345, 0.678, 3), Column("x"), "12.3 ± 0.7"),
        (Cell(0.0012345), Column("x"), "0.00123"),
        (Cell(1234.5, 67.8), Column("x"), "1234 ± 68"),
        (Cell(97.25), Column("x", decimals=1, unit=" %"), "97.2 %"),
        (Cell(0.0), Column("x"), "0.00"),
        (Cell(), Column("x"), "—"),
        (Cell(missing="never"), Column("x"), "never"),
        (Cell(3.0, note="1 of 2 never"), Column("x", decimals=0), "3 (1 of 2 never)"),
    ],
)
def test_numbers_have_the_digits_that_count(cell: Cell, column: Column, text: str) -> None:
    assert format_cell(cell, column) == text


def test_latex_is_whole_and_escaped() -> None:
    text = render(example(), "latex")
    lines = text.splitlines()
    assert lines[0] == r"\begin{table}"
    for name in ("toprule", "midrule", "bottomrule"):
        assert f"\\{name}" in lines
    assert r"\cmidrule(lr){2-2} \cmidrule(lr){4-4}" in lines  # none under the column without a group
    assert r"\textbf{1.00 $\pm$ 0.50}" in text
    assert r"\underline{20.0 $\pm$ 3.0}" in text
    assert r"\{fed\}\textasciitilde{}\textasciicircum{}\textbackslash{}" in text
    assert r"$\lambda_1$" in text
    assert r"loss\_1 \& 50 \% $|$ $<$x$>$ $\downarrow$" in text
    plain = re.sub(r"\\[\\{}&%$#_]", "", text)  # without what is escaped
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert "%" not in plain  # would hide the rest of its line
    assert "#" not in plain
    rows = [line for line in lines if line.endswith(r"\\")]
    wide = [
        re.sub(r"\\[&]", "", row).count("&") + sum(int(n) - 1 for n in re.findall(r"multicolumn{(\d+)}", row))
        for row in rows
    ]
    assert set(wide) == {3}  # four columns in every row, spanning ones included


def test_markdown_has_as_many_cells_in_every_row() -> None:
    text = render(example(), "markdown")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
    assert rows[1] == "| :--- | ---: | ---: | ---: |"
    assert r"\*three\*" in rows[4]
    assert "**1.00 ± 0.50**" in rows[2]
    assert "<u>20.0 ± 3.0</u>" in rows[4]
    assert "<b>" not in text


def test_csv_has_every_digit() -> None:
    rows = list(csv.DictReader(io.StringIO(render(example(), "csv"))))
    assert rows[0]["method_x"] == "fed_avg #1"
    assert float(rows[0]["a_b: loss_1 & 50 % | <x>"]) == 1.004
    assert rows[0]["a_b: loss_1 & 50 % | <x> seeds"] == "2"
    assert rows[1]["a_b: loss_1 & 50 % | <x> spread"] == ""
    assert rows[2]["a_b: loss_1 & 50 % | <x> note"] == "1 of 2 never"
    assert rows[3]["c: λ₁ note"] == "<never>"


class Reader(HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_is_balanced_escaped_and_says_which_runs_a_row_shows() -> None:
    text = render(example(), "html")
    read = Reader(text)
    assert read.open == []
    rows = [attributes.get("data-runs") for tag, attributes in read.tags if tag == "tr"]
    assert rows == [None, None, "r1 r%202", "r3", "r4", "r5"]  # names are one word each, as the page writes them
    assert "<b>four</b>" in read.texts
    assert "<never>" in read.texts
    assert not any("style" in attributes for _, attributes in read.tags)
    assert [tag for tag, _ in read.tags].count("b") == 3
    assert "50 % of <it>." in read.texts


def test_notes_of_a_wide_table_do_not_scroll_with_it() -> None:
    """On a phone a caption as wide as its table would be cut off."""
    scroller, closed, below = render(example(), "html").rpartition("</div>")
    assert closed
    assert scroller.startswith('<div class="scroll">')
    assert "50 % of &lt;it&gt;." in below
    assert "<table" not in below


def test_final_accuracy_by_method_and_partition(compared: Collection) -> None:
    table = TABLES["accuracy"](compared)
    assert table is not None
    assert [column.group for column in table.columns] == ["digits, Dirichlet α = 0.5", "digits, Dirichlet α = 100"]
    assert [line.label for line in table.lines] == ["FedAvg", "FedASAM + SWA"]
    first, second = table.lines
    assert first.runs == ("a0", "a1", "even")
    assert (first.cells[0].mean, first.cells[0].seeds) == (pytest.approx(15.0), 2)
    assert first.cells[0].spread == pytest.approx(np.std([20.0, 10.0], ddof=1))
    assert first.cells[1].mean == pytest.approx(40.0)
    assert second.cells[0].mean == pytest.approx(90.0)
    assert math.isnan(second.cells[1].mean)  # was not run there
    assert rank_cells(table) == {}  # one seed of fedasam: nothing says how far off 90 % is
    assert rank_cells(replace(table, bold="plain")) == {(1, 0): 1}
    assert "1 to 2 seeds" in table.note
    assert "SWA" in table.note


def test_what_a_round_costs_is_relative_to_the_first_method(compared: Collection) -> None:
    for run, sent in zip(compared.runs, (10, 10, 15, 10), strict=True):
        for record in run.metrics:
            record.update(bytes_up=sent, bytes_down=sent)
    table = TABLES["accuracy"](compared)
    assert table is not None
    assert [format_cell(line.cells[0], table.columns[0]) for line in table.lines] == ["1.0\u00d7", "1.5\u00d7"]


def test_rounds_and_megabytes_to_the_highest_target_of_the_baseline(compared: Collection) -> None:
    table = TABLES["communication"](compared)
    assert table is not None
    assert [column.title for column in table.columns[:3]] == ["accuracy (%)", "rounds to 20 %", "MB to 20 %"]
    first, second = table.lines
    assert [cell.mean for cell in first.cells[1:3]] == pytest.approx([2.0, 8.0])
    assert [cell.mean for cell in second.cells[1:3]] == pytest.approx([1.0, 4.0])


def test_a_target_that_only_others_reach_is_not_compared(compared: Collection) -> None:
    (run,) = [run for run in compared.runs if run.name == "c0"]
    get_data(run, "training")["rounds_to_target"][0, 2] = 3.0  # 90 %, which fedavg never has
    table = TABLES["communication"](compared)
    assert table is not None
    assert table.columns[1].title == "rounds to 20 %"


def test_a_target_that_is_not_reached_is_never(compared: Collection) -> None:
    for name, rounds in {"a1": [np.nan, np.nan, np.nan], "c0": [np.nan] * 3}.items():
        (run,) = [run for run in compared.runs if run.name == name]
        for variable in ("rounds_to_target", "bytes_to_target"):
            get_data(run, "training")[variable][:] = rounds
    table = TABLES["communication"](compared)
    assert table is not None
    shown = [format_cell(line.cells[1], table.columns[1]) for line in table.lines]
    assert shown == ["2 (1 of 2 never)", "never"]


def test_sharpness_of_the_global_model(compared: Collection) -> None:
    table = TABLES["sharpness"](compared)
    assert table is not None
    assert [column.title for column in table.columns] == ["λ₁", "λ₁/λ₅"] * 2
    assert [line.cells[0].mean for line in table.lines] == pytest.approx([22.5, 24.0])
    assert [line.cells[1].mean for line in table.lines] == pytest.approx([3.0, 3.0])
    assert rank_cells(replace(table, bold="plain")) == {(0, 0): 1}  # ratios are equal
    assert "With SWA: of the server's model." in table.note  # of a run with SWA: whose eigenvalues


def test_personalised_accuracy(compared: Collection) -> None:
    table = TABLES["personal"](compared)
    assert table is not None
    assert [column.title for column in table.columns[:3]] == ["global model (%)", "fine-tuned (%)", "kNN (%)"]
    assert [cell.mean for cell in table.lines[0].cells[:3]] == pytest.approx([37.5, 67.5, 52.5])


def test_local_models_on_own_and_on_everyones_data(compared: Collection) -> None:
    table = TABLES["local_global"](compared)
    assert table is not None
    assert [(column.group, column.title) for column in table.columns] == [
        ("FedAvg", "λ₁ own"),
        ("FedAvg", "λ₁ everyone"),
        ("FedASAM + SWA", "λ₁ own"),
        ("FedASAM + SWA", "λ₁ everyone"),
    ]
    assert [line.label for line in table.lines] == ["1 (digit 7)", "3 (digit 7)", "mean", "1", "3", "mean"]
    assert [cell.mean for cell in table.lines[0].cells] == pytest.approx([3.0, 30.0, 2.4, 24.0])  # of the first seed
    assert table.lines[2].cells[1].mean == pytest.approx(35.0 * 0.75)  # over both
    plain = rank_cells(replace(table, bold="plain"))
    assert plain == {(0, 3): 1, (1, 3): 1, (2, 1): 1}  # along rows; flat for oneself is not compared
    assert table.columns[0].runs == ("a0", "a1", "even")
    assert math.isnan(table.lines[3].cells[2].mean)


def test_every_table_in_every_format(compared: Collection, tmp_path: Path) -> None:
    tables = make_tables(compared)
    assert [table.name for table in tables] == list(TABLES)
    for table in tables:
        assert table.topic in TOPICS
        assert table.reading.endswith(".")
        assert all(len(line.cells) == len(table.columns) for line in table.lines)
        for kind in KINDS:
            assert render(table, kind)
        paths = save(table, tmp_path / "tables")
        assert [path.name for path in paths.values()] == [f"{table.name}.{end}" for end in ("tex", "md", "csv")]
        assert paths["latex"].read_text() == render(table, "latex")


def test_without_studies_only_the_accuracy_is_left(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    shutil.rmtree(run / "analysis")
    assert [table.name for table in make_tables(read_runs([run]))] == ["accuracy"]
    assert make_tables(read_runs([])) == []


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(ValueError, match=r"latex, markdown, csv, html; got 'word'"):
        render(example(), "word")
