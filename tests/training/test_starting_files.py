"""Files that `landscape new` writes work as they stand: they are trained, checked and measured here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import analysis
import training
from training import config, testing
from training.starting_files import write_new

RECIPE = {
    "data": {"name": "synthetic", "examples": 60, "test_examples": 10, "classes": 3, "shape": [1, 2, 2]},
    "partition": {"clients": 4},
    "model": {"name": "mlp", "hidden": [5]},
    "rounds": {"count": 2, "participants": 2},
    "checkpoints": {"every": 1},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("my_method", "my_study"):
        sys.modules.pop(name, None)


def test_a_new_method_and_a_new_study_work_as_they_stand(folder):
    assert write_new("method") == Path("my_method.py")
    assert write_new("study") == Path("my_study.py")
    sys.path.append(str(folder))
    testing.check_method("my_method:METHOD", processes=False)
    run = training.train(
        {**RECIPE, "algorithm": {"name": "my_method:METHOD", "mu": 0.5, "rho": 0.1, "eta_g": 0.9}}, backend="serial"
    )
    plain = training.train(RECIPE, backend="serial")
    assert run.status["state"] == "finished"
    assert run.metrics["train_loss"].iloc[-1] != plain.metrics["train_loss"].iloc[-1]
    answer = analysis.analyze(run, "my_study:STUDY", limit=30)
    assert answer["round"].values.tolist() == [0, 1, 2]
    assert (answer["loss"] > 0).all()
    assert (answer["gradient_norm"] > 0).all()
    assert (run.path / "analysis" / "my_study").is_dir()


def test_without_its_rules_the_new_method_is_fedavg(folder):
    write_new("method")
    sys.path.append(str(folder))
    own = training.train({**RECIPE, "algorithm": {"name": "my_method:METHOD", "mu": 0.0, "rho": 0.0}}, backend="serial")
    plain = training.train(RECIPE, backend="serial")
    assert own.metrics["train_loss"].tolist() == plain.metrics["train_loss"].tolist()


def test_new_modules_have_the_form_of_our_own(folder):
    for kind in ("method", "study"):
        write_new(kind)
    ruff = [Path(sys.executable).with_name("ruff"), "--config", str(Path(__file__).parents[2] / "pyproject.toml")]
    for words in (["check"], ["format", "--check"]):
        done = subprocess.run([ruff[0], *words, *ruff[1:], "."], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout


def test_a_new_recipe_is_a_recipe(folder):
    assert config.load(write_new("recipe", "mine.toml"), [])[0].digest == config.validate({}).digest


@pytest.mark.parametrize(
    ("kind", "out", "expected"),
    [
        ("method", "my-method.py", "Python must be able to import it"),
        ("method", "method.toml", "Python must be able to import it"),
        ("study", "random.py", "there is a module 'random' already"),
        ("methods", None, "method"),
    ],
)
def test_a_file_that_could_not_be_used_is_refused(folder, kind, out, expected):
    with pytest.raises(ValueError, match=expected):
        write_new(kind, out)
    assert not list(folder.iterdir())
