"""A dozen artefacts of all five papers, trained, measured and typeset on the digits; what is missing is named."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analysis import store
from reports import reproduction
from reports.artefact import Artefact, Entry, Facts, Grid, Layout, Panel, Question
from reports.artefacts import experiments, plan
from reports.artefacts.page import write_paper_page
from reports.artefacts.parts import read_part
from reports.artefacts.scales import SCALES, Scale
from reports.artefacts.stand_ins import Content
from reports.artefacts.typesetting import RunFinder, make_artefact
from reports.findings import sharing
from reports.papers.catalog import PAPERS
from reports.quantities.catalog import ACCURACY
from tests.reports.artefacts.sample import PAPER
from training.executors.pools import Placement

# few runs each, and among them every paper, tables, facts, and studies of one run, of clients and between runs
SAMPLE = (
    "fedfsa/figure3",
    "fedvssam/figure1",
    "fedvssam/figure7",
    "fedgloss/table2",
    "fedgloss/table13",
    "fedgloss/figure2",
    "fedgloss/figure9",
    "fedsam/table12",
    "fedsam/figure7",
    "fedsam/figure12",
    "fedsol/figure6",
    "fedsol/figure10",
)


def shorten(content: Content, usual_lr: float) -> Content:
    """Four rounds of one epoch: enough to see that everything comes together."""
    small = SCALES["digits"].change(content, usual_lr)
    small["rounds"]["count"], small["local"]["epochs"] = 4, 1
    small["evaluation"] |= {"every": 1, "last": 2}
    small["checkpoints"]["every"] = 1
    return small


SHORT = Scale("digits", "four rounds", 1, shorten)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("papers") / "digits"


@pytest.mark.parametrize("name", SAMPLE)
def test_an_artefact_is_trained_measured_and_typeset(name: str, folder: Path) -> None:
    paper = PAPERS[name.partition("/")[0]]
    artefact = paper.find(name.partition("/")[2])
    console = Console(quiet=True)
    measured = reproduction.train_and_measure(paper, [artefact], SHORT, folder, console, placement=Placement(workers=1))
    assert measured.problems == []
    made = make_artefact(paper, artefact, SHORT, measured.runs, folder / paper.key, formats=["png"])
    assert made.missing == ""
    assert "not run" not in made.html
    assert all(Path(file).stat().st_size > 100 for file in made.files)
    numbers = next(Path(file) for file in made.files if file.endswith(".csv"))
    with numbers.open(newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) > 1 or isinstance(artefact.shape, Facts)
    page = write_paper_page(folder / paper.key, paper, SHORT).read_text()
    assert made.html in page
    assert f'id="{artefact.name}"' in page
    assert read_part(folder / paper.key, artefact.name) == made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `landscape reproduce` know one paper of seconds."""
    scales = {**SCALES, "digits": SHORT}
    monkeypatch.setattr(reproduction, "PAPERS", {"sample": PAPER})
    monkeypatch.setattr(reproduction, "find_scale", lambda name: scales[name])
    yield
    plan.plan_paper.cache_clear()


def run(out: Path, *wanted: str, **options: object) -> tuple[str, reproduction.Outcome]:
    console = Console(record=True, width=300, file=io.StringIO())
    outcome = reproduction.reproduce(wanted, "digits", out, console=console, workers=1, **options)  # type: ignore[arg-type]
    return console.export_text(), outcome


@pytest.mark.usefixtures("quick")
def test_a_paper_is_made_once_and_the_rest_is_said(tmp_path: Path) -> None:
    text, outcome = run(tmp_path, "sample")
    assert [one.name for one in outcome.made] == ["table1", "table2", "table3"]
    assert "sample/figure1: nothing to reproduce, a concept drawing" in text
    table = (tmp_path / "digits" / "sample" / "table1.md").read_text()
    assert "data CIFAR-10 → digits, Landmarks → synthetic; model" in table
    assert "; partition natural → " in table
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    again, _ = run(tmp_path, "sample/table1", "sample/table2")
    assert "5 of 5 runs are there already" in again
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")} == stamps


@pytest.mark.usefixtures("quick")
def test_an_interruption_leaves_runs_that_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, trained = experiments.train_run, []

    def train_once(*given: Any) -> experiments.Trained:
        if trained:
            raise KeyboardInterrupt
        trained.append(train(*given))
        return trained[0]

    monkeypatch.setattr(experiments, "train_run", train_once)
    console = Console(record=True, width=300, file=io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        reproduction.reproduce("sample/table2", "digits", tmp_path, console=console, workers=1)
    assert "the same command goes on" in console.export_text()
    assert len(list(tmp_path.rglob("*.h5"))) == 1
    monkeypatch.setattr(experiments, "train_run", train)
    text, outcome = run(tmp_path, "sample/table2")
    assert "1 of 2 runs are there already" in text
    assert "run 2 of 2" in text
    assert outcome.problems == []
    assert len(list(tmp_path.rglob("*.h5"))) == 2


@pytest.mark.usefixtures("quick")
def test_what_is_missing_is_not_final(tmp_path: Path) -> None:
    text, outcome = run(tmp_path, "sample/table1", typeset=True)
    assert "table1.md (not final: 5 of 5 runs are missing)" in text
    (made,) = outcome.made
    assert made.missing == "5 of 5 runs are missing"
    assert "not run" in (tmp_path / "digits" / "sample" / "table1.md").read_text()
    assert "Not final: 5 of 5 runs are missing" in (tmp_path / "digits" / "sample" / "index.html").read_text()


@pytest.mark.usefixtures("quick")
def test_answers_are_enough_to_typeset(tmp_path: Path) -> None:
    """What is shared has no checkpoints, and gives the same table."""
    run(tmp_path / "whole", "sample/table2")
    archive = tmp_path / "part" / "digits" / sharing.ARCHIVE
    names = sharing.pack_runs(tmp_path / "whole" / "digits" / "runs", archive)
    assert len(names) == 2
    first = archive.read_bytes()
    sharing.pack_runs(tmp_path / "whole" / "digits" / "runs", archive)
    assert archive.read_bytes() == first  # no dates, no owners
    sharing.unpack_runs(archive, tmp_path / "part" / "digits" / "runs")
    assert not list((tmp_path / "part").rglob("*.safetensors"))
    run(tmp_path / "part", "sample/table2", typeset=True)
    table = Path("digits") / "sample" / "table2.csv"
    assert (tmp_path / "part" / table).read_bytes() == (tmp_path / "whole" / table).read_bytes()


@pytest.mark.usefixtures("quick")
def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    text, outcome = run(tmp_path, "sample", dry_run=True)
    assert outcome.made == []
    assert "not made" in text
    assert "nothing to reproduce: a concept drawing" in text
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick")
def test_an_unknown_name_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"artefact of sample: unknown 'tabel1'; did you mean 'table1'\?"):
        run(tmp_path, "sample/tabel1")


def test_a_diverged_run_is_a_cross(tmp_path: Path) -> None:
    hot = replace(PAPER.find("table2"), settings={"local.lr": 1e6})
    paper = replace(PAPER, artefacts=(hot,))
    measured = reproduction.train_and_measure(
        paper, [hot], SHORT, tmp_path, Console(quiet=True), placement=Placement(workers=1)
    )
    make_artefact(paper, hot, SHORT, measured.runs, tmp_path / "sample", formats=["png"])
    table = (tmp_path / "sample" / "table2.md").read_text()
    assert "\N{MULTIPLICATION SIGN}" in table
    assert "diverged" in table


@pytest.mark.usefixtures("quick")
def test_an_answer_with_other_settings_is_not_shown(tmp_path: Path) -> None:
    """A later version may ask another question under the same name."""
    run(tmp_path, "sample/table2")
    table2 = PAPER.find("table2")
    other = replace(table2, questions=(replace(table2.questions[0], digits={"top": 3}),))
    finder = RunFinder(replace(PAPER, artefacts=(other,)), other, SHORT, find_paths(tmp_path, table2))
    same = RunFinder(PAPER, table2, SHORT, find_paths(tmp_path, table2))
    assert [bool(one.answer("curvature")) for one in finder.runs.values()] == [False, False]
    assert [bool(one.answer("curvature")) for one in same.runs.values()] == [True, True]


@pytest.mark.usefixtures("quick")
def test_a_question_that_has_changed_is_answered_again(tmp_path: Path) -> None:
    """What an earlier version measured under its name is put aside, not lost."""
    run(tmp_path, "sample/table3")
    path = next((tmp_path / "digits" / "runs").iterdir())
    for top in (1, 2):
        question = Question("curvature", "lambda", {"rounds": "last", "top": top, "limit": 20})
        assert experiments.answer_questions(path, [(question, question.settings)], None) == []
    answers = {file.name: store.read(file) for file in (path / "analysis" / "curvature").glob("*.h5")}
    assert answers["lambda.h5"].settings["top"] == 2
    (old,) = set(answers) - {"lambda.h5"}
    assert answers[old].settings["top"] == 1


def find_paths(out: Path, artefact: Artefact) -> dict[str, Path]:
    return experiments.find_runs(plan.select_runs(PAPER, [artefact], SHORT), out / "digits")


def test_captions_say_everything_once(tmp_path: Path) -> None:
    """Title, notes and what was scaled down; a page shows them below the picture, or inside the table."""
    rows = (Entry("FedAvg", {"algorithm": {"name": "fedavg"}}),)
    figure = Artefact("figure2", "Curves", Layout((Panel("curves", rows),), note="A note"), note="Another")
    table = Artefact("table9", "Numbers", Grid(rows, (Entry("x"),), ACCURACY, note="A note"), note="Another")
    paper = replace(PAPER, artefacts=(figure, table))
    for one in paper.artefacts:
        made = make_artefact(paper, one, SHORT, {}, tmp_path, formats=["png"])
        shown = write_paper_page(tmp_path, paper, SHORT).read_text()
        assert made.caption.startswith(f"{one.title}. A note. Another. Scaled down: data CIFAR-10 → digits;")
        for said in ("A note.", "Another.", "Scaled down: "):
            assert made.caption.count(said) == 1
        assert f"{1 if one is figure else 2} of them not final" in shown  # no run was made
        assert shown.count("Another. Scaled down: ") == (2 if one is figure else 3)  # a picture is read out as well


def test_a_table_without_notes_says_its_title_once(tmp_path: Path) -> None:
    cells = {"data.name": "digits", "model.name": "digits_cnn"}  # nothing that would be scaled down
    rows = (Entry("FedAvg", {"algorithm": {"name": "fedavg"}}),)
    table = Artefact("table9", "Numbers", Grid(rows, (Entry("x"),), ACCURACY))
    paper = replace(PAPER, settings=cells, artefacts=(table,))
    made = make_artefact(paper, table, replace(SHORT, name="full"), {}, tmp_path, formats=["png"])
    assert made.caption == "Numbers."
    assert next(Path(one) for one in made.files if one.endswith(".md")).read_text().count("Numbers") == 1
