"""Published data sets: images, tables, splits and arrays that were damaged or made up."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.fuzz.cases import Case, Reader
from tests.fuzz.mutations import spoil_bytes, spoil_value
from tests.training.data.readers import fakes
from training.data.datasets import load
from training.data.given import Known
from training.data.partition import partition
from training.data.readers.corrupted_cifar import read_corrupted

ROOT = "published"
LABELS = np.array([0, 1, 2, 0, 1, 2])
SETTINGS: dict[str, dict[str, object]] = {
    "tiny_imagenet": {},
    "cinic10": {},
    "pathmnist": {"verify": False},
    "dbpedia14": {"vocabulary": 30, "length": 5},
    "landmarks": {"size": 16},
    "cityscapes": {"height": 64, "width": 128, "split": "splits/heterogeneous"},
    "idda": {"split": "country", "height": 54, "width": 96},
    "femnist": {},
    "shakespeare": {},
}
FILES = {  # reader -> files that are spoilt
    "tiny_imagenet": (
        "tiny-imagenet-200/wnids.txt",
        "tiny-imagenet-200/words.txt",
        "tiny-imagenet-200/val/val_annotations.txt",
        "tiny-imagenet-200/train/n01443537/images/n01443537_1.JPEG",
    ),
    "cinic10": ("CINIC-10/train/cat/n03_train7.png",),
    "pathmnist": ("pathmnist.npz",),
    "dbpedia14": ("dbpedia_csv/train.csv", "dbpedia_csv/test.csv"),
    "landmarks": (
        "landmarks-user-160k/federated_train.csv",
        "landmarks-user-160k/test.csv",
        "landmarks-user-160k/train/f/f/f/ffffffffffffffff.jpg",
    ),
    "cityscapes": (
        "splits/heterogeneous/train/all_data_0.json",
        "splits/heterogeneous/test/all_data_0.json",
        "gtFine/train/aachen/aachen_000000_000019_gtFine_labelIds.png",
    ),
    "idda": ("country/train/idda_train_clients.json", "IDDAsmall/T01_CN_A/RGB/0_T01_CN_A.jpg"),
    "femnist": ("femnist/data/train/all_data_0.json",),
    "shakespeare": ("shakespeare/data/train/all_data_niid.json",),
    "partition": ("split.json",),
    "csv": ("split.csv",),
    "corrupted": ("CIFAR-10-C/fog.npy", "CIFAR-10-C/labels.npy"),
}


class Published:
    """Files of data sets with bytes changed, cells swapped, and values of other types."""

    def __init__(self, folder: Path) -> None:
        root = folder / ROOT
        write_all(root)
        self.root = root
        self.readers = {name: Reader(_make_reader(name), protected=False) for name in SETTINGS} | {
            "partition": Reader(lambda folder: _deal(folder / ROOT, "split.json"), protected=False),
            "csv": Reader(lambda folder: _deal(folder / ROOT, "split.csv"), protected=False),
            "corrupted": Reader(_read_corrupted, protected=False),
        }

    def case(self, rng: random.Random) -> Case:
        reader = rng.choice(sorted(FILES))
        file = rng.choice(FILES[reader])
        data = (self.root / file).read_bytes()
        if file.endswith(".json") and rng.random() < 0.6:
            spoilt = json.dumps(spoil_value(rng, json.loads(data))).encode()
        elif file.endswith((".csv", ".txt")) and rng.random() < 0.5:
            spoilt = _spoil_cells(rng, data)
        else:
            spoilt = spoil_bytes(rng, data)
        return Case(reader, {f"{ROOT}/{file}": spoilt})


def write_all(root: Path) -> None:
    """Write every fake, and a split of six examples."""
    fakes.write_tiny_imagenet(root)
    fakes.write_cinic10(root)
    fakes.write_medmnist(root, "pathmnist", False, 9)
    fakes.write_dbpedia(root)
    fakes.write_landmarks(root)
    fakes.write_cityscapes(root)
    fakes.write_idda(root)
    fakes.write_femnist(root)
    fakes.write_shakespeare(root)
    fakes.write_corrupted_cifar(root, LABELS)
    fakes.write_split(root / "split.json", {"0": (["a", "b", "c"], [0, 1, 2]), "1": (["d", "e", "f"], [0, 1, 2])})
    rows: list[list[object]] = [[place % 2, name, LABELS[place]] for place, name in enumerate("abcdef")]
    fakes.write_table(root / "split.csv", ["user_id", "image_id", "class"], rows)


def _make_reader(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        data = load(name, root=folder / ROOT, **SETTINGS[name])
        parts = (data.train_inputs, data.train_targets, data.test_inputs, data.test_targets)
        return [part[torch.arange(len(part))] for part in parts], data.class_names

    return read


def _deal(root: Path, file: str) -> Any:
    made = partition("file", LABELS, 2, seed=0, known=Known(keys=tuple("abcdef"), root=root), path=file)
    return made.indices.flat, made.indices.bounds


def _read_corrupted(folder: Path) -> Any:
    return np.array(read_corrupted(folder / ROOT / "CIFAR-10-C", "fog", 2, LABELS))


CELLS = ("", "-1", "1e9", "99999999999999999999", "é", '"', "\x00", "a,b", "\t", "../../x", "x" * 3000, "nan", "15")


def _spoil_cells(rng: random.Random, data: bytes) -> bytes:
    """Another cell, line or order of lines."""
    lines = data.decode().splitlines(keepends=True)
    place = rng.randrange(len(lines))
    separator = "\t" if "\t" in lines[place] else ","
    match rng.randrange(4):
        case 0:
            cells = lines[place].split(separator)
            cells[rng.randrange(len(cells))] = rng.choice(CELLS)
            lines[place] = separator.join(cells)
        case 1:
            lines.pop(place)
        case 2:
            lines.insert(place, rng.choice(lines))
        case _:
            lines[place] = rng.choice(CELLS)
    return "".join(lines).encode()
