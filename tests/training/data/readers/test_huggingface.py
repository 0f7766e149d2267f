"""Rows with names of columns, as Hugging Face's `datasets` and Flower Datasets give them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from tests.training.data.readers import fakes
from training import config
from training.data.datasets import load
from training.data.published import build
from training.data.readers.huggingface import make_contents, read_partitions
from training.engine.run import train
from training.storage import metrics


class Rows(list):
    """A split as the package gives it."""

    def __init__(self, rows, **features):
        super().__init__(rows)
        self.column_names = list(rows[0]) if rows else []
        self.features = features


def images(count, seed=0, shape=(6, 5, 3)):
    return Rows(
        [
            {"image": Image.fromarray(fakes.draw(seed + k, *shape)), "label": k % 3, "writer": f"w{k % 2}"}
            for k in range(count)
        ],
        label=SimpleNamespace(names=["ant", "bee", "cow"]),
    )


OPTIONS = {"input": "image", "label": "label", "vocabulary": 20, "length": 4}


def test_images():
    data = build("huggingface", make_contents(images(5), images(2, 9), user="writer", **OPTIONS))
    assert tuple(data.train_inputs.shape) == (5, 3, 6, 5)
    assert torch.equal(data.train_inputs[4], torch.from_numpy(fakes.draw(4, 6, 5, 3).transpose(2, 0, 1).copy()))
    assert data.train_targets.tolist() == [0, 1, 2, 0, 1]
    assert data.class_names == ("ant", "bee", "cow")
    assert data.users.index.tolist() == [0, 1, 0, 1, 0]
    grey = build("huggingface", make_contents(images(4, shape=(6, 5)), None, **OPTIONS))
    assert grey.channels == 1
    assert len(grey.test_inputs) == 0


def test_texts_with_names_of_classes():
    rows = [{"text": "so it goes", "label": "sad"}, {"text": "", "label": "none"}, {"text": "it goes", "label": "glad"}]
    contents = make_contents(Rows(rows), Rows(rows[:1]), **{**OPTIONS, "input": "text"})
    data = build("huggingface", contents)
    assert data.class_names == ("glad", "none", "sad")
    assert data.train_targets.tolist() == [2, 1, 0]
    assert data.train_inputs.tolist() == [[4, 3, 2, 0], [1, 0, 0, 0], [3, 2, 0, 0]]
    with pytest.raises(ValueError, match="class 'new' has test examples only"):
        make_contents(Rows(rows), Rows([{"text": "a", "label": "new"}]), **{**OPTIONS, "input": "text"})


def test_partitions_of_flower_become_users():
    parts = [images(2), images(3, 5)]
    partitioner = SimpleNamespace(num_partitions=2, load_partition=lambda number: parts[number])
    data = build("flower", read_partitions(partitioner, images(2, 20)))
    assert data.users.names == ("0", "1")
    assert data.users.index.tolist() == [0, 0, 1, 1, 1]
    assert torch.equal(data.train_inputs[2], torch.from_numpy(fakes.draw(5, 6, 5, 3).transpose(2, 0, 1).copy()))


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        (images(3), {"input": "picture"}, "no column picture; there are image, label, writer"),
        (images(3), {"user": "who"}, "no column who"),
        (Rows([*images(1), *images(1, shape=(7, 5, 3))]), {}, "images have several sizes"),
        (Rows([{"image": np.zeros((2, 2)), "label": 0}]), {}, "must hold texts, or images of bytes"),
        (Rows([{"image": np.zeros((2, 2), np.uint8), "label": -1}]), {}, "must hold classes from 0 on"),
        (Rows([{"image": np.zeros((2, 2), np.uint8), "label": 0.5}]), {}, "must hold whole numbers or names"),
        (
            Rows([{"image": np.zeros((2, 2), np.uint8), "label": 3}], label=SimpleNamespace(names=["a"])),
            {},
            "from 0 on",
        ),
    ],
)
def test_rows_that_do_not_fit(train, options, message):
    with pytest.raises(ValueError, match=message):
        make_contents(train, None, **{**OPTIONS, **options})


def test_the_package_is_optional(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match="huggingface needs the package datasets: pip install datasets"):
        load("huggingface", root=tmp_path, path="x")


def test_the_package_is_asked_for_folders_parquet_and_names(tmp_path, monkeypatch):
    asked: list[object] = []

    def load_dataset(name, data_files=None):
        asked.append((name, data_files))
        if name == "absent":
            raise FileNotFoundError("no such\ndata set")
        return {"train": images(4), "test": images(2)}

    package = SimpleNamespace(load_dataset=load_dataset, load_from_disk=lambda path: (asked.append(path), images(3))[1])
    monkeypatch.setitem(sys.modules, "datasets", package)
    assert len(load("huggingface", root=tmp_path, path="name/on-the-hub").train_inputs) == 4
    (tmp_path / "saved").mkdir()
    assert len(load("huggingface", root=tmp_path, path="saved", test="").train_inputs) == 3
    (tmp_path / "files").mkdir()
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test"):
        (tmp_path / "files" / f"{name}.parquet").touch()
    load("huggingface", root=tmp_path, path="files")
    assert asked[:2] == [("name/on-the-hub", None), str(tmp_path / "saved")]
    assert [len(files) for files in asked[2][1].values()] == [1, 2]
    with pytest.raises(
        ValueError,
        match=r"there is no folder .*, and the package cannot open that name \(FileNotFoundError: no such data set\)",
    ):
        load("huggingface", root=tmp_path, path="absent")
    with pytest.raises(ValueError, match="'saved' has no split test; it has train"):
        load("huggingface", root=tmp_path, path="saved")


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Twelve images that the real package has written: a folder, parquet files, and as it keeps what it fetched."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    names = ["ant", "bee", "cow"]
    columns = {"image": datasets.Image(), "label": datasets.ClassLabel(names=names), "writer": datasets.Value("string")}
    split = datasets.Dataset.from_list(list(images(12, shape=(6, 6, 3))), features=datasets.Features(columns))
    datasets.DatasetDict({"train": split, "test": split}).save_to_disk(tmp_path / "saved")
    (tmp_path / "files").mkdir()
    for name in ("train-00000-of-00001", "test"):
        split.to_parquet(tmp_path / "files" / f"{name}.parquet")
    datasets.load_dataset("parquet", data_files=str(tmp_path / "files" / "test.parquet"))
    (found,) = (tmp_path / "cache" / "parquet").iterdir()
    found.rename(tmp_path / "cache" / "default")
    (tmp_path / "cache" / "someone___pictures").mkdir()
    (tmp_path / "cache" / "default").rename(tmp_path / "cache" / "someone___pictures" / "default")
    for path in (tmp_path / "cache" / "someone___pictures").rglob("parquet-*.arrow"):
        path.rename(path.with_name(path.name.replace("parquet", "pictures")))
    return tmp_path


def test_the_real_package_reads_folders_parquet_and_names_it_has_fetched_before(saved):
    for path, test in (("saved", "test"), ("files", "test"), ("someone/pictures", "")):
        data = load("huggingface", root=saved, path=path, test=test, user="writer")
        assert torch.equal(data.train_inputs[2], torch.from_numpy(fakes.draw(2, 6, 6, 3).transpose(2, 0, 1).copy()))
        assert data.train_targets.tolist() == [0, 1, 2] * 4
        assert data.class_names == ("ant", "bee", "cow")
        assert data.users.names == ("w0", "w1")
    with pytest.raises(ValueError, match=r"there is no folder .*absent, and the package cannot open that name \(Conn"):
        load("huggingface", root=saved, path="absent")


def test_a_run_on_what_the_real_package_has_written(saved):
    recipe = config.validate(
        {
            "data": {"name": "huggingface", "root": str(saved), "path": "saved", "user": "writer"},
            "partition": {"name": "natural", "clients": 2},
            "model": {"name": "mlp", "hidden": [4]},
            "local": {"batch_size": 3},
            "rounds": {"count": 2, "participants": 2},
        }
    )
    run = train(recipe, saved / "run", backend="serial")
    assert [one["round"] for one in metrics.read(run)] == [1, 2]
    assert train(recipe, saved / "run", backend="serial") == run  # the same data again
