"""Initial weights from a file: what is loaded, what is said and stored, and the identity of the run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from landscape.errors import choose
from training import config
from training.config import Recipe
from training.engine.federation import Federation
from training.engine.run import train
from training.models.networks import build
from training.models.torchvision_shim import models
from training.models.weights import compute_digest, start_from
from training.storage import checkpoint


def recipe_with(file: Path, **model: Any) -> Recipe:
    return config.validate(
        {
            "data": {"name": "synthetic", "examples": 40, "test_examples": 10, "classes": 3, "shape": [1, 2, 2]},
            "partition": {"clients": 4},
            "model": {"name": "mlp", "hidden": [5], "weights": str(file), **model},
            "rounds": {"count": 2, "participants": 2},
        }
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Weights of the perceptron 4-5-2: its last layer does not fit three classes."""
    path = tmp_path / "start.safetensors"
    save_file(build("mlp", classes=2, channels=1, size=2, seed=7, hidden=[5]).state_dict(), path)
    return path


def test_what_fits_is_loaded_and_the_rest_left(file: Path, tmp_path: Path) -> None:
    said: list[str] = []
    recipe = recipe_with(file)
    run = train(recipe, tmp_path / "runs", backend="serial", on_message=said.append)
    given = build("mlp", classes=2, channels=1, size=2, seed=7, hidden=[5]).state_dict()
    own = build("mlp", classes=3, channels=1, size=2, seed=0, hidden=[5]).state_dict()
    expected = [given["fc1.weight"], given["fc1.bias"], own["fc2.weight"], own["fc2.bias"]]
    wanted = torch.cat([one.reshape(-1) for one in expected])
    assert torch.equal(Federation(recipe).begin().w, wanted)
    first = checkpoint.load(run / "checkpoints" / "round_000000")
    assert torch.equal(first.models["server"], wanted)
    line = f"{file}: 2 of 4 tensors loaded; left as initialised: fc2.weight, fc2.bias; 2 in the file fit no tensor"
    assert [one for one in said if one.startswith(line)]
    stored = json.loads((run / "provenance.json").read_text())["weights"]
    assert stored == {
        "file": "start.safetensors",
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "loaded": 2,
        "kept": ["fc2.weight", "fc2.bias"],
    }


def test_the_contents_identify_the_run_and_not_the_path(file: Path, tmp_path: Path) -> None:
    there = tmp_path / "elsewhere.safetensors"
    there.write_bytes(file.read_bytes())
    assert recipe_with(there).digest == recipe_with(file).digest
    other = tmp_path / "other.safetensors"
    save_file(build("mlp", classes=2, channels=1, size=2, seed=8, hidden=[5]).state_dict(), other)
    assert recipe_with(other).digest != recipe_with(file).digest


def test_a_stored_run_is_read_without_the_file_but_not_begun(file: Path, tmp_path: Path) -> None:
    recipe = recipe_with(file)
    run = train(recipe, tmp_path / "runs", backend="serial")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    loaded = config.load(run / "config.toml")[0]
    assert loaded.digest == recipe.digest
    Federation(loaded, begins=False)
    with pytest.raises(ValueError, match=r"start.safetensors has changed \(SHA-256 .{8}, the recipe says .{8}\)"):
        Federation(loaded)
    file.unlink()
    Federation(config.load(run / "config.toml")[0], begins=False)
    with pytest.raises(ValueError, match=r"start.safetensors: cannot be read"):
        Federation(loaded)


def test_mobilenet_begins_with_torchvisions_weights(tmp_path: Path) -> None:
    """156 of its tensors fit GroupNorm; the classifier of other classes and 156 statistics of BatchNorm do not."""
    theirs = models.MobileNetV2(num_classes=1000).state_dict()
    path = tmp_path / "mobilenet.pth"
    torch.save(theirs, path)
    network = build("mobilenetv2_gn", classes=11, channels=3, size=32, seed=0)
    start = start_from(network, path, compute_digest(path))
    assert (len(start.loaded), start.kept) == (156, ("classifier.1.weight", "classifier.1.bias"))
    assert len(start.unused) == 314 - 156
    for name in start.loaded:
        assert torch.equal(network.state_dict()[name], theirs[name])


def test_what_could_execute_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "whole.pt"
    torch.save({"weights": choose}, path)
    network = build("mlp", classes=3, channels=1, size=2, seed=0)
    with pytest.raises(ValueError, match="not a file of tensors that can be read without executing code"):
        start_from(network, path, compute_digest(path))


def test_mistakes_are_named(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model.weights: .*nowhere.pt cannot be read .No such file"):
        recipe_with(tmp_path / "nowhere.pt")
    with pytest.raises(ValueError, match="weights_digest is of a file; write weights = FILE as well"):
        config.validate({"model": {"weights_digest": "ab"}})
    with pytest.raises(ValueError, match=r"nothing in .* fits the network by name and shape; it holds fc1.bias, "):
        Federation(recipe_with(file, hidden=[6, 7]))
    bad = tmp_path / "bad.safetensors"
    save_file({"fc1.bias": torch.full((5,), torch.nan)}, bad)
    with pytest.raises(ValueError, match=r"'fc1.bias' in .*bad.safetensors has values that are not finite"):
        Federation(recipe_with(bad))
