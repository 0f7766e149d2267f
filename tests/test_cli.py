"""The command as a newcomer meets it: mistakes are one line, never a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rich.console import Console

from landscape import cli
from training.console.progress import bars

COMMAND = [sys.executable, "-m", "landscape"]


def run(*words):
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120)


@pytest.fixture
def command(monkeypatch, capsys):
    """The command inside this process: (exit code, errors)."""

    def run_here(*words):
        monkeypatch.setattr(sys, "argv", ["landscape", *words])
        monkeypatch.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return stop.value.code, capsys.readouterr().err

    return run_here


def test_help_and_version():
    assert "demo" in run("--help").stdout
    assert run("--version").stdout.strip().count(".") == 2


def test_a_mistake_from_outside():
    done = run("list", "figurs")
    assert done.returncode == 2
    assert "did you mean 'figures'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dmo"], "No such command"),
        (["demo", "--sed", "3"], "No such option"),
        (["demo", "--seed", "x"], "Invalid value"),
        (["list", "figurs"], "did you mean 'figures'"),
        (["report", "nowhere"], "no runs to report on"),
    ],
)
def test_mistakes_on_the_command_line(command, words, message):
    code, err = command(*words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_a_place_that_cannot_be_written_is_said_in_one_line(command, tmp_path):
    (tmp_path / "file").write_text("in the way")
    code, err = command("demo", "--out", str(tmp_path / "file"))
    assert code == 1
    assert err.startswith("error: ")
    assert "Traceback" not in err


def test_plain_lines_where_there_is_no_terminal(capsys):
    with bars(Console()) as bar:
        report = bar("work")
        for done in range(1, 4):
            report(done, 3)
    assert capsys.readouterr().out.startswith("work: 3 done in ")


def test_the_workers_of_a_reproduction_may_share_a_gpu(command, monkeypatch):
    asked = {}
    monkeypatch.setattr("reports.reproduction.reproduce", lambda *names, **options: asked.update(options))
    assert command("reproduce", "fedgloss/table3", "--backend", "ray", "--gpus", "0.25") == (0, "")
    assert (asked["backend"], asked["cluster"].gpus) == ("ray", 0.25)
