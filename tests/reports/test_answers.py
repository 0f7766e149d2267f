"""Answers from elsewhere reach the report: of one's own models, of `--out`, and of `landscape personal`."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from analysis import store
from analysis.store import Answer
from reports.catalog import FIGURES
from reports.command import find_runs, report
from reports.figures.personal import FIGURE
from reports.inputs.runs import read_runs
from reports.tables.catalog import make_tables
from reports.tables.table import format_cell
from tests.reports.conftest import make_run
from tests.reports.results import curvature
from training.personal.scores import ClientScore, PersonalResult
from training.personal.scores import save as save_scores


def answer(subject: str, inputs: dict[str, object], scale: float = 1.0) -> Answer:
    return dataclasses.replace(
        curvature.stored(scale), provenance={"subjects": [subject], "inputs": [inputs], "batchnorm": ["frozen"]}
    )


def test_a_model_of_ones_own_is_reported(tmp_path: Path) -> None:
    store.write(
        tmp_path / "mine" / "curvature" / "default.h5", answer("resnet", {"model": "abc"})
    )  # analyze --model --out mine
    store.write(tmp_path / "other" / "analysis" / "curvature" / "default.h5", answer("vgg", {"model": "def"}, 2.0))
    found = read_runs(find_runs([tmp_path / "mine", tmp_path / "other"]))
    assert [(run.name, run.progress.state) for run in found.runs] == [("resnet", "given"), ("vgg", "given")]
    assert found.problems == []
    console = Console(file=io.StringIO(), width=300)
    text = report(
        [tmp_path / "mine", tmp_path / "other"], tmp_path / "out", console=console, formats=["svg"]
    ).read_text()
    assert "2 models not trained here: resnet and vgg." in text
    assert "Largest eigenvalue over rounds" in text or "eigenvalue" in text
    assert "landscape train" not in text
    (sharp,) = make_tables(found)
    assert [line.label for line in sharp.lines] == ["resnet", "vgg"]


def test_answers_beside_a_run_are_given_to_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "run", "fedavg", studies=("surface",))
    (run / "provenance.json").write_text(json.dumps({"digest": "d1"}))
    store.write(tmp_path / "out" / "curvature" / "default.h5", answer("run", {"run": "d1"}))
    found = read_runs(find_runs([run, tmp_path / "out"]))
    assert [set(one.answers) for one in found.runs] == [{"surface", "curvature"}]
    # of another recipe, or of a model that happens to have the same name: not its answer
    for inputs in ({"run": "d2"}, {"model": "abc"}):
        store.write(tmp_path / "out" / "curvature" / "default.h5", answer("run", inputs))
        found = read_runs([run, tmp_path / "out"])
        assert [set(one.answers) for one in found.runs] == [{"surface"}, {"curvature"}]
        assert len({one.name for one in found.runs}) == 2


def test_a_second_answer_is_named_and_not_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "run", "fedavg", studies=("curvature",))
    store.write(tmp_path / "out" / "curvature" / "default.h5", answer("run", {"run": "d1"}, 5.0))
    found = read_runs([run, tmp_path / "out"])
    path = tmp_path / "out" / "curvature" / "default.h5"
    assert found.problems == [f"{path}: an answer about run that is not shown (the run has an answer of its own)"]
    assert found.runs[0].measured("curvature")["eigenvalue"].values[-1, 0] == 30.0


def test_a_second_question_stands_beside_the_first(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "run", "fedavg", studies=("curvature",))
    other = dataclasses.replace(answer("run", {"run": "d1"}, 5.0), question="top10")
    store.write(tmp_path / "out" / "curvature" / "top10.h5", other)
    found = read_runs([run, tmp_path / "out"])
    assert found.problems == []
    assert found.questions("curvature") == ["default", "top10"]
    for question, value in (("default", 30.0), ("top10", 150.0)):
        (one,) = found.narrow({"curvature": question}).runs
        assert one.measured("curvature")["eigenvalue"].values[-1, 0] == value


def test_every_question_is_drawn_and_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", studies=("curvature",))
    other = dataclasses.replace(curvature.stored(5.0), question="top10")
    store.write(run / "analysis" / "curvature" / "top10.h5", other)
    console = Console(file=io.StringIO(), width=300)

    def pictures(*names: str) -> dict[str, str]:
        """File -> the largest eigenvalue of the last round in it."""
        out = tmp_path / "-".join(["out", *names])
        figures = [FIGURES["eigenvalues"]]
        page = report([run], out, console=console, figures=figures, formats=["svg"], questions=names, strict=True)
        text = page.read_text()
        assert ("question top10" in text) == (names != ("default",))
        return {path.name: path.read_text().splitlines()[-1] for path in out.rglob("eigenvalues*.csv")}

    every = pictures()
    assert set(every) == {"eigenvalues.csv", "eigenvalues-top10.csv"}
    assert "30.0" in every["eigenvalues.csv"]
    assert "150.0" in every["eigenvalues-top10.csv"]
    assert pictures("top10") == {"eigenvalues.csv": every["eigenvalues-top10.csv"]}
    assert pictures("default") == {"eigenvalues.csv": every["eigenvalues.csv"]}
    with pytest.raises(ValueError, match="question: unknown 'top1'; did you mean 'top10'"):
        pictures("top1")


def test_folders_patterns_and_what_lies_beside_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [make_run(tmp_path / "runs" / name, "fedavg", studies=()) for name in ("a1", "a2", "b")]
    (tmp_path / "runs" / "analysis").mkdir()
    (tmp_path / "runs" / "report").mkdir()
    (tmp_path / "runs" / "report" / "index.html").write_text("")
    assert find_runs([tmp_path / "runs"]) == runs
    assert find_runs([tmp_path / "runs" / "a*"]) == runs[:2]
    assert find_runs(sorted((tmp_path / "runs").iterdir())) == runs  # as a shell expands runs/*
    shutil.copytree(runs[0], tmp_path / "runs" / "x[1]")
    assert find_runs([tmp_path / "runs" / "x[1]"]) == [tmp_path / "runs" / "x[1]"]  # a name, though it has brackets
    monkeypatch.chdir(runs[0])
    assert [run.name for run in read_runs(find_runs([Path()])).runs] == ["a1"]


def test_runs_of_the_same_name_stay_apart(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f / "run", "fedavg", seed=seed, studies=()) for seed, f in enumerate(("x", "y"))]
    assert [run.name for run in read_runs(runs).runs] == ["x/run", "y/run"]


def scores(way: str, after: list[float], **options: object) -> PersonalResult:
    clients = tuple(ClientScore(client, 10, 0.5, value) for client, value in enumerate(after))
    return PersonalResult(way, 3, "server", dict(options), None, "hash", 0, clients)


def test_results_of_landscape_personal_reach_tables_and_figures(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", studies=())
    for result in (scores("finetune", [0.6, 0.8], epochs=5), scores("knn", [0.5, 0.9], k=5)):
        save_scores(run / "personal" / result.file, result)
    found = read_runs([run])
    assert found.problems == []
    (table,) = [one for one in make_tables(found) if one.name == "personal"]
    assert [column.title for column in table.columns] == ["global model (%)", "fine-tuned (%)", "kNN (%)"]
    texts = [format_cell(cell, column) for cell, column in zip(table.lines[0].cells, table.columns, strict=True)]
    assert texts == ["50.0 ± 0.0", "70.0 ± 10.0", "70.0 ± 20.0"]
    assert "standard deviation over clients" in table.note
    (drawn,) = FIGURE.draw(found.runs, found)
    assert [axes.get_title() for axes in drawn.canvas.axes] == ["global model", "fine-tuned", "kNN"]
    assert "standard deviation over clients" in drawn.caption
    np.testing.assert_allclose([row["accuracy"] for row in drawn.rows if row["strategy"] == "knn"], [0.5, 0.9])


def test_what_differs_tells_two_results_of_one_way_apart(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", studies=("personal",))
    for epochs in (1, 5):
        result = scores("finetune", [0.6, 0.8], epochs=epochs)
        save_scores(run / "personal" / result.file, result)
    (read,) = read_runs([run]).runs
    names = [one.name for one in read.personal]
    assert len(set(names)) == len(names) == 4
    assert {"finetune (epochs 1)", "finetune (epochs 5)"} <= set(names)


def test_runs_of_all_seeds_show_the_spread_over_clients(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"r{seed}", "fedavg", seed=seed, studies=()) for seed in (0, 1)]
    for run, after in zip(runs, ([0.6, 0.8], [0.5, 0.9]), strict=True):
        result = scores("finetune", after)
        save_scores(run / "personal" / result.file, result)
    (table,) = [one for one in make_tables(read_runs(runs)) if one.name == "personal"]
    cell = table.lines[0].cells[1]
    assert (cell.mean, cell.spread, cell.seeds) == (pytest.approx(70.0), pytest.approx(15.0), 2)
    assert cell.doubt == pytest.approx(0.0)  # over seeds: 70 and 70
