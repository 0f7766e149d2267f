"""Scales change sizes and lengths, never the method."""

from __future__ import annotations

from typing import Any

import pytest

from reports.artefacts.scales import SCALES, describe_changes, find_scale, find_unreadable, scale_settings
from training.config import validate

PUBLISHED = {
    "data.name": "cifar10",
    "partition.name": "dirichlet_total",
    "partition.clients": 100,
    "partition.alpha": 0.05,
    "model.name": "lenet64",
    "augment": {"padding": 4, "flip": True, "cutout": 16},
    "local.lr": 0.01,
    "local.batch_size": 64,
    "rounds.count": 10000,
    "rounds.participants": 5,
    "algorithm": {"name": "fedgloss", "rho": 0.15, "rho_s": 0.15, "beta": 10.0, "warmup": 2000},
    "swa": {"start": 0.75, "cycle": 10, "lr_end": 1e-4},
    "evaluation.last": 100,
    "checkpoints.every": 1000,
}


def test_full_is_as_published() -> None:
    content = scale_settings(PUBLISHED, SCALES["full"], 0.01)
    recipe = validate({**content, "seed": 0})
    assert recipe.rounds.count == 10000
    assert recipe.algorithm.settings["warmup"] == 2000
    assert describe_changes(PUBLISHED, content) == []


def test_digits_is_small_and_keeps_the_method() -> None:
    content = scale_settings(PUBLISHED, SCALES["digits"], 0.01)
    recipe = validate({**content, "seed": 0})
    assert recipe.data.name == "digits"
    assert recipe.model.name == "digits_cnn"
    assert (recipe.partition.clients, recipe.rounds.participants) == (20, 5)
    assert recipe.partition.settings["alpha"] == 0.05
    settings = recipe.algorithm.settings
    assert (settings["rho"], settings["rho_s"], settings["beta"]) == (0.15, 0.15, 10.0)
    share = recipe.rounds.count / 10000
    assert settings["warmup"] == round(2000 * share)
    assert recipe.swa is not None
    assert recipe.swa.start == 0.75
    assert recipe.swa.lr_end == pytest.approx(1e-4 * recipe.local.lr / 0.01)
    assert recipe.augment.flip is False  # a mirrored digit is another digit
    assert PUBLISHED["augment"] == {"padding": 4, "flip": True, "cutout": 16}  # nothing given is changed


def test_twenty_classes_are_not_moved_about() -> None:
    content = scale_settings({**PUBLISHED, "data.name": "cifar100"}, SCALES["digits"], 0.01)
    recipe = validate({**content, "seed": 0})
    assert (recipe.data.name, recipe.model.name) == ("synthetic", "mlp")
    assert (recipe.augment.padding, recipe.augment.cutout) == (0, 4)


def test_longer_runs_stay_longer_and_swept_rates_keep_their_ratio() -> None:
    def scaled(**changes: object) -> dict[str, dict[str, float]]:
        return scale_settings(
            {**PUBLISHED, **{k.replace("__", "."): v for k, v in changes.items()}}, SCALES["digits"], 0.01
        )

    counts = [scaled(rounds__count=count)["rounds"]["count"] for count in (200, 800, 10000, 200000)]
    assert counts == sorted(set(counts))
    assert scaled(local__lr=0.1)["local"]["lr"] == pytest.approx(10 * scaled()["local"]["lr"])
    assert [scaled(local__epochs=epochs)["local"]["epochs"] for epochs in (1, 2, 5, 10)] == [1, 2, 3, 4]


def test_a_laptop_keeps_networks_epochs_and_lengths_apart() -> None:
    def scaled(key: str, value: object) -> dict[str, dict[str, Any]]:
        return scale_settings({**PUBLISHED, key: value}, SCALES["small"], 0.01)

    assert [scaled("local.epochs", many)["local"]["epochs"] for many in (1, 2, 5, 10, 20)] == [1, 2, 3, 4, 5]
    assert [scaled("rounds.count", count)["rounds"]["count"] for count in (100, 20_000, 200_000)] == [100, 150, 300]
    names = ("vgg11", "resnet18_bn", "vit_small")
    assert len({str(validate({**scaled("model", {"name": one}), "seed": 0}).model) for one in names}) == 3


def test_a_centralised_run_stays_one_client() -> None:
    content = scale_settings(
        {**PUBLISHED, "partition": {"name": "iid", "clients": 1}, "rounds.participants": 1}, SCALES["digits"], 0.01
    )
    assert (content["partition"]["clients"], content["rounds"]["participants"]) == (1, 1)


@pytest.mark.parametrize("data", ["cifar100", "svhn", "mnist"])
def test_a_laptop_has_two_data_sets(data: str) -> None:
    content = scale_settings({**PUBLISHED, "data.name": data, "model.name": "resnet18_gn"}, SCALES["small"], 0.01)
    recipe = validate({**content, "seed": 0})
    assert (recipe.data.name, recipe.model.name, recipe.rounds.count) == ("fashion_mnist", "lenet64", 150)
    changes = describe_changes({**PUBLISHED, "data.name": data}, content)
    assert changes[0] == f"data {data} → fashion_mnist"
    assert "rounds 10000 → 150" in changes


def test_data_that_cannot_be_read_are_named() -> None:
    assert find_unreadable({"data.name": "landmarks"}) == "Landmarks-User-160k"
    assert find_unreadable({"data": {"name": "idda"}}) == "IDDA"
    assert find_unreadable({"data.name": "cifar10"}) == ""
    with pytest.raises(ValueError, match=r"scale: unknown 'digit'; did you mean 'digits'\?"):
        find_scale("digit")
