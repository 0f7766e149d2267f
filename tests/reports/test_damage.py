"""One bad file never ends a report: every file of a run is damaged in several ways, and the rest is drawn."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from rich.console import Console

from analysis import store
from analysis.store import Answer
from reports.catalog import FIGURES
from reports.command import report
from reports.files import make_slug, make_slugs
from reports.inputs.runs import read_runs
from reports.rows import to_csv
from reports.tables.catalog import make_tables
from reports.tables.typeset import render
from tests.reports.conftest import RESULTS, make_run
from tests.reports.sample import LINES


def said(runs: list[Path], out: Path, **how: object) -> tuple[list[str], str]:
    """What the console says, and the page."""
    console = Console(file=io.StringIO(), width=500)
    page = report(runs, out, console=console, figures=how.pop("figures", [LINES]), formats=["svg"], **how)  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines(), page.read_text()


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "flipped": flipped,
    "noise": lambda content: bytes(range(256)) * 20,
    "zeros": lambda content: bytes(len(content)),
    "json": lambda content: b'[[1, 2], {"a": null}]\n',
    "deep": lambda content: b"[" * 100_000,
}
FILES = ("config.toml", "metrics.jsonl", "status.json", "partition.npz", "provenance.json", "personal/finetune-0.json")


@pytest.mark.parametrize("damage", list(DAMAGES))
@pytest.mark.parametrize("file", [*FILES, "analysis/curvature/default.h5"])
def test_a_damaged_file_is_a_line_at_most(file: str, damage: str, tmp_path: Path) -> None:
    few = ("curvature",)
    good, bad = make_run(tmp_path / "good", "fedavg", studies=few), make_run(tmp_path / "bad", "fedsam", studies=few)
    path = bad / file
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(DAMAGES[damage](path.read_bytes() if path.exists() else b'{"format": "personal 1"}'))
    found = read_runs([good, bad])
    text = " ".join(found.problems)
    assert len(found.problems) <= 1
    assert all("\n" not in line for line in found.problems)
    if file != "provenance.json" and (file, damage) not in (("config.toml", "empty"), ("metrics.jsonl", "cut")):
        assert path.name in text  # named, so that one knows which
    assert next(run.name for run in found.runs) == "good"
    assert make_tables(found)


def test_results_of_the_wrong_shape_are_lines(tmp_path: Path) -> None:
    """All studies at once: no variables, variables missing, axes of no length."""
    good = make_run(tmp_path / "good", "fedavg")
    for number, wrong in enumerate((_nothing, _one_variable, _no_length)):
        bad = make_run(tmp_path / f"bad{number}", "fedsam", seed=number)
        for study in RESULTS:
            path = bad / "analysis" / study / "default.h5"
            store.write(path, wrong(store.read(path)))
        figures = [FIGURES[name] for name in ("accuracy", "eigenvalues", "drift", "personal")]
        lines, page = said([good, bad], tmp_path / f"out{number}", figures=figures)
        assert lines[-1].endswith("index.html")
        assert "Accuracy and loss over rounds" in page


def _nothing(answer: Answer) -> Answer:
    return dataclasses.replace(answer, data=xr.Dataset())


def _one_variable(answer: Answer) -> Answer:
    return dataclasses.replace(answer, data=answer.data[[next(iter(answer.data.data_vars))]])


def _no_length(answer: Answer) -> Answer:
    about = {"inputs": 3, "batchnorm": 7, "packages": [1], "subjects": None}
    cut = answer.data.isel({dim: slice(0, 0) for dim in answer.data.dims})
    return dataclasses.replace(answer, settings={}, provenance=about, data=cut)


def test_settings_and_provenance_of_any_kind(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", studies=("curvature",))
    for wrong in ([], {"packages": [1], "digest": {}}, {"packages": {"torch": []}}, 7, "text"):
        (run / "provenance.json").write_text(json.dumps(wrong))
        assert "Provenance" in said([run], tmp_path / "out")[1]
    path = run / "analysis" / "curvature" / "default.h5"
    found = store.read(path)
    for settings, about in (([1], {}), ({}, [2]), ({"limit": "many"}, {"inputs": [[1]]}), ({}, {"inputs": {"a": 1}})):
        store.write(path, Answer("curvature", "default", settings, about, found.data))  # type: ignore[arg-type]
        assert "Provenance" in said([run], tmp_path / "out")[1]


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ("seed = 'one'", "seed must be a whole number, got 'one'"),
        ("data = 3", r"\[data\] must be a table, got 3"),
        ("[partition]\nalpha = 'much'", "alpha must be a number, got 'much'"),
        ("[rounds]\ncount = true", "count must be a whole number, got True"),
        ("[algorithm]\nname = [1]", "name must be a text"),
    ],
)
def test_a_recipe_of_the_wrong_kind_is_one_line(wrong: str, line: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", studies=("curvature",))
    (run / "config.toml").write_text(wrong)
    with pytest.raises(ValueError, match=line):
        report([run], tmp_path / "out", console=Console(file=io.StringIO()))


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ([1, 2, 3, 2, 3], "line 4"),  # two writers
        ([1, 3], "line 2"),
        ([2], "line 1"),
    ],
)
def test_records_must_be_those_of_the_rounds(lines: list[int], line: str, tmp_path: Path) -> None:
    """Doubled metrics are a problem, not more rounds."""
    run = make_run(tmp_path / "run", "fedavg", studies=("curvature",))
    records = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(records[t - 1] for t in lines))
    found = read_runs([run])
    assert found.runs[0].metrics == []
    assert any("metrics.jsonl" in one and line in one for one in found.problems)


def test_a_record_of_words_is_a_problem(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", studies=("curvature",))
    (run / "metrics.jsonl").write_text('{"round": 1, "accuracy": "high"}\n')
    found = read_runs([run])
    assert found.runs[0].metrics == []
    assert "metrics.jsonl" in found.problems[0]


def test_hdf5_that_nobody_wrote(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", studies=("curvature",))
    (run / "analysis" / "drift").mkdir()
    with h5py.File(run / "analysis" / "drift" / "default.h5", "w") as file:
        file.attrs.update({"format": 1, "study": "drift", "settings": "{}", "provenance": "{}"})
        file.create_group("a/b")
        file["root"] = np.zeros(3)
    found = read_runs([run])
    assert len(found.problems) == 1
    assert "drift/default.h5" in found.problems[0]
    assert "curvature" in found.runs[0].answers


def test_names_lead_nowhere_and_do_not_meet(tmp_path: Path) -> None:
    assert make_slug("..") == make_slug("/") == "x"
    assert make_slug("../../etc") == "etc"
    assert make_slugs(["a b", "a-b", "A/B", "a b"]) == ["a-b", "a-b-2", "A-B-3", "a-b-4"]
    names = ("..", "a b", "a-b")
    runs = [make_run(tmp_path / f"run{place}", "fedavg", data=one, studies=()) for place, one in enumerate(names)]
    out = tmp_path / "deep" / "out"
    said(runs, out)
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"out"}
    folders = {path.parent for path in out.rglob("lines.csv")}
    assert len(folders) == 3
    assert all(folder.parent == out / "figures" for folder in folders)


def test_cells_are_no_formulas(tmp_path: Path) -> None:
    run = make_run(tmp_path / "=1+1", "@SUM(A1)", data="+cmd", studies=("curvature",))
    found = read_runs([run])
    (table,) = [one for one in make_tables(found) if one.name == "accuracy"]
    assert "'@SUM(A1)" in render(table, "csv")
    (drawn,) = FIGURES["eigenvalues"].draw(found.runs, found)
    rows = to_csv(drawn.rows).splitlines()
    assert rows[1].startswith("'=1+1,'@SUM(A1)")
    assert to_csv([{"x": -1.5, "y": "-1"}]).splitlines()[1] == "-1.5,'-1"  # numbers stay numbers


def test_brackets_in_paths_are_no_markup(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a[" / "b]" / "x[red]y", "fedavg", studies=("curvature",))
    (run / "analysis" / "curvature" / "default.h5").write_bytes(b"")
    out = tmp_path / "o[/b]"
    lines, _ = said([run], out)
    assert lines[-1] == str(out / "index.html")
    assert any(str(run / "analysis" / "curvature" / "default.h5") in line for line in lines)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is always full")
@pytest.mark.parametrize("name", ["figures/digits-Dirichlet-0.5/lines.svg", "tables/accuracy.md"])
def test_a_full_disk_is_named_with_the_file(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", studies=("curvature",))
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as found:
        said([run], tmp_path / "out")
    assert str(path) in str(found.value)
