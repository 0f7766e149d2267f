"""What a shell offers after TAB, asked for as a shell asks; fixed words are those that the commands accept."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from analysis.command import BACKENDS as MEASURING
from landscape import cli
from landscape.cli import completion
from landscape.plotting.style import WIDTHS
from reports.artefacts.scales import SCALES
from reports.figure_type import FORMATS
from reports.tables.table import BOLD
from training.executors.choice import BACKENDS
from training.personal.strategies import STRATEGIES


def complete(*words: str) -> list[str]:
    """What bash gets for a line that ends in the last of these words."""
    environment = {
        "_LANDSCAPE_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(["landscape", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = CliRunner().invoke(cli.app, [], env=environment, prog_name="landscape")
    assert done.exit_code == 0
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("train", "digits_fedsam", "--backend"), BACKENDS),
        (("analyze", "--backend"), MEASURING),
        (("personal", "--strategy"), STRATEGIES),
        (("report", "--width"), WIDTHS),
        (("report", "--format"), FORMATS),
        (("report", "--bold"), BOLD),
        (("reproduce", "all", "--scale"), SCALES),
        (("new",), ("recipe", "method", "study", "schema")),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_fixed_words_are_those_that_are_accepted(line: tuple[str, ...], words: object) -> None:
    assert complete(*line, "") == sorted(words)  # type: ignore[call-overload]


def test_names_and_commands() -> None:
    assert complete("ana") == ["analyze"]
    assert complete("analyze", "--study", "cur") == ["curvature"]
    assert complete("list", "studies", "pla") == ["plane"]


def test_runs_and_folders_on_the_way_to_them(tmp_path: Path) -> None:
    run = tmp_path / "mine" / "run_a"
    run.mkdir(parents=True)
    (run / "config.toml").write_text("seed = 0\n")
    (tmp_path / "mine" / "notes").mkdir()
    assert completion.complete_run(f"{tmp_path}/m") == [f"{tmp_path}/mine/"]
    assert completion.complete_run(f"{tmp_path}/mine/") == [f"{tmp_path}/mine/notes/", str(run)]
    assert completion.complete_run(f"{tmp_path}/mine/r") == [str(run)]
