"""Command lines that nobody should write: exit code 2 (or 1 for the system's own refusal), one line, no traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz import commands
from tests.fuzz.directory import TRAIN, Directory

RUN = "RUN"  # stands for a sound run
NOT_TEXT = os.fsdecode(b"caf\xe9")  # a name that is not UTF-8
LINES: tuple[tuple[str, ...], ...] = (
    ("train",),
    ("train", "nowhere"),
    ("train", "nowhere.toml"),
    ("train", "folder.toml"),
    ("train", "empty[/b].toml", "--set", "rounds.count=x"),
    ("train", "binary.toml"),
    ("train", NOT_TEXT),
    ("train", f"{NOT_TEXT}.toml"),
    ("train", ""),
    ("train", "/"),
    ("train", "digits_fedavg", "--set", "nonsense"),
    ("train", "digits_fedavg", "--set", "=1"),
    ("train", "digits_fedavg", "--set", "local.lr="),
    ("train", "digits_fedavg", "--set", "local.lr=-1"),
    ("train", "digits_fedavg", "--set", "local.lr=nan"),
    ("train", "digits_fedavg", "--set", "local.lr=1e999"),
    ("train", "digits_fedavg", "--set", "local=1"),
    ("train", "digits_fedavg", "--set", "rounds.count=0"),
    ("train", "digits_fedavg", "--set", "rounds.participants=10000"),
    ("train", "digits_fedavg", "--set", f"rounds.count={10**30}x"),
    ("train", "digits_fedavg", "--set", "seed=[" + "[" * 5000),
    ("train", "digits_fedavg", "--set", "sweep.seed=3"),
    ("train", "digits_fedavg", "--set", f"data.name={NOT_TEXT}"),
    ("train", "digits_fedavg", "--set", "data.name=../../etc"),
    ("train", "digits_fedavg", "--set", "model.name=nowhere:function"),
    ("train", "digits_fedavg", "--set", "model.name=os:getcwd"),
    ("train", "digits_fedavg", "--set", "model.name=a[/b]"),
    ("train", "digits_fedavg", "--workers", "0"),
    ("train", "digits_fedavg", "--workers", "-3"),
    ("train", "digits_fedavg", "--workers", "two"),
    ("train", "digits_fedavg", "--backend", "gpu"),
    ("train", "digits_fedavg", "--out", "file.txt"),
    ("train", "digits_fedavg", "--out", "/proc/x[/b]"),
    ("train", "digits_fedavg", "--data-root", "file.txt", "--set", "data.name=cifar10"),
    ("analyze",),
    ("analyze", "nowhere"),
    ("analyze", "file.txt"),
    ("analyze", "x[/b]"),
    ("analyze", RUN, "--study", "nothing"),
    ("analyze", RUN, "--workers", "0"),
    ("analyze", RUN, "--memory", "lots"),
    ("analyze", RUN, "--memory", "-1G"),
    ("analyze", RUN, "--study", "curvature", "--set", "top=0"),
    ("analyze", RUN, "--study", "curvature", "--set", "top=many"),
    ("analyze", RUN, "--study", "curvature", "--set", "nonsense"),
    ("analyze", RUN, "--study", "curvature", "--rounds", "99"),
    ("analyze", RUN, "--study", "curvature", "--rounds", "every 0"),
    ("analyze", RUN, "--study", "curvature", "--rounds", NOT_TEXT),
    ("analyze", RUN, "--study", "training", "--out", "file.txt"),
    ("analyze", "--model", "mlp"),
    ("analyze", "--model", "mlp", "--weights", "nowhere", "--data", "digits"),
    ("analyze", "--model", "mlp", "--weights", "file.txt", "--data", "words.npz"),
    ("analyze", "--model", "mlp", "--weights", "file.txt", "--data", "far.npz"),
    ("analyze", "--model", "mlp", "--weights", "file.txt", "--data", "file.npz"),
    ("analyze", "--model", "mlp", "--weights", "file.txt", "--data", "nowhere.npz"),
    ("analyze", "--model", "nowhere:f", "--weights", "file.txt", "--data", "digits"),
    ("analyze", RUN, "--model", "mlp"),
    ("report",),
    ("report", "nowhere"),
    ("report", "x[red]y"),
    ("report", NOT_TEXT),
    ("report", RUN, "--format", "bmp"),
    ("report", RUN, "--out", "file.txt"),
    ("show", "nowhere"),
    ("show", "file.txt"),
    ("show", "a[/b]"),
    ("show", NOT_TEXT),
    ("check", "nowhere"),
    ("check", "/dev/null"),
    ("check", "folder"),
    ("personal", RUN, "--way", "nothing"),
    ("personal", RUN, "--round", "77"),
    ("personal", RUN, "--model", "nothing"),
    ("personal", RUN, "--set", "epochs=-1"),
    ("personal", RUN, "--clients", "0"),
    ("personal", "nowhere"),
    ("export", "nowhere.h5", "out.vts"),
    ("export", "file.txt", "out.vts"),
    ("export", "file.h5", "out.xyz"),
    ("import", "file.h5", "made.h5"),
    ("import", "folder", "made.h5"),
    ("import", "file.h5", "file.txt"),
    ("list", "nothing"),
    ("list", ""),
    ("demo", "--out", "file.txt"),
    ("demo", "--seed", "-1"),
    ("nothing",),
    ("--nothing",),
)


@pytest.fixture(scope="module")
def directory() -> Iterator[Directory]:
    """A folder with a sound run and some files that are not what their names say."""
    made = Directory("fedavg")
    assert made.do(*TRAIN).code == 0
    folder = made.folder
    for name in ("folder.toml", "folder", "x[/b]", "a[/b]", "empty[", NOT_TEXT):
        (folder / name).mkdir(parents=True)
    (folder / "empty[" / "b].toml").write_text("")
    for name in ("file.txt", "file.npz", "file.h5", f"{NOT_TEXT}.toml"):
        (folder / name).write_text("neither this nor that = \x00")
    (folder / "binary.toml").write_bytes(bytes(range(256)))
    inputs = np.zeros((3, 1, 4, 4), dtype=np.float32)
    np.savez(folder / "words.npz", x_train=inputs, y_train=np.asarray(["a", "b", "c"]))
    np.savez(folder / "far.npz", x_train=inputs, y_train=np.asarray([0, 1, 2**40]))
    yield made
    made.close()


@pytest.mark.parametrize("words", LINES, ids=lambda words: " ".join(words).encode(errors="replace").decode()[:60])
def test_a_hostile_command_line_is_answered_in_one_line(directory: Directory, words: tuple[str, ...]):
    before = names(directory.folder)
    done = commands.run(directory.folder, *(directory.name if word == RUN else word for word in words))
    assert done.code in (1, 2), done
    assert "Traceback" not in done.out + done.err, done
    told = [line for line in done.err.splitlines() if not line.startswith(("Usage:", "Try '", "╭", "╰"))]
    assert 1 <= len([line for line in told if line.strip("│ ")]) <= 2, done  # typer breaks its own lines in a box
    assert all(len(line) < 2000 for line in told), done
    assert names(directory.folder) == before, done


def names(folder: Path) -> set[str]:
    """Everything in a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
