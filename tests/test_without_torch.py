"""What the commands that only read do where torch, torchvision and scikit-learn are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from landscape import cli

ROOT = Path(__file__).resolve().parents[1]
RECIPE = """
[partition]
clients = 3
[rounds]
count = 2
participants = 2
[checkpoints]
every = 1
"""
WITHOUT = "import sys; sys.modules.update(dict.fromkeys(('torch', 'torchvision', 'sklearn'))); "
MAIN = "from landscape.cli import main; main()"


def run(folder: Path, script: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=environment,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run with the answer of one study."""
    folder = tmp_path_factory.mktemp("without_torch")
    (folder / "small.toml").write_text(RECIPE)
    train = ["train", f"{folder}/small.toml", "--out", f"{folder}/runs"]
    for words in (train, ["analyze", f"{folder}/runs/*", "--study", "training"]):
        done = CliRunner().invoke(cli.app, words)  # here torch is there
        assert done.exit_code == 0, done.output
    (path,) = (folder / "runs").iterdir()
    return path


def test_torch_cannot_be_imported_in_these_tests(tmp_path: Path) -> None:
    assert "import of torch halted" in run(tmp_path, WITHOUT + "import torch").stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--version"], "."),
        (["--help"], "Loss landscapes and sharpness for federated learning"),
        (["list", "figures"], "accuracy"),
        (["list", "artefacts"], "fedgloss"),
        (["reproduce", "fedsol/figure6", "--dry-run"], "fedsol/figure6"),
        (["show", "RUN"], "finished, 2 of 2 rounds"),
        (["check", "RUN"], "sound: 3 checkpoints, 1 results of analyze"),
        (["report", "RUN", "--format", "svg"], "index.html"),
    ],
    ids=lambda part: "-".join(part[:2]).removeprefix("--").replace("/", "-") if isinstance(part, list) else "",
)
def test_commands_that_only_read_need_no_torch(trained: Path, words: list[str], expected: str) -> None:
    done = run(trained.parent, WITHOUT + MAIN, *(str(trained) if word == "RUN" else word for word in words))
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_damage_is_found_without_torch(trained: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", str(trained), str(copy)], check=True)
    path = copy / "checkpoints" / "round_000001" / "global.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = run(tmp_path, WITHOUT + MAIN, "check", copy)
    assert done.returncode == 1
    assert "global.safetensors: its content does not match the hash" in done.stdout
