"""Things of a user's own, in modules outside the package: named, registered, stored, resumed, refused, and tested."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import training
from training import config, plugins, testing
from training.config import Recipe
from training.console import listings
from training.data import datasets, partition
from training.engine.run import train
from training.methods import catalog
from training.models import networks
from training.storage import checkpoint, metrics
from training.tasks import catalog as tasks

DOCS = Path(__file__).parents[2] / "docs" / "own_method.md"
BLOCKS = re.findall(r"^<!-- (\w+)(?:: (\S+))? -->\n```python\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
OTHERS = """
import dataclasses
import functools
import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from training.data.dataset import make
from training.tasks.classification import CLASSIFICATION
from training.rules.perturbations import SAM
from training.settings import Positive

class Mine(SAM):
    pass

def net(classes, channels, size, width: int = 4):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, width), nn.ReLU(), nn.Linear(width, classes))

def data(examples: int = 40):
    images = torch.arange(examples * 4, dtype=torch.float32).reshape(examples, 1, 2, 2) / examples
    labels = torch.arange(examples) % 3
    return (images, labels), (images[:9], labels[:9])

def deal(labels, clients, generator, *, skew: Positive = 1.0):
    return [np.arange(len(labels))[client::clients] for client in range(clients)]

NOTHING = 3
TASK = dataclasses.replace(CLASSIFICATION, name="smooth", loss=functools.partial(cross_entropy, label_smoothing=0.5))

def smooth():
    return make("smooth", *data(), task="others_of_mine:TASK")
"""
POINTS = (catalog.METHODS, catalog.RULES, networks.NETWORKS, datasets.SOURCES, partition.SCHEMES, tasks.KINDS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules that can be imported; afterwards neither they nor what they registered are known."""
    (tmp_path / "growing.py").write_text(next(code for kind, _, code in BLOCKS if kind == "file"))
    (tmp_path / "others_of_mine.py").write_text(OTHERS)
    monkeypatch.syspath_prepend(tmp_path)
    for point in POINTS:
        monkeypatch.setattr(point, "registered", {})
    yield tmp_path
    for name in ("growing", "others_of_mine"):
        sys.modules.pop(name, None)


def recipe_of(**tables: Any) -> Recipe:
    content: dict[str, Any] = {
        "data": {"name": "synthetic", "examples": 60, "test_examples": 10, "classes": 3, "shape": [1, 2, 2]},
        "partition": {"clients": 4},
        "model": {"name": "mlp", "hidden": [5]},
        "algorithm": {"name": "growing:GROWING", "mu": 0.5},
        "rounds": {"count": 3, "participants": 2},
        "checkpoints": {"every": 1},
    }
    return config.validate({**content, **tables})


def test_the_page_of_the_docs_runs(folder: Path) -> None:
    code = [code for kind, _, code in BLOCKS if kind == "run"]
    assert len(code) == 1
    exec(compile(code[0], "own_method.md", "exec"), {})
    commands = re.findall(r"^landscape (\w+)", DOCS.read_text(), re.MULTILINE)
    assert commands == ["train", "analyze", "report"]
    named = re.findall(r"`((?:training|analysis|reports)\.register_\w+)`", DOCS.read_text())
    for name in named:
        module, _, function = name.rpartition(".")
        assert callable(getattr(importlib.import_module(module), function))
    assert {f"training.{name}" for name in training.__all__ if name.startswith("register")} <= set(named)


def test_a_method_is_trained_and_resumed_and_recorded(folder: Path) -> None:
    recipe = recipe_of()

    class StoppedError(Exception):
        pass

    def stop(record: metrics.Record) -> None:
        if record["round"] == 2:
            raise StoppedError

    whole = train(recipe, folder / "whole", backend="serial")
    with pytest.raises(StoppedError):
        train(recipe, folder / "parts", backend="serial", on_round=stop)
    parts = train(config.load(next((folder / "parts").glob("*/config.toml")))[0], folder / "parts", backend="serial")
    left, right = (checkpoint.load_newest(run)[0] for run in (whole, parts))
    assert left is not None
    assert right is not None
    assert torch.equal(left.models["server"], right.models["server"])
    stored = json.loads((whole / "provenance.json").read_text())["plugins"]["growing:GROWING"]
    assert stored["module"] == "growing"
    assert stored["file"] == "growing.py"
    assert len(stored["sha256"]) == 64
    plain = train(recipe_of(algorithm={"name": "fedavg"}), folder / "plain", backend="serial")
    assert "plugins" not in json.loads((plain / "provenance.json").read_text())


def test_a_module_that_has_changed_or_gone_is_refused(folder: Path) -> None:
    recipe = recipe_of()
    run = train(recipe, folder / "runs", backend="serial")
    path = folder / "growing.py"
    path.write_text(path.read_text() + "\n# another text\n")
    with pytest.raises(
        ValueError, match=r"begun with another version of growing:GROWING: the file growing.py has changed \(SHA-256"
    ):
        train(recipe, folder / "runs", backend="serial")
    path.unlink()
    sys.modules.pop("growing")
    importlib.invalidate_caches()
    with pytest.raises(ValueError, match="algorithm 'growing:GROWING': module 'growing' cannot be imported") as refused:
        config.load(run / "config.toml")
    assert "\n" not in str(refused.value)


def test_a_new_version_of_a_package_is_a_change() -> None:
    before = {"module": "mine", "file": "mine.py", "sha256": "ab", "version": "1.0"}
    assert plugins.explain_change("mine:M", before, dict(before)) == ""
    newer = plugins.explain_change("mine:M", before, {**before, "version": "1.1"})
    assert newer == "mine:M: its package had version 1.0, now 1.1"
    assert plugins.describe_source("numpy:array")["version"]


def test_workers_find_the_module_by_its_name(folder: Path) -> None:
    testing.check_method("growing:GROWING", mu=0.3)


def test_a_registered_name_is_short_for_the_module(folder: Path) -> None:
    import growing  # registers its method  # type: ignore[import-not-found]

    assert catalog.METHODS.registered == {"growing": "growing:GROWING"}
    short, full = recipe_of(algorithm={"name": "growing"}), recipe_of(algorithm={"name": "growing:GROWING"})
    assert short.algorithm.name == "growing:GROWING"
    assert short.digest == full.digest
    assert short.algorithm.settings == {"mu": 0.1, "eta_g": 1.0}
    training.register_perturbation("mine", "others_of_mine:Mine")
    assert recipe_of(algorithm={"name": "growing+mine"}).algorithm.name == "growing:GROWING+others_of_mine:Mine"
    listed = print_listing("algorithms")
    assert re.search(r"growing +growing pull → mean .* mu=0.1", listed)
    training.register_method("growing", growing.GROWING)  # again the same
    with pytest.raises(ValueError, match=r"algorithm 'growing' is already growing:GROWING: register growing:Growing"):
        training.register_method("growing", growing.GrowingPull)


def print_listing(kind: str) -> str:
    console = Console(width=400, no_color=True)
    with console.capture() as capture:
        console.print(listings.make_listing(kind))
    return capture.get()


def test_one_rule_is_a_method(folder: Path) -> None:
    alone = catalog.find_method("growing:GrowingPull", {"mu": 2})
    assert alone.correction == catalog.find_method("growing:GROWING", {"mu": 2}).correction
    assert (alone.name, type(alone.server).__name__) == ("GrowingPull", "Mean")
    assert type(catalog.find_method("feddyn+others_of_mine:Mine").perturbation).__name__ == "Mine"


def test_models_data_and_partitions_of_ones_own(folder: Path) -> None:
    tables = {
        "data": {"name": "ours_data", "examples": 30},
        "model": {"name": "net", "width": 6},
        "partition": {"name": "deal", "clients": 4, "skew": 2.0},
    }
    training.register_dataset("ours_data", "others_of_mine:data")
    training.register_model("net", "others_of_mine:net")
    training.register_partition("deal", "others_of_mine:deal")
    recipe = recipe_of(**tables)
    own = ("others_of_mine:data", "others_of_mine:deal", "others_of_mine:net")
    assert recipe.plugins == ("growing:GROWING", *own)
    run = train(recipe, folder / "runs", backend="serial")
    assert set(json.loads((run / "provenance.json").read_text())["plugins"]) == set(recipe.plugins)
    for kind, name in (("datasets", "ours_data"), ("models", "net"), ("partitions", "deal")):
        assert name in print_listing(kind)


def test_a_task_of_ones_own_has_its_own_loss(folder: Path) -> None:
    losses = [
        metrics.read(train(recipe_of(data={"name": f"others_of_mine:{name}"}), folder / name, backend="serial"))
        for name in ("smooth", "data")
    ]
    assert abs(losses[0][0]["train_loss"] - losses[1][0]["train_loss"]) > 1e-3
    training.register_task("smooth", "others_of_mine:TASK")
    assert tasks.KINDS.find("smooth").name == "smooth"
    (stored,) = (folder / "smooth").glob("*/provenance.json")
    assert json.loads(stored.read_text())["plugins"].keys() >= {"others_of_mine:smooth", "others_of_mine:TASK"}
    with pytest.raises(ValueError, match=r"task 'others_of_mine:NOTHING' must be a training.tasks.task.Task, got int"):
        tasks.KINDS.find("others_of_mine:NOTHING")


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"algorithm": {"name": "growing:GROWNG"}}, "unknown 'GROWNG'; did you mean 'GROWING'"),
        ({"algorithm": {"name": "growing:GROWING", "muu": 1}}, "growing:GROWING: unknown 'muu'; did you mean 'mu'"),
        ({"algorithm": {"name": "growing:GROWING", "mu": -1}}, "growing:GROWING: mu must be at least 0, got -1"),
        ({"algorithm": {"name": "others_of_mine:NOTHING"}}, "must be a Method, a function that returns one, or a rule"),
        ({"algorithm": {"name": "fedavg+growing:GrowingPull"}}, "must be a class derived from Perturbation"),
        ({"model": {"name": "others_of_mine:net", "widht": 3}}, "unknown 'widht'; did you mean 'width'"),
        ({"model": {"name": "others_of_mine:NOTHING"}}, "must be a function or a class, got int"),
        ({"partition": {"name": "others_of_mine:deal", "skew": -1.0}}, "skew must be above 0, got -1"),
        ({"data": {"name": "others_of_mine:data", "exampels": 3}}, "unknown 'exampels'; did you mean 'examples'"),
    ],
)
def test_mistakes_are_named_when_the_recipe_is_read(folder: Path, tables: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe_of(**tables)


def nowhere() -> None:
    """A function whose module is said to be a script."""


def test_what_no_process_could_import_is_not_registered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="algorithm GrowingPull cannot be imported by name: define it at the top"):
        training.register_method("x", importlib.import_module("growing").GrowingPull())
    with pytest.raises(ValueError, match=r"cannot be imported by name"):
        training.register_model("x", lambda classes: None)
    monkeypatch.setattr(nowhere, "__module__", "__main__")
    with pytest.raises(ValueError, match="nowhere is defined in __main__, a script or a notebook"):
        training.register_model("x", nowhere)
    with pytest.raises(ValueError, match="a name is made of small letters"):
        training.register_model("my:x", "others_of_mine:net")
    with pytest.raises(ValueError, match="model 'mlp' is already a built-in one"):
        training.register_model("mlp", "others_of_mine:net")


def test_modules_that_register_are_named_by_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.VARIABLE, " growing , ")
    plugins.import_plugins()
    assert "growing" in catalog.METHODS.entries()
    monkeypatch.setenv(plugins.VARIABLE, "no_such_module_of_ours")
    with pytest.raises(ValueError, match="LANDSCAPE_PLUGINS: module 'no_such_module_of_ours' cannot be imported"):
        plugins.import_plugins()
