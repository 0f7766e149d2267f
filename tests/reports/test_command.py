"""`landscape report`: everything that can be drawn, and one line for everything that cannot."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from reports import drawing
from reports.catalog import FIGURES
from reports.command import choose_folder, find_runs, report, tabulate_figures
from reports.page import page
from tests.reports.conftest import make_run
from tests.reports.sample import FAILING, LINES, SURFACE


def said(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def suffixes(folder: Path) -> set[str]:
    return {path.suffix for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80)


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [make_run(tmp_path / "runs" / "run_a", "fedavg"), make_run(tmp_path / "runs" / "run_b", "fedsam")]


def test_a_report_holds_pictures_numbers_tables_and_the_page(runs: list[Path], console: Console) -> None:
    found = report(runs, console=console, figures=[LINES], strict=True)
    out = runs[0].parent / "report"
    assert found == out / "index.html"
    here = out / "figures" / "digits-Dirichlet-0.5"
    assert sorted(path.name for path in here.iterdir()) == ["lines.csv", "lines.png", "lines.svg"]
    assert {path.suffix for path in (out / "tables").iterdir()} == {".tex", ".md", ".csv"}
    assert said(console)[-1] == str(found)
    assert not list(out.glob(".*"))


def test_only_the_formats_asked_for_are_left(runs: list[Path], console: Console, tmp_path: Path) -> None:
    report(runs, tmp_path / "out", formats=["pdf"], console=console, figures=[LINES], strict=True)
    assert suffixes(tmp_path / "out" / "figures") == {".pdf", ".csv"}
    assert "<svg" in (tmp_path / "out" / "index.html").read_text()
    with pytest.raises(ValueError, match="gif cannot be drawn; choose among png, pdf, svg"):
        report(runs, formats=["gif"], console=console)


def test_a_table_of_chosen_settings_is_on_the_page(runs: list[Path], console: Console, tmp_path: Path) -> None:
    page = report(runs, tmp_path / "out", console=console, figures=[], rows=["algorithm"], columns=["data"])
    written = (tmp_path / "out" / "tables" / "accuracy_by_algorithm_and_data.md").read_text()
    assert "| FedSAM | 20.00 |" in written
    assert "Test accuracy (%) by algorithm and data" in page.read_text()
    with pytest.raises(ValueError, match="setting: unknown 'alpha'"):
        report(runs, tmp_path / "none", console=console, figures=[], rows=["algorithm"], columns=["alpha"])
    assert not (tmp_path / "none").exists()


def test_a_heavy_drawing_becomes_an_image(
    runs: list[Path], console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "LIMIT", 1000)
    report(runs, tmp_path / "out", formats=["pdf"], console=console, figures=[LINES], strict=True)
    assert '<img src="data:image/png;base64,' in (tmp_path / "out" / "index.html").read_text()
    assert suffixes(tmp_path / "out" / "figures") == {".pdf", ".csv"}


def test_missing_studies_are_named_with_the_command_that_makes_them(runs: list[Path], console: Console) -> None:
    for run in runs:
        (run / "analysis" / "curvature" / "default.h5").unlink()
    (runs[0] / "analysis" / "local_global" / "default.h5").unlink()
    path = report(runs, console=console, figures=[FIGURES["eigenvalues"], FIGURES["local_global"], LINES])
    lines = said(console)
    assert (
        "not drawn: eigenvalues needs `landscape analyze RUN... --study curvature --set curvature.rounds=all`" in lines
    )
    assert "local_global is not there for run_a: `landscape analyze RUN --study local_global`" in lines
    text = path.read_text()
    assert "What is not here" in text
    hint = "landscape analyze RUN... --study curvature --set curvature.rounds=all"
    assert f"not drawn: eigenvalues needs <code>{hint}</code>" in text


def test_a_figure_that_fails_is_one_line(runs: list[Path], console: Console) -> None:
    text = report(runs, console=console, figures=[FAILING, LINES]).read_text()
    line = "broken (digits, Dirichlet α = 0.5) could not be drawn: ZeroDivisionError: no numbers"
    assert line in said(console)
    assert line in text
    assert "Lines of runs" in text
    with pytest.raises(ZeroDivisionError):
        report(runs, console=console, figures=[FAILING], strict=True)


def test_damaged_files_are_one_line_each(runs: list[Path], console: Console) -> None:
    (runs[0] / "analysis" / "curvature" / "default.h5").write_bytes(b"")
    (runs[1] / "metrics.jsonl").write_text("not json\n")
    text = report(runs, console=console, figures=[LINES]).read_text()
    for name, problem in (
        ("curvature/default.h5", "not readable"),
        ("metrics.jsonl", "line 1 is not the record of round 1"),
    ):
        assert sum(name in line for line in said(console)) == 1
        assert f"{name}: {problem}" in text


def test_without_runs_it_says_what_to_write(tmp_path: Path, console: Console) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no runs to report on \(.*empty: neither a run.*landscape report RUN"):
        report([tmp_path / "empty"], console=console)
    with pytest.raises(ValueError, match="no run directory was given"):
        report([], console=console)


def test_figures_are_listed_with_what_they_are_drawn_from(console: Console) -> None:
    console.width = 200
    console.print(tabulate_figures())
    (line,) = (line for line in said(console) if line.split()[:1] == ["eigenvalues"])
    assert "How flat is it?" in line
    assert line.rstrip().endswith("curvature")
    assert len(said(console)) >= len(FIGURES)


def test_where_it_goes(runs: list[Path], tmp_path: Path) -> None:
    assert find_runs([tmp_path / "runs"]) == runs
    assert find_runs([runs[1], runs[1]]) == [runs[1]]
    assert choose_folder(runs) == tmp_path / "runs" / "report"
    assert choose_folder(runs[:1]) == runs[0] / "report"
    assert choose_folder([tmp_path / "a" / "x", tmp_path / "b" / "y"]) == tmp_path / "report"


def test_the_same_runs_give_the_same_page_on_any_number_of_cores(
    runs: list[Path], console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "FEW", 0)
    figures = [FIGURES["accuracy"], FIGURES["eigenvalues"]]
    pages = [
        report(runs, tmp_path / str(workers), console=console, figures=figures, workers=workers, formats=["svg"])
        for workers in (1, 2)
    ]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_an_old_page_stays_until_the_new_one_is_whole(
    runs: list[Path], console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = report(runs, tmp_path, console=console, figures=[LINES], formats=["svg"])
    before = path.read_bytes()
    monkeypatch.setattr(page, "render", lambda *_, **__: "\ud800")  # cannot be written
    with pytest.raises(UnicodeEncodeError):
        report(runs, tmp_path, console=console, figures=[SURFACE], formats=["svg"])
    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".index*"))
