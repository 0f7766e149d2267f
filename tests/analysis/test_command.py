"""`landscape analyze` beside others, in odd places and without room: one line, and nothing that was there is lost."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from analysis import command, runner, store
from analysis.catalog import STUDIES
from analysis.subjects import Limits, Run
from training.storage import lock


@pytest.fixture
def place(run: Run, tmp_path: Path) -> Callable[[str], Run]:
    """A copy of a run under another name."""

    def copy(name: str) -> Run:
        shutil.copytree(run.path, tmp_path / name)
        return Run(tmp_path / name, limits=Limits(workers=1))

    return copy


def console() -> Console:
    return Console(width=300, record=True, file=io.StringIO())


@contextmanager
def another(directory: Path) -> Iterator[None]:
    """Somebody else holds a directory."""
    with lock.hold(directory, "train"):
        yield


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_one_writer_at_a_time(place: Callable[[str], Run]) -> None:
    run = place("run")
    with another(run.path), pytest.raises(ValueError, match=r"run is being written by train \(pid"):
        command.analyze([run], ["training"], [], console=console())
    assert not (run.path / "analysis").exists()
    (path,) = command.analyze([run], ["training"], [], console=console())
    assert path == run.path / "analysis" / "training" / "default.h5"
    assert not (run.path / "lock").exists()


def test_results_elsewhere_lock_that_folder(place: Callable[[str], Run], tmp_path: Path) -> None:
    run, out = place("run"), tmp_path / "out"
    with another(out), pytest.raises(ValueError, match=r"out is being written by train"):
        command.analyze([run], ["training"], [], console=console(), out=out)
    with another(run.path):
        assert command.analyze([run], ["training"], [], console=console(), out=out) == [out / "training" / "default.h5"]


def test_runs_that_are_compared_lock_the_folder_of_the_comparison(place: Callable[[str], Run], tmp_path: Path) -> None:
    runs = [place("a"), place("b")]
    with another(tmp_path / "analysis"), pytest.raises(ValueError, match=r"analysis is being written by train"):
        command.analyze(runs, ["interpolation"], [], console=console())


def test_leftovers_of_killed_processes_are_cleared_away(place: Callable[[str], Run]) -> None:
    run = place("run")
    (run.path / "analysis" / "training").mkdir(parents=True)
    leftover = run.path / "analysis" / "training" / ".default.h5.4242.tmp"
    leftover.write_bytes(b"half a file")
    command.analyze([run], ["training"], [], console=console(), dry_run=True)
    assert leftover.exists()
    command.analyze([run], ["training"], [], console=console())
    assert not leftover.exists()


def test_a_dry_run_changes_nothing(place: Callable[[str], Run]) -> None:
    run = place("run")
    (run.path / "analysis").mkdir()
    (run.path / "analysis" / "training").mkdir(parents=True)
    (run.path / "analysis" / "training" / "default.h5").write_text("damaged")
    before = names(run.path)
    with another(run.path):  # and waits for nobody
        inside = names(run.path)
        assert command.analyze([run], ["training"], [], console=console(), dry_run=True) == []
        assert names(run.path) == inside
    assert names(run.path) == before
    command.analyze([run], ["training"], [], console=console())
    assert (run.path / "analysis" / "training" / "default.h5.damaged1").read_text() == "damaged"


@pytest.mark.parametrize("name", ["x[red]y", "a[bold]b[", "back\\[slash]"])
def test_brackets_in_a_path_are_printed_as_they_are(place: Callable[[str], Run], name: str) -> None:
    run, paper = place(name), console()
    command.analyze([run], ["training"], [], console=paper)
    text = paper.export_text()
    assert str(run.path / "analysis" / "training" / "default.h5") in text
    assert f"training, {name}" in text


def test_a_closing_bracket_in_a_path_is_no_markup(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a[" / "b]"
    path.parent.mkdir()
    shutil.copytree(run.path, path)
    paper = console()
    command.analyze([Run(path, limits=Limits(workers=1))], ["training"], [], console=paper)
    assert str(path) in paper.export_text()


def test_a_name_that_is_no_text(run: Run, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"run\xff")
    shutil.copytree(run.path, path)
    odd = Run(path, limits=Limits(workers=1))
    assert odd.name == "run\\xff"
    paths = command.analyze([odd, odd], ["interpolation"], ["steps=3", "limit=20"], console=console())
    assert store.verify(paths[0]) == ""


def test_several_runs_do_not_share_one_file(place: Callable[[str], Run], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is for the answers of one run, but training was asked of 2"):
        command.analyze([place("a"), place("b")], ["training"], [], console=console(), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_do_no_work(run: Run, workers: int) -> None:
    with pytest.raises(ValueError, match="workers must be a whole number, at least 1; got"):
        command.open_subjects([run.path], workers=workers)


def test_memory_is_understood_before_anything_is_opened(run: Run) -> None:
    with pytest.raises(ValueError, match="memory must look like 8G"):
        command.open_subjects([run.path], memory="lots")


def test_a_full_disk_names_the_file_and_loses_nothing(
    place: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = place("run")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"nc could not be written \(No space left on device\)"):
        command.analyze([run], ["training"], [], console=console())
    assert not (run.path / "lock").exists()
    monkeypatch.undo()
    (path,) = command.analyze([run], ["training"], [], console=console())
    assert runner.plan(STUDIES["training"], STUDIES["training"].settings(), [run], path.parents[1]).kept


def test_a_folder_of_runs_and_patterns(place: Callable[[str], Run], tmp_path: Path) -> None:
    for name in ("fedavg_1", "fedavg_2", "fedsam_1"):
        place(name)
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis" / "plane.h5").touch()

    def found(*given: Path) -> list[str]:
        return [subject.name for subject in command.open_subjects(given)]

    assert found(tmp_path) == ["fedavg_1", "fedavg_2", "fedsam_1"]
    assert found(tmp_path / "fedavg_*") == ["fedavg_1", "fedavg_2"]
    assert found(*sorted(tmp_path.iterdir())) == ["fedavg_1", "fedavg_2", "fedsam_1"]  # as a shell's * gives them
    with pytest.raises(ValueError, match="no run directory matches this pattern"):
        found(tmp_path / "fedprox_*")
    with pytest.raises(ValueError, match="analysis is not a run"):
        found(tmp_path / "analysis")


def test_a_run_that_cannot_be_measured_does_not_keep_others_from_it(place: Callable[[str], Run]) -> None:
    good, bad = place("good"), place("bad")
    for path in (bad.path / "checkpoints").iterdir():
        if not path.name.endswith("00000"):
            shutil.rmtree(path)
    bad, page = Run(bad.path, limits=Limits(workers=1)), console()
    paths = command.analyze([bad, good], ["sensitivity"], [], console=page)
    assert paths == [good.path / "analysis" / "sensitivity" / "default.h5"]
    assert "sensitivity skipped: bad: round 0 keeps no local models" in page.export_text()
    with pytest.raises(ValueError, match="bad: round 0 keeps no local models"):
        command.analyze([bad], ["sensitivity"], [], console=console())


def test_another_folder_of_the_data_is_no_other_run(run: Run, tmp_path: Path) -> None:
    """The digest leaves out where the data lie; a warning would be an error here."""
    moved = Run(run.path, tmp_path)
    assert moved.inputs(moved.rounds) == run.inputs(run.rounds)
