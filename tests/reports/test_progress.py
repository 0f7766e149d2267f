"""Diverged and unfinished runs are marked in every table and figure; nothing half-done looks final."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.catalog import FIGURES
from reports.drawing import Job, Renderer, list_sections
from reports.inputs.progress import CROSS, Progress, determine_progress, select_counted
from reports.inputs.runs import Collection, read_runs
from reports.page.page import render
from reports.tables.catalog import TABLES, make_tables
from reports.tables.catalog import render as typeset
from reports.tables.table import format_cell, rank_cells
from reports.variants import find_variants, make_titles
from tests.reports.conftest import make_run, set_status


@pytest.fixture
def mixed(tmp_path: Path) -> Collection:
    """Three seeds of fedavg, one of them diverged; fedsam diverged; fedasam unfinished."""
    runs = [make_run(tmp_path / f"a{seed}", "fedavg", seed=seed, scale=1 - 0.1 * seed) for seed in range(3)]
    set_status(runs[2], "diverged", 2)
    runs.append(set_status(make_run(tmp_path / "b", "fedsam", scale=2.0), "diverged", 11))
    runs.append(set_status(make_run(tmp_path / "c", "fedasam", scale=3.0), "running", 0))
    for run in runs:
        config = run / "config.toml"
        config.write_text(config.read_text().replace("count = 3", "count = 100" if run.name == "c" else "count = 3"))
    return read_runs(runs)


@pytest.mark.parametrize(
    ("status", "done", "planned", "said"),
    [
        ({"state": "finished", "round": 100}, 100, 100, ""),
        ({"state": "diverged", "round": 11}, 11, 100, "diverged in round 12"),
        ({"state": "running", "round": 0}, 40, 100, "unfinished: 40 of 100 rounds"),
        (None, 40, 100, "unfinished: 40 of 100 rounds"),
        (None, 100, 100, ""),  # all rounds that were asked for are on record
        (None, 3, None, "unfinished: 3 rounds"),
    ],
)
def test_how_far_a_run_came(status: dict[str, object] | None, done: int, planned: int | None, said: str) -> None:
    assert determine_progress(status, done, planned).description == said


def test_a_mean_leaves_out_what_is_not_final(mixed: Collection) -> None:
    assert [run.name for run in select_counted(mixed.runs)] == ["a0", "a1"]
    assert [run.name for run in select_counted(mixed.runs[2:])] == ["c"]  # unfinished ones where there is nothing else
    assert select_counted(mixed.runs[2:4]) == []
    assert Progress("given").final


def test_cells_are_crossed_marked_and_never_bold(mixed: Collection) -> None:
    (table,) = [table for table in make_tables(mixed, bold="plain") if table.name == "accuracy"]
    texts = {line.label: format_cell(line.cells[0], table.columns[0]) for line in table.lines}
    assert texts == {"FedAvg": "19.0 ± 1.4 (2 of 3 seeds, 1 diverged)", "FedSAM": CROSS, "FedASAM": "60.0†"}
    assert rank_cells(table) == {}
    assert any(f"{CROSS} diverged" in one and "FedSAM" in one and "in round 12" in one for one in table.footnotes)
    assert any("† unfinished" in one and "FedASAM" in one and "round 3 of 100" in one for one in table.footnotes)
    latex = typeset(table, "latex")
    assert r"& $\times$ \\" in latex
    assert r"60.0$\dagger$" in latex
    assert r"\footnotesize $\times$ diverged" in latex
    assert '<p class="note">† unfinished' in typeset(table, "html")
    assert "† unfinished" in typeset(table, "markdown")
    assert ",diverged" in typeset(table, "csv")
    assert ",unfinished" in typeset(table, "csv")


def test_every_table_marks_them(mixed: Collection) -> None:
    for table in make_tables(mixed):
        assert table.footnotes, table.name
        shown = " ".join(
            format_cell(cell, column)
            for line in table.lines
            for cell, column in zip(line.cells, table.columns, strict=True)
        )
        assert CROSS in shown, table.name
        assert "†" in shown or "not yet" in shown, table.name
    assert set(TABLES) == {table.name for table in make_tables(mixed)}


def test_a_report_of_diverged_runs_alone_has_a_table(tmp_path: Path) -> None:
    found = read_runs([set_status(make_run(tmp_path / "run", "fedsam"), "diverged", 1)])
    (table,) = [table for table in make_tables(found) if table.name == "accuracy"]
    assert format_cell(table.lines[0].cells[0], table.columns[0]) == CROSS


def test_legends_panels_and_captions_say_it(mixed: Collection, tmp_path: Path) -> None:
    labels = {one.label for one in find_variants(mixed.runs, mixed)}
    assert labels == {
        "FedAvg (1 of 3 runs diverged)",
        "FedSAM (diverged in round 12)",
        "FedASAM (unfinished: 3 of 100 rounds)",
    }
    assert make_titles(mixed.runs, mixed)["a2"] == "FedAvg, seed 2 (diverged in round 3)"
    (drawn,) = FIGURES["accuracy"].draw(mixed.runs, mixed)
    assert {text.get_text() for text in drawn.canvas.legends[0].get_texts()} == labels
    renderer = Renderer(mixed, tmp_path, ("svg",), True)
    for name in ("accuracy", "eigenvalues"):
        (picture,) = renderer.draw(Job(FIGURES[name], list_sections(mixed)[0], {})).pictures
        assert "not final:" in picture.caption
        assert "FedSAM, digits, Dirichlet α = 0.5, seed 0: diverged in round 12" in picture.caption
        assert "data-runs" in picture.html  # legends with a remark still belong to their runs


def test_a_diverged_seed_does_not_shorten_the_mean(mixed: Collection) -> None:
    del mixed.runs[2].metrics[1:]
    (drawn,) = FIGURES["accuracy"].draw(mixed.runs, mixed)
    line = next(one for one in drawn.canvas.axes[0].get_lines() if str(one.get_label()).startswith("FedAvg"))
    assert line.get_xdata().tolist() == [1, 2, 3]
    assert line.get_ydata()[-1] == pytest.approx(28.5)  # of seeds 0 and 1


def test_the_page_says_it(mixed: Collection) -> None:
    text = render(mixed, [])
    assert "Not final: 2 diverged, 1 unfinished." in text
    assert "<td>diverged in round 12</td>" in text
    assert "<td>unfinished: 3 of 100 rounds</td>" in text
    assert "60.0†" in text
    assert f"{CROSS} diverged, and left out of means over other seeds" in text


def test_footnotes_and_captions_name_the_very_run(tmp_path: Path) -> None:
    """Two runs of one method that differ in their rounds: "fedavg diverged" would leave open which one."""
    runs = [make_run(tmp_path / name, "fedavg") for name in ("good", "bad")]
    set_status(runs[1], "diverged", 1)
    config = runs[1] / "config.toml"
    config.write_text(config.read_text().replace("count = 3", "count = 30"))
    found = read_runs(runs)
    (table,) = [table for table in make_tables(found) if table.name == "accuracy"]
    said = "FedAvg, rounds = 30, digits, Dirichlet α = 0.5, seed 0"
    assert table.footnotes == (f"{CROSS} diverged, and left out of means over other seeds: {said}: in round 2.",)
    job = Job(FIGURES["accuracy"], list_sections(found)[0], {})
    (picture,) = Renderer(found, tmp_path, ("svg",), True).draw(job).pictures
    assert f"{said}: diverged in round 2" in picture.caption


def test_a_damaged_status_is_a_problem_and_the_run_is_not_called_finished(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    (run / "status.json").write_text((run / "status.json").read_text().replace("finished", "Finished"))
    config = run / "config.toml"
    config.write_text(config.read_text().replace("count = 3", "count = 30"))
    found = read_runs([run])
    assert found.runs[0].progress.description == "unfinished: 3 of 30 rounds"
    assert found.problems == [f"{run / 'status.json'}: its content does not match its own hash"]


def test_a_finished_run_without_its_metrics_is_a_problem(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    (run / "metrics.jsonl").unlink()
    (line,) = read_runs([run]).problems
    assert "records of 0 rounds, though the run finished round 3" in line
