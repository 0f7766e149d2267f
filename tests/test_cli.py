"""The command as a newcomer meets it: the demo writes what it says, and mistakes are one line, never a traceback."""

from __future__ import annotations

import subprocess
import sys

import h5py
import numpy as np
import pytest
import torch
from rich.console import Console

from landscape import demo
from landscape.bars import bars

COMMAND = [sys.executable, "-c", "from landscape.cli import main; main()"]


def run(*words, **options):
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120, **options)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return demo.run(folder, steps=5), folder


def test_the_demo_stores_what_it_measured(result):
    found, folder = result
    assert (folder / "landscape.png").stat().st_size > 10_000
    assert not list(folder.glob("*.tmp"))
    with h5py.File(folder / "results.h5") as file:
        np.testing.assert_array_equal(file["spectrum/values"], found.spectrum.values)
        np.testing.assert_array_equal(file["surface/loss"], found.surface.loss)
        assert file["surface/loss"].shape == (5, 5)
        assert file["barrier/loss"].attrs["linear"] == found.path.loss.linear
        assert set(file["sharpness"]) == {"A", "B"}


def test_the_demo_shows_what_it_is_about(result):
    found, _ = result
    assert found.spectrum.converged.all()
    assert found.error < 0.2
    for own, everyone, residual in found.sharpness.values():
        assert everyone > 3 * own
        assert residual < 1e-2 * everyone


def test_the_demo_is_the_same_every_time(result):
    found, _ = result
    assert sum(p.numel() for p in demo.network(0).parameters()) == 6090
    with bars(Console(quiet=True)) as bar:
        again = demo.measure(0, 5, bar)
    np.testing.assert_array_equal(again.surface.loss, found.surface.loss)
    assert torch.equal(again.spectrum.vectors, found.spectrum.vectors)


def test_help_and_version():
    assert "demo" in run("--help").stdout
    assert run("--version").stdout.strip().count(".") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dmo"], "No such command"),
        (["demo", "--sed", "3"], "No such option"),
        (["demo", "--seed", "x"], "Invalid value"),
    ],
)
def test_mistakes_on_the_command_line(words, message):
    done = run(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    from landscape import cli

    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(demo, "measure", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["landscape", "demo", "--out", str(tmp_path / "file")])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_plain_lines_where_there_is_no_terminal(capsys):
    with bars(Console()) as bar:
        report = bar("work")
        for done in range(1, 4):
            report(done, 3)
    assert capsys.readouterr().out.startswith("work: 3 done in ")
