"""Animations are written where they can be, and a line says what is missing where they cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from reports.inputs.runs import Collection, read_runs
from reports.plotting.loss import animation
from reports.plotting.loss.animation import animate, animate_rounds, animate_turn
from reports.plotting.loss.surfaces import find_comparison, find_surfaces
from tests.reports.conftest import make_run
from tests.reports.results import surface
from tests.reports.results.answers import write_answer


def read(tmp_path: Path, rounds: tuple[int, ...] = (10,), names: tuple[str, ...] = ("run_a", "run_c")) -> Collection:
    paths = [make_run(tmp_path / name, "fedavg" if name == "run_a" else "fedsam") for name in names]
    write_answer(tmp_path, surface.stored(names, rounds=rounds))
    return read_runs(paths)


@pytest.fixture
def few_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(animation, "FRAMES", 3)


def frames(path: Path) -> list[bytes]:
    with Image.open(path) as picture:
        found = []
        for number in range(picture.n_frames):
            picture.seek(number)
            found.append(picture.convert("RGB").tobytes())
    return found


@pytest.mark.usefixtures("few_frames")
def test_a_surface_turns(tmp_path: Path) -> None:
    found = read(tmp_path)
    pair = find_comparison(found.runs, found)
    assert pair is not None
    path = animate_turn(pair[0], pair[1][0], tmp_path / "turn.gif", "red", found)
    assert len(set(frames(path))) == 3
    assert path.stat().st_size < 2e6 * 3 / 36


def test_rounds_pass_one_frame_each(tmp_path: Path) -> None:
    found = read(tmp_path, rounds=(2, 5, 10))
    path = animate_rounds(find_surfaces(found.runs[0], found.runs, found, "train"), tmp_path / "rounds.gif", found)
    assert len(set(frames(path))) == 3


@pytest.mark.usefixtures("few_frames")
def test_all_that_is_possible_is_written(tmp_path: Path) -> None:
    found = read(tmp_path, rounds=(5, 10))
    paths, missing = animate(found, tmp_path / "out")
    assert [path.name for path in paths] == ["overlay_run_c.gif", "rounds_run_a.gif", "rounds_run_c.gif"]
    assert all(path.exists() for path in paths)
    assert missing == []


@pytest.mark.usefixtures("few_frames")
def test_what_cannot_be_shown_is_said(tmp_path: Path) -> None:
    found = read(tmp_path / "one", names=("run_a",))
    paths, missing = animate(found, tmp_path / "out")
    assert [path.name for path in paths] == ["surface_run_a.gif"]  # alone: nothing to lay over it
    assert missing == ["digits, Dirichlet α = 0.5: nothing to show over rounds; analyze with --set surface.rounds=all"]
    bare = read_runs([make_run(tmp_path / "two" / "run", "fedavg")])
    bare.runs[0].answers.clear()
    paths, (line,) = animate(bare, tmp_path / "out")
    assert paths == []
    assert "landscape analyze --study surface" in line


def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(animation.writers, "is_available", lambda name: False)
    paths, (line,) = animate(read(tmp_path), tmp_path / "out", "mp4")
    assert paths == []
    assert "ffmpeg" in line
    with pytest.raises(ValueError, match=r"end in \.gif or \.mp4"):
        animation.choose_writer(Path("a.webm"), 3)
