"""Scales change sizes and lengths, never the method."""

from __future__ import annotations

from typing import Any

import pytest

from reports.artefacts.scales import SCALES, describe_changes, find_scale, scale_settings
from reports.names import name_data
from training.config import Recipe, validate

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
    assert changes[0] == ("data", f"{name_data(data)} → Fashion-MNIST")
    assert ("rounds", "10000 → 150") in changes


SCENES = {
    "model.name": "bisenet_v2",
    "augment": {"scale": [0.5, 1.5], "crop": [512, 1024]},
    "local.hard_pixels": 0.25,
    "local.drop_last": True,
    "local.lr": 0.1,
    "local.momentum": 0.9,
    "partition": {"name": "natural", "clients": 90},
    "rounds.count": 1500,
    "rounds.participants": 5,
}


@pytest.mark.parametrize("scale", ["digits", "small"])
def test_street_scenes_become_a_brain_with_its_own_domains(scale: str) -> None:
    def shrink(name: str, split: str) -> Recipe:
        given = {**SCENES, "data": {"name": name, "split": f"data/{name}/data/{split}"}}
        content = scale_settings(given, SCALES[scale], 0.01)
        assert ("data", f"{name_data(name)} → brain") in describe_changes(given, content)
        return validate({**content, "seed": 0})

    city, alike, unseen = shrink("cityscapes", "heterogeneous"), shrink("cityscapes", "uniform"), "heterogeneous/rainy"
    drawn = shrink("idda", unseen)
    assert (city.partition.name, city.partition.clients, alike.partition.name) == ("natural", 12, "iid")
    assert (drawn.partition.clients, drawn.data.settings) == (8, {"unseen": "coronal"})
    assert shrink("idda", "uniform/country").data.settings == {"unseen": "sagittal"}
    assert (drawn.model.name, drawn.local.hard_pixels, drawn.local.momentum) == ("unet", 0.25, 0.9)
    assert drawn.local.lr == city.local.lr == pytest.approx(0.01)  # 0.1 of plain SGD, whatever the published rates are


@pytest.mark.parametrize("scale", ["digits", "small"])
def test_texts_become_speeches_and_people_clients_of_unequal_sizes(scale: str) -> None:
    text = {
        **PUBLISHED,
        "data": {"name": "dbpedia14", "train_per_class": 10_000},
        "model.name": "text_cnn",
        "partition": {"name": "pathological", "clients": 100, "classes_per_client": 4},
        "augment": {},
    }
    del text["data.name"], text["partition.name"], text["partition.clients"], text["partition.alpha"]
    recipe = validate({**scale_settings(text, SCALES[scale], 0.01), "seed": 0})
    assert (recipe.data.name, recipe.model.name) == ("speeches", "text_cnn")
    assert (recipe.partition.clients, recipe.partition.settings) == (20, {"classes_per_client": 3})
    people = {**text, "data": {"name": "landmarks"}, "partition": {"name": "natural", "clients": 1262}}
    content = scale_settings({**people, "model.name": "mobilenetv2_gn", "local.lr": 0.1}, SCALES[scale], 0.01)
    recipe = validate({**content, "seed": 0})
    assert recipe.partition.name == "dirichlet_by_class"
    assert recipe.partition.clients == (50 if scale == "digits" else 1262)
    assert recipe.local.lr == pytest.approx(0.1 if scale == "digits" else 0.05)
    assert ("partition", "natural → dirichlet_by_class") in describe_changes(people, content)


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scale: unknown 'digit'; did you mean 'digits'\?"):
        find_scale("digit")
