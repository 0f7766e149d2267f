"""The command as a newcomer meets it: mistakes are one line, never a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rich.console import Console

from training.console.progress import bars

COMMAND = [sys.executable, "-m", "landscape"]


def run(*words, **options):
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120, **options)


def test_help_and_version():
    assert "demo" in run("--help").stdout
    assert run("--version").stdout.strip().count(".") == 2


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
def test_mistakes_on_the_command_line(words, message):
    done = run(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = run("demo", "--out", str(tmp_path / "file"))
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_plain_lines_where_there_is_no_terminal(capsys):
    with bars(Console()) as bar:
        report = bar("work")
        for done in range(1, 4):
            report(done, 3)
    assert capsys.readouterr().out.startswith("work: 3 done in ")
