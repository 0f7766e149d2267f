"""Published data sets on tiny faithful fakes: order of classes and examples, pixels, users, test sets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.training.data.readers import fakes
from training import config
from training.data.datasets import load
from training.data.formats import texts
from training.data.readers import street_scenes
from training.data.stores import Store

EVERY = torch.arange


def pixels(path: Path) -> np.ndarray:
    return np.array(Image.open(path).convert("RGB")).transpose(2, 0, 1)


def test_tiny_imagenet(tmp_path):
    folder = fakes.write_tiny_imagenet(tmp_path)
    data = load("tiny_imagenet", root=tmp_path)
    assert tuple(data.train_inputs.shape) == (12, 3, 64, 64)
    assert data.train_targets.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.test_targets.tolist() == [1, 0, 2, 1, 0]  # numbered in the order of sorted(wnids), not of the file
    assert data.class_names == ("goldfish", "Egyptian cat", "n04067472")
    found = data.train_inputs[torch.tensor([2, 0, 2])]
    grey = pixels(folder / "train/n01443537/images/n01443537_2.JPEG")
    assert torch.equal(found[0], torch.from_numpy(grey))
    assert (grey[0] == grey[1]).all()
    assert torch.equal(found[2], found[0])
    assert torch.equal(data.test_inputs[EVERY(1)][0], torch.from_numpy(pixels(folder / "val/images/val_0.JPEG")))
    assert isinstance(data.train_inputs, Store)
    assert data.digest == load("tiny_imagenet", root=tmp_path, cache=0).digest  # the cache is no part of the data


def test_cinic10(tmp_path):
    folder = fakes.write_cinic10(tmp_path)
    data = load("cinic10", root=tmp_path)
    assert (len(data.train_inputs), len(data.test_inputs), data.classes) == (20, 20, 10)
    assert data.train_targets.tolist() == [label for label in range(10) for _ in range(2)]
    assert torch.equal(
        data.train_inputs[torch.tensor([5])][0], torch.from_numpy(pixels(folder / "train/bird/n02_train7.png"))
    )
    both = load("cinic10", root=tmp_path, validation=True)
    assert len(both.train_inputs) == 40
    assert both.digest != data.digest


@pytest.mark.parametrize(("name", "grey", "classes"), [("pathmnist", False, 9), ("tissuemnist", True, 8)])
def test_medmnist(tmp_path, name, grey, classes):
    arrays = fakes.write_medmnist(tmp_path, name, grey, classes)
    data = load(name, root=tmp_path, verify=False)
    assert data.train_inputs.shape == (7, 1 if grey else 3, 28, 28)
    first = arrays["train_images"][0]
    assert torch.equal(data.train_inputs[0], torch.from_numpy(first[None] if grey else first.transpose(2, 0, 1).copy()))
    assert data.train_targets.tolist() == arrays["train_labels"].ravel().tolist()
    assert len(data.test_inputs) == 4
    assert len(load(name, root=tmp_path, verify=False, validation=True).train_inputs) == 10
    with pytest.raises(
        ValueError, match=rf"{name}\.npz is not the published file: md5 .* instead of .*data\.verify = false"
    ):
        load(name, root=tmp_path)
    if grey:
        three = load(name, root=tmp_path, verify=False, rgb=True).train_inputs
        assert three.shape[1] == 3
        assert torch.equal(three[:, 0], three[:, 2])


def test_dbpedia(tmp_path):
    fakes.write_dbpedia(tmp_path)
    data = load("dbpedia14", root=tmp_path, vocabulary=30, length=6)
    assert data.train_targets.tolist() == [label for label in range(14) for _ in range(3)]
    assert data.test_targets.tolist() == list(range(14))
    assert data.class_names[0] == "Company"
    assert data.task.name == "text_classification"
    # most frequent first, ties in the order of the alphabet: in, said, so, train, then the numbers and titles
    words = {"in": 2, "said": 3, "so": 4, "train": 5}
    rows = data.train_inputs.tolist()
    assert rows[0][1:] == [rows[0][1], words["said"], words["so"], words["in"], words["train"]]
    assert data.test_inputs.tolist()[0][5] == texts.UNKNOWN  # "test" is no word of the training texts
    part = load("dbpedia14", root=tmp_path, train_per_class=2, test_per_class=1, vocabulary=30)
    assert np.bincount(part.train_targets.numpy()).tolist() == [2] * 14
    assert part.train_inputs.shape == (28, 128)
    assert not part.train_inputs[:, 7:].any()  # padding


@pytest.mark.parametrize("nested", [True, False])
def test_landmarks(tmp_path, nested):
    folder = fakes.write_landmarks(tmp_path, nested=nested)
    data = load("landmarks", root=tmp_path, size=32)
    assert data.train_targets.tolist() == [0, 2, 1, 0]
    assert data.classes == 3
    assert data.users.names == ("12", "7", "abc")
    assert data.users.index.tolist() == [0, 1, 0, 2]
    path = folder / ("train/f/f/f" if nested else "images") / ("f" * 16 + ".jpg")
    image = Image.open(path)  # 60 x 70: the square in the middle begins 5 pixels down
    expected = np.asarray(image.resize((32, 32), Image.Resampling.BICUBIC, box=(0, 5, 60, 65)))
    assert torch.equal(data.train_inputs[torch.tensor([3])][0], torch.from_numpy(expected.transpose(2, 0, 1).copy()))
    test = Image.open(folder / ("train/1/1/1" if nested else "images") / ("1" * 16 + ".jpg"))  # 48 x 64
    box = (3, 11, 45, 53)  # 224/256 of 48 is 42
    expected = np.asarray(test.resize((32, 32), Image.Resampling.BICUBIC, box=box))
    assert torch.equal(data.test_inputs[torch.tensor([0])][0], torch.from_numpy(expected.transpose(2, 0, 1).copy()))


def test_the_small_sister_of_landmarks(tmp_path):
    fakes.write_landmarks(tmp_path, "gld23k", nested=False)
    with pytest.raises(ValueError, match=r"mini_gld_train_split\.csv is not the published file"):
        load("gld23k", root=tmp_path)
    assert len(load("gld23k", root=tmp_path, verify=False, size=8).train_inputs) == 4


def test_cityscapes(tmp_path):
    fakes.write_cityscapes(tmp_path)
    data = load("cityscapes", root=tmp_path, height=64, width=128)
    assert tuple(data.train_inputs.shape) == (5, 3, 64, 128)
    assert (data.classes, data.task.name, data.users.names) == (19, "segmentation", ("aachen", "bochum"))
    assert len(data.test_inputs) == 2
    numbers = np.asarray(Image.open(tmp_path / "gtFine/train/aachen/aachen_000001_000019_gtFine_labelIds.png"))
    maps = data.train_targets[torch.tensor([1])][0].numpy()
    for number, label in ((7, 0), (8, 1), (11, 2), (26, 13), (33, 18), (0, 255), (9, 255), (30, 255)):
        assert (maps[numbers == number] == label).all(), number
    half = load("cityscapes", root=tmp_path, height=32, width=64)
    assert set(half.train_targets[EVERY(5)].unique().tolist()) <= {*range(19), 255}  # labels are never mixed
    split = load("cityscapes", root=tmp_path, split="splits/heterogeneous", height=64, width=128)
    assert split.users.names == ("aachen0", "bochum0")
    assert len(split.train_inputs) == 4
    assert split.test_domains is None
    assert sorted(street_scenes.CITYSCAPES_MAP) == list(range(34))


def test_idda(tmp_path):
    fakes.write_idda(tmp_path)
    data = load("idda", root=tmp_path, split="country", height=54, width=96)
    assert data.users.names == fakes.DOMAINS
    assert data.users.index.tolist() == [0, 0, 1, 1]
    assert data.test_domains.names == ("seen", "unseen")
    assert data.test_domains.index.tolist() == [1, 0]
    assert [data.test_users.names[number] for number in data.test_users.index] == ["T07_CN_A", "T01_CN_A"]
    assert (data.classes, len(data.class_names)) == (16, 16)
    assert set(data.train_targets[EVERY(4)].unique().tolist()) == {*range(16), 255}
    with pytest.raises(ValueError, match=r"idda needs a split: write data\.split"):
        load("idda", root=tmp_path)


def test_femnist(tmp_path):
    drawings = fakes.write_femnist(tmp_path)
    data = load("femnist", root=tmp_path)
    assert torch.equal(data.train_inputs[:3, 0].reshape(3, 784), torch.from_numpy(drawings["f0000_14"]))
    assert data.train_targets.tolist() == [60, 0, 1, 61, 0]
    assert (data.classes, data.class_names[61], data.class_names[10]) == (62, "z", "A")
    assert data.users.names == data.test_users.names == ("f0000_14", "f0001_41")
    (tmp_path / "femnist/data/test/all_data_0.json").unlink()
    fakes.write_split(tmp_path / "femnist/data/test/x.json", {"f9": ([[0.0] * 784], [3])})
    assert load("femnist", root=tmp_path).test_users is None  # tested on other people


def test_shakespeare(tmp_path):
    fakes.write_shakespeare(tmp_path)
    data = load("shakespeare", root=tmp_path)
    assert tuple(data.train_inputs.shape) == (4, 80)
    assert (data.classes, data.vocabulary, data.task.name) == (80, 80, "next_character")
    said = "".join(texts.CHARACTERS[code] for code in data.train_inputs[0].tolist())
    assert said.startswith("To be, or not to be")
    # the window of row 1 begins one character later, and ends with what follows row 0
    assert data.train_inputs[1, -1] == data.train_targets[0]
    assert data.test_users.index.tolist() == [0, 1]


@pytest.mark.parametrize(("name", "task"), [("speeches", "text_classification"), ("plays", "next_character")])
def test_embedded_texts(name, task):
    data = load(name)
    assert data.task.name == task
    assert int(data.train_inputs.max()) < data.vocabulary
    assert data.train_inputs.dtype in (torch.uint8, torch.int16)
    assert len(data.class_names) == data.classes
    assert not set(map(tuple, data.train_inputs.tolist())) & set(map(tuple, data.test_inputs.tolist()))


@pytest.mark.parametrize(("name", "folds"), [("brain", 4), ("speeches", 5)])
def test_every_embedded_example_is_tested_on_in_one_fold(name, folds):
    options = {"vocabulary": 100_000} if name == "speeches" else {}

    def read(split, fold):
        data = load(name, fold=fold, **options)
        if name == "brain":
            return Counter(one.numpy().tobytes() for one in getattr(data, f"{split}_inputs"))
        return Counter(getattr(data, f"{split}_targets").tolist())  # words have other numbers in other folds

    everything = read("train", 0) + read("test", 0)
    assert sum((read("test", fold) for fold in range(folds)), Counter()) == everything
    assert read("train", 1) + read("test", 1) == everything
    with pytest.raises(ValueError, match=rf"fold must be at most {folds - 1}, got {folds}"):
        config.validate({"data": {"name": name, "fold": folds}})


def test_folds_of_plays_share_no_window():
    last, before = load("plays"), load("plays", fold=1)
    windows = {one.numpy().tobytes() for one in last.test_inputs}
    assert not windows & {one.numpy().tobytes() for one in before.test_inputs}
    assert not {one.numpy().tobytes() for one in before.train_inputs} & {
        one.numpy().tobytes() for one in before.test_inputs
    }
    assert len(before.test_inputs) == len(last.test_inputs)


def test_embedded_speeches_are_balanced_and_plays_are_in_order():
    speeches = load("speeches")
    assert np.bincount(speeches.train_targets).tolist() == [128] * 10
    assert np.bincount(speeches.test_targets).tolist() == [32] * 10
    plays = load("plays", stride=1)
    assert torch.equal(plays.train_inputs[0, 1:], plays.train_inputs[1, :-1])
    assert plays.train_inputs[1, -1] == plays.train_targets[0]
    assert plays.users.names == plays.test_users.names
    assert len(plays.users.names) == 20


def test_embedded_brain():
    data = load("brain")
    assert (data.task.name, data.classes, tuple(data.train_inputs.shape)) == ("segmentation", 4, (108, 1, 64, 64))
    assert data.train_targets.unique().tolist() == [0, 1, 2, 3]
    dark = data.train_inputs[:, 0][data.train_targets == 0].float().mean()
    white = data.train_inputs[:, 0][data.train_targets == 3].float().mean()
    grey = data.train_inputs[:, 0][data.train_targets == 2].float().mean()
    assert dark < 10 < grey < white  # as T1 images are
    assert len(data.users.names) == 12


def test_decoded_images_stay_in_memory_up_to_a_number_of_bytes(tmp_path):
    folder = fakes.write_cinic10(tmp_path)
    from training.data.formats.image_files import Decoding, ImageFiles

    names = [f"train/cat/{one.name}" for one in sorted((folder / "train/cat").iterdir())] * 3
    store = ImageFiles(folder, names, Decoding(32, 32), cache=2 * 3072 + 5)
    decoded: list[Path] = []
    plain = store._decode
    store._decode = lambda path: (decoded.append(path), plain(path))[1]  # type: ignore[method-assign]
    for place in (0, 1, 0, 2, 0, 1):  # two fit: 2 drops 1, since 0 was asked for later
        store[torch.tensor([place])]
    assert len(decoded) == 4
    assert len(store._kept) == 2
    assert sum(one.nbytes for one in store._kept.values()) <= 2 * 3072 + 5
    nothing = ImageFiles(folder, names, Decoding(32, 32), cache=0)
    assert torch.equal(nothing[EVERY(6)], store[EVERY(6)])
    assert not nothing._kept
