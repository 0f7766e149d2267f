"""Printed names: every method has one, and classes are in the order of their numbers."""

from __future__ import annotations

import pytest

from reports.inputs.reading import read_class_names
from reports.names import CLASSES, METHODS, RULES, name_class, name_method
from reports.plotting.heat import list_class_names
from training.data.readers.torchvision_folders import COARSE
from training.methods.catalog import ALGORITHMS, COMPOSABLE


def test_every_method_has_a_printed_name() -> None:
    assert sorted(set(ALGORITHMS) - set(METHODS)) == []
    assert all(name.replace("-", "").lower() == key.replace("-", "") for key, name in METHODS.items())
    assert {name for name in COMPOSABLE if name not in RULES} <= {"none"}


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("fedavg", "FedAvg"),
        ("mofedsam", "MoFedSAM"),
        ("feddyn+sam", "FedDyn + SAM"),
        ("fedasam + SWA", "FedASAM + SWA"),
        ("fedavgm+asam + SWA", "FedAvgM + ASAM + SWA"),
        ("my method", "my method"),
        ("a+b", "a+b"),
    ],
)
def test_names_of_methods(name: str, printed: str) -> None:
    assert name_method(name) == printed


def test_names_of_classes() -> None:
    assert (name_class("cifar10", 3), name_class("fashion_mnist", 9)) == ("cat", "ankle boot")
    assert (name_class("svhn", 7), name_class("cifar10", 10), name_class("mine", 0)) == (
        "digit 7",
        "class 10",
        "class 0",
    )
    assert {len(names) for data, names in CLASSES.items() if data != "cifar100"} == {10}


def test_the_classes_of_cifar100_fit_its_superclasses() -> None:
    """Independent of the list: which classes the data set's authors put together."""
    names = CLASSES["cifar100"]
    assert (len(names), len(set(names)), sorted(names) == list(names)) == (100, 100, True)
    for members in (
        "maple tree, oak tree, palm tree, pine tree, willow tree",
        "baby, boy, girl, man, woman",
        "orchid, poppy, rose, sunflower, tulip",
        "cloud, forest, mountain, plain, sea",
        "fox, porcupine, possum, raccoon, skunk",
        "crab, lobster, snail, spider, worm",
        "bridge, castle, house, road, skyscraper",
        "bear, leopard, lion, tiger, wolf",
    ):
        superclasses = {COARSE[names.index(name)] for name in members.split(", ")}
        assert len(superclasses) == 1, members


def test_names_that_the_data_set_gives_come_first():
    assert name_class("cifar10", 1, ("tiger", "lion")) == "lion"
    assert name_class("mine", 2, ("tiger", "lion")) == "class 2"
    assert list_class_names("mine", [1, 0], ("tiger", "lion")) == ["lion", "tiger"]
    assert list_class_names("mine", [1, 0]) == ["1", "0"]


def test_class_names_are_read_from_the_provenance_of_a_run(tmp_path):
    assert read_class_names(tmp_path) == ()
    for content, expected in (
        ('{"format": 1, "class_names": ["grey matter", "white matter"]}', ("grey matter", "white matter")),
        ('{"class_names": [1, 2]}', ()),
        ('{"class_names": "ab"}', ()),
        ("[1", ()),
    ):
        (tmp_path / "provenance.json").write_text(content)
        assert read_class_names(tmp_path) == expected
