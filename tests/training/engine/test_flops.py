"""Floating-point operations against closed forms, and against the gradients that methods say they take."""

import dataclasses
import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from landscape.kernels import matmul
from tests.training.federations import COMPOSED, NAMES, federation, play, setup
from training import config, verification
from training.console import summaries
from training.console.summaries import describe_flops
from training.engine import run as engine
from training.engine.federation import Federation
from training.engine.flops import count_flops, count_trainer_flops
from training.storage import run_directory

# the perceptron 4-5-3: W x costs 2 * (20 + 15); its gradient as much again for the weights, 2 * 15 for hidden units
FORWARD, HEAD, HIDDEN = 70, 30, 30
BACKWARD = FORWARD + HIDDEN
GRADIENT = FORWARD + BACKWARD
B = 4


@pytest.mark.parametrize(
    ("name", "settings", "step", "references"),
    [
        ("fedavg", {}, GRADIENT, 0),
        ("fedsam", {}, 2 * GRADIENT, 0),
        ("fedsam", {"rho": 0}, GRADIENT, 0),
        ("fedsam-previous", {}, GRADIENT, 0),
        ("naivefedgloss", {}, 4 * GRADIENT, 0),
        ("perfedavg", {}, 2 * GRADIENT, 0),  # two mini-batches
        ("fedntd", {}, GRADIENT + FORWARD, FORWARD),
        ("moon", {}, GRADIENT + 2 * FORWARD, 2 * FORWARD),
        ("fedgmt", {}, GRADIENT + FORWARD, FORWARD),
        ("fedsol", {}, 2 * GRADIENT + FORWARD, FORWARD),
        ("fedsol", {"part": "body"}, 2 * GRADIENT - HEAD + FORWARD, FORWARD),
        ("fedsol", {"part": "head"}, GRADIENT + FORWARD + HEAD + FORWARD, FORWARD),
        ("fedsol", {"part": "head", "combine": "A6"}, 2 * GRADIENT + FORWARD, FORWARD),  # the whole is added
        ("fedsol", {"proximal": "distance", "part": "head"}, GRADIENT, 0),
        ("fedsol", {"combine": "A0"}, GRADIENT, 0),
        ("fedsol", {"combine": "A3"}, 3 * GRADIENT + FORWARD, FORWARD),
    ],
)
def test_the_perceptron_by_hand(name: str, settings: dict, step: int, references: int) -> None:
    found = count_trainer_flops(setup(name, settings, local={"batch_size": B}).trainer)
    assert (found.forward, found.backward) == (FORWARD, BACKWARD)
    assert (found.per_step, found.references) == (B * step, B * references)
    assert found.ratio == pytest.approx(step / GRADIENT, rel=1e-15)


OWN_LOSS = [name for name in NAMES + COMPOSED if name.startswith("fedcr")]


@pytest.mark.parametrize("name", OWN_LOSS)
def test_a_step_of_fedcr_costs_one_pass_of_its_head_for_each_encoding(name: str) -> None:
    fed = federation(name)
    layers = [layer for layer in fed.trainer.model.modules() if isinstance(layer, nn.Linear)]
    samples = fed.recipe.algorithm.settings["samples"]
    cost = 0
    for number, layer in enumerate(layers):
        product = 2 * layer.in_features * layer.out_features * (samples if layer is layers[-1] else 1)
        cost += (2 if number == 0 else 3) * product  # forward, weights, and inputs but for the first layer's
    found = count_trainer_flops(fed.trainer)
    assert found.per_step == cost * fed.method.gradients_per_step * fed.recipe.local.batch_size


@pytest.mark.parametrize("name", [name for name in NAMES + COMPOSED if name not in OWN_LOSS])
def test_a_step_costs_its_gradients_and_its_references(name: str) -> None:
    fed = federation(name)
    found = count_trainer_flops(fed.trainer)
    gradients = fed.method.gradients_per_step * GRADIENT * fed.recipe.local.batch_size
    assert found.per_step - found.references == gradients


def count_by_hooks(model: nn.Module, shape: tuple[int, ...]) -> int:
    """2 x (outputs) x (inputs of each) over all convolutions and linear layers, for one example."""
    total = 0

    def add(layer: nn.Module, _: object, out: torch.Tensor) -> None:
        nonlocal total
        total += 2 * out.numel() * layer.weight[0].numel()

    layers = [layer for layer in model.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    hooks = [layer.register_forward_hook(add) for layer in layers]
    model.eval()(torch.zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    return total


@pytest.mark.parametrize("model", ["lenet64", "fedavg_net", "mobilenetv2_gn"])
def test_convolutions(model: str) -> None:
    shape = [3, 32, 32]
    fed = federation(
        "fedsam",
        data={"shape": shape},
        model={"name": model},
        dtype="float32",
    )
    found = count_trainer_flops(fed.trainer)
    assert found.forward == count_by_hooks(fed.trainer.model, tuple(shape))
    # weights cost what the forward pass does, inputs too, but for those of the first layer
    first = next(layer for layer in fed.trainer.model.modules() if isinstance(layer, nn.Conv2d))
    images = count_by_hooks(nn.Sequential(first), tuple(shape))
    assert found.backward == 2 * found.forward - images
    assert found.ratio == 2.0


def test_attention() -> None:
    """Queries with keys and weights with values: 2 x 2 x tokens^2 x width in each block, twice that backwards."""
    small = {"name": "vit_small", "patch": 16, "width": 32, "depth": 2, "heads": 4, "hidden": 64}
    fed = federation(data={"shape": [3, 32, 32]}, model=small, dtype="float32")
    found, tokens = count_trainer_flops(fed.trainer), 5
    linear, attention = count_by_hooks(fed.trainer.model, (3, 32, 32)), 2 * 4 * tokens**2 * 32
    assert found.forward == linear + attention
    images = 2 * 4 * 32 * 3 * 16 * 16
    assert found.backward == 2 * found.forward - images


def test_transposed_and_grouped_convolutions() -> None:
    """Of 2 x 2 images, 6 channels in 2 groups, then each pixel spread over 2 x 2."""
    model = {"name": "tests.training.engine.test_flops:spread"}
    found = count_trainer_flops(federation(model=model).trainer)
    first, grouped, transposed, last = 2 * 4 * 6, 2 * 24 * 3 * 1, 2 * 24 * 3 * 4, 2 * 48 * 3
    assert found.forward == first + grouped + transposed + last
    assert found.backward == 2 * found.forward - first


def spread(classes: int, channels: int, size: int) -> nn.Module:
    """A grouped and a transposed convolution."""
    return nn.Sequential(
        nn.Conv2d(channels, 6, 1),
        nn.Conv2d(6, 6, 1, groups=2),
        nn.ConvTranspose2d(6, 3, 2, stride=2),
        nn.Flatten(),
        nn.Linear(3 * 4 * size * size, classes),
    )


def test_counting_leaves_no_trace() -> None:
    model = {"name": "tests.training.federations:normed"}
    one, two = (federation("fedsol", sizes=(6, 7, 10, 8), model=model) for _ in range(2))
    state, statistics = torch.get_rng_state(), two.trainer.read_statistics().clone()
    count_trainer_flops(two.trainer)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(two.trainer.read_statistics(), statistics)
    (left, _, _), (right, _, _) = (play(fed, 2)[-1] for fed in (one, two))
    assert torch.equal(left.w, right.w)
    assert torch.equal(left.statistics, right.statistics)


RECIPE = {
    "partition": {"name": "iid", "clients": 4},
    "model": {"name": "mlp", "hidden": [8]},
    "algorithm": {"name": "fedsol", "part": "head"},
    "local": {"steps": 1},
    "rounds": {"count": 2, "participants": 2},
}


def test_a_run_keeps_what_its_steps_cost(tmp_path: Path) -> None:
    recipe = config.validate(RECIPE)
    path = engine.train(recipe, tmp_path, backend="serial")
    stored = run_directory.read_provenance(path)["flops"]
    assert stored == dataclasses.asdict(count_flops(recipe))
    printed = io.StringIO()
    summaries.show(path, Console(file=printed, width=200))
    (line,) = (line for line in printed.getvalue().splitlines() if line.startswith("cost"))
    assert line.removeprefix("cost").strip() == describe_flops(stored)
    assert not verification.check_run(path)


def test_a_run_of_an_older_version_stays_as_it_was(tmp_path: Path) -> None:
    path = engine.train(config.validate(RECIPE), tmp_path, backend="serial")
    facts = run_directory.read_provenance(path)
    del facts["flops"]
    (path / "provenance.json").write_text(json.dumps(facts))
    engine.train(config.validate(RECIPE), tmp_path, backend="serial")
    assert "flops" not in run_directory.read_provenance(path)


def test_what_cannot_be_counted_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise NotImplementedError("no such operator")

    monkeypatch.setattr(engine, "count_trainer_flops", fail)
    path = engine.train(config.validate(RECIPE), tmp_path, backend="serial")
    assert "flops" not in run_directory.read_provenance(path)
    assert run_directory.read_status(path)["state"] == "finished"


@pytest.mark.parametrize("stored", [None, 3, {}, {"forward": 1}, {"forward": "x", "backward": 1, "per_step": 1}])
def test_what_is_not_known_is_not_described(stored: object) -> None:
    assert describe_flops(stored) == ""


def test_the_cost_does_not_depend_on_how_few_examples_there_are() -> None:
    few = federation(sizes=(1, 1, 1))
    assert count_trainer_flops(few.trainer) == count_trainer_flops(federation().trainer)


def test_federation_is_counted_as_its_recipe() -> None:
    fed = federation("fedsam", dtype="float32")
    assert count_flops(fed.recipe) == count_trainer_flops(Federation(fed.recipe).trainer)


def test_products_by_onednn_count_as_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = config.validate({"data": {"name": "synthetic", "shape": [1, 28, 28]}, "model": {"name": "fsa_cnn"}})
    found = count_flops(recipe)
    monkeypatch.setattr(matmul, "LARGE", 10**18)
    assert found == count_flops(recipe)
