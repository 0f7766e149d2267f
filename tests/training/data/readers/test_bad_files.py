"""Files that are missing, cut short, damaged or contradict themselves: each is told in one line."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.data.readers import fakes
from training.data.datasets import load
from training.data.formats import files
from training.data.formats.files import Published
from training.data.formats.image_files import Decoding, ImageFiles
from training.data.readers import corrupted_cifar, image_folders

SETTINGS: dict[str, dict[str, object]] = {
    "pathmnist": {"verify": False},
    "landmarks": {"size": 16},
    "cityscapes": {"height": 64, "width": 128},
    "split": {"height": 64, "width": 128, "split": "splits/heterogeneous"},
    "idda": {"split": "country", "height": 54, "width": 96},
}
WRITERS: dict[str, Callable[[Path], object]] = {
    "tiny_imagenet": fakes.write_tiny_imagenet,
    "cinic10": fakes.write_cinic10,
    "pathmnist": lambda root: fakes.write_medmnist(root, "pathmnist", False, 9),
    "dbpedia14": fakes.write_dbpedia,
    "landmarks": fakes.write_landmarks,
    "cityscapes": fakes.write_cityscapes,
    "idda": fakes.write_idda,
    "femnist": fakes.write_femnist,
    "shakespeare": fakes.write_shakespeare,
}


def read_all(name: str, root: Path, **settings: object) -> None:
    """Load a data set and read every example, as training does."""
    data = load(name, root=root, **{**SETTINGS.get(name, {}), **settings})
    for part in (data.train_inputs, data.train_targets, data.test_inputs, data.test_targets):
        part[torch.arange(len(part))]


def refuse(message: str, name: str, root: Path, **settings: object) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_all(name, root, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tiny_imagenet", ["no wnids.txt, train", "Get tiny-imagenet-200.zip (248 MB, http://", "--download"]),
        ("cinic10", ["Get CINIC-10.tar.gz (688 MB, https://", "--data-root"]),
        ("pathmnist", ["Get pathmnist.npz (https://", "--download"]),
        ("tissuemnist", ["Get tissuemnist.npz (https://"]),
        ("dbpedia14", ["no train.csv, test.csv in", "Get dbpedia_csv.tar.gz (https://"]),
        ("landmarks", ["no federated_train.csv, test.csv", "Get landmarks-user-160k.zip (https://"]),
        ("gld23k", ["Get mini_gld_train_split.csv (https://"]),
        ("cityscapes", ["no folder leftImg8bit or gtFine", "Register at www.cityscapes-dataset.com"]),
        ("idda", ["IDDAsmall. Ask the authors"]),
        ("femnist", ["no folder train or test", "TalwalkarLab/leaf, data/femnist: ./preprocess.sh"]),
        ("shakespeare", ["no folder train or test", "data/shakespeare"]),
    ],
)
def test_what_to_fetch_and_where_to_put_it(tmp_path, name, words):
    with pytest.raises(ValueError, match=f"^{name}: no ") as caught:
        load(name, root=tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    for part in (*words, str(tmp_path)):
        assert part in message


@pytest.mark.parametrize("name", WRITERS)
def test_sound_files_are_read(tmp_path, name):
    WRITERS[name](tmp_path)
    read_all(name, tmp_path)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("tiny_imagenet", "tiny-imagenet-200/train/n01443537/images/n01443537_1.JPEG"),
        ("cinic10", "CINIC-10/test/dog/n05_test7.png"),
        ("landmarks", "landmarks-user-160k/train/a/a/a/aaaa456789abcdef.jpg"),
        ("cityscapes", "gtFine/val/lindau/lindau_000000_000019_gtFine_labelIds.png"),
        ("idda", "IDDAsmall/T01_CN_A/RGB/0_T01_CN_A.jpg"),
    ],
)
@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_corrupt_images_are_named(tmp_path, name, file, damage):
    WRITERS[name](tmp_path)
    path = tmp_path / file
    if damage == "cut":
        cut_short(path)
    else:
        path.write_bytes(b"<html>404</html>" if damage == "text" else b"")
    refuse(rf"{path.name} cannot be decoded as an image .*Get it again", name, tmp_path)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("tiny_imagenet", "tiny-imagenet-200/val/images/val_3.JPEG"),
        ("cityscapes", "gtFine/train/bochum/bochum_000000_000019_gtFine_labelIds.png"),
        ("idda", "IDDAsmall/T02_HRN_B/Semantic/1_T02_HRN_B.png"),
    ],
)
def test_a_split_that_names_missing_files(tmp_path, name, file):
    WRITERS[name](tmp_path)
    (tmp_path / file).unlink()
    refuse(rf"lacks 1 of \d+ files: .*{Path(file).name}", name, tmp_path)


def test_a_file_that_goes_away_after_the_data_set_was_opened(tmp_path):
    folder = fakes.write_tiny_imagenet(tmp_path)
    data = load("tiny_imagenet", root=tmp_path)
    os.remove(folder / "val/images/val_0.JPEG")
    with pytest.raises(ValueError, match=r"val_0\.JPEG was there when the data set was opened, and is gone"):
        data.test_inputs[torch.tensor([0])]


def test_missing_landmarks_are_an_error_or_left_out(tmp_path):
    folder = fakes.write_landmarks(tmp_path)
    (folder / "train/a/a/a/aaaa456789abcdef.jpg").unlink()
    refuse(r"lacks 1 of the 4 images .*aaaa456789abcdef\.jpg\. .*data\.skip_missing = true", "landmarks", tmp_path)
    with pytest.warns(UserWarning, match="lacks 1 of the 4 images .* they are left out"):
        data = load("landmarks", root=tmp_path, size=16, skip_missing=True)
    assert data.train_targets.tolist() == [0, 2, 0]
    assert data.users.names == ("12", "7", "abc")


def test_images_of_several_sizes(tmp_path):
    folder = fakes.write_cinic10(tmp_path)
    fakes.save(folder / "train/cat/n03_train7.png", fakes.draw(0, 32, 33, 3))
    refuse(r"n03_train7\.png has 33 x 32 pixels, expected 32 x 32 like all others", "cinic10", tmp_path)
    bombs = ImageFiles(folder, ["train/cat/n03_train7.png"], Decoding(32, 32), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.data.formats.image_files.MOST_PIXELS", 1000)
        with pytest.raises(ValueError, match="33 x 32 pixels are too many"):
            bombs[torch.tensor([0])]


def test_labels_outside_the_map(tmp_path):
    fakes.write_cityscapes(tmp_path)
    path = tmp_path / "gtFine/train/aachen/aachen_000000_000019_gtFine_labelIds.png"
    fakes.save(path, np.full((64, 128), 77, np.uint8))
    refuse(r"labelIds\.png: pixels have the label 77; the labels of this data set are 0 to 33", "cityscapes", tmp_path)
    fakes.save(path, fakes.draw(0, 64, 128, 3))
    refuse(r"labelIds\.png: a label map has one channel of bytes, this image is of mode RGB", "cityscapes", tmp_path)


def replace_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


TINY, LANDMARKS, PLAYS = "tiny-imagenet-200", "landmarks-user-160k", "shakespeare/data"
TABLES = [
    (
        "tiny_imagenet",
        "tiny-imagenet-200/val/val_annotations.txt",
        "n01443537",
        "n99",
        "class 'n99' is not in wnids.txt",
    ),
    ("tiny_imagenet", "tiny-imagenet-200/val/val_annotations.txt", "\t32\t44", "", "4 cells, expected file, class"),
    ("tiny_imagenet", f"{TINY}/wnids.txt", "n01443537", "n02124075", "must list every class once"),
    ("dbpedia14", "dbpedia_csv/train.csv", "1,", "15,", r"line 1: the class must lie in 1\.\.14, got '15'"),
    ("dbpedia14", "dbpedia_csv/test.csv", "1,", "x,", r"line 1: the class must lie in 1\.\.14, got 'x'"),
    ("dbpedia14", "dbpedia_csv/train.csv", '1,"Title0",', "1,", "line 1: 2 cells, expected class, title and content"),
    ("landmarks", f"{LANDMARKS}/federated_train.csv", "user_id", "who", "columns user_id, image_id, class"),
    (
        "landmarks",
        f"{LANDMARKS}/federated_train.csv",
        ",2",
        ",-2",
        "line 3: class must be a whole number from 0",
    ),
    ("landmarks", f"{LANDMARKS}/test.csv", ",1\n", ",9\n", "class 9 does not occur in federated_train.csv"),
    ("landmarks", f"{LANDMARKS}/test.csv", ",1\n", ",1,1\n", "line 3: 3 cells, expected 2"),
    ("femnist", "femnist/data/train/all_data_0.json", "[60,", "[62,", "y must hold whole numbers from 0 to 61"),
    ("femnist", "femnist/data/train/all_data_0.json", "[60,", "[", "needs lists x and y of the same length"),
    ("femnist", "femnist/data/train/all_data_0.json", '"x": [[', '"x": [[2.5, ', "lists of 784 numbers"),
    ("femnist", "femnist/data/train/all_data_0.json", '["f0000_14"]', "[]", "lists 0 users and holds data of 1"),
    ("femnist", "femnist/data/train/all_data_1.json", "f0001_41", "f0000_14", "user"),
    ("shakespeare", f"{PLAYS}/train/all_data_niid.json", "To be", "To", "x must hold texts of 80 characters"),
    (
        "shakespeare",
        f"{PLAYS}/test/all_data_niid.json",
        '"y": ["',
        '"y": ["no',
        "y must hold single characters",
    ),
    ("idda", "country/train/idda_train_clients.json", "T01_CN_A/RGB", "../RGB", "must hold paths inside the data set"),
]


@pytest.mark.parametrize(("name", "file", "old", "new", "message"), TABLES)
def test_tables_that_contradict_themselves(tmp_path, name, file, old, new, message):
    WRITERS[name](tmp_path)
    replace_text(tmp_path / file, old, new)
    refuse(message, name, tmp_path)


def test_one_user_in_two_files(tmp_path):
    fakes.write_femnist(tmp_path)
    train = tmp_path / "femnist/data/train"
    (train / "copy.json").write_bytes((train / "all_data_0.json").read_bytes())
    refuse(r"copy\.json: the user 'f0000_14' is in another file", "femnist", tmp_path)


@pytest.mark.parametrize("text", ["", "[1", '{"users": 3}', "[]", "\udcff", '{"users": [], "user_data": {}}'])
def test_what_is_no_split(tmp_path, text):
    fakes.write_femnist(tmp_path)
    for path in (tmp_path / "femnist/data/train").iterdir():
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    refuse(r"all_data_0\.json|no user has any examples", "femnist", tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_labels": None}, "lacks train_images or train_labels"),
        ({"train_labels": np.full((7, 1), 9, np.uint8)}, r"train_labels must lie in 0\.\.8, got 9 to 9"),
        ({"train_labels": np.zeros((6, 1), np.uint8)}, r"train_labels must be whole numbers \(7, 1\)"),
        ({"test_images": np.zeros((4, 28, 28, 2), np.uint8)}, "test_images must be bytes of shape"),
        ({"test_images": np.zeros((4, 28, 28, 3), np.float32)}, "test_images must be bytes of shape"),
        ({"test_labels": np.array([[object()]] * 4)}, "not readable as an .npz of plain arrays"),
    ],
)
def test_arrays_of_medmnist_that_do_not_fit(tmp_path, change, message):
    arrays = fakes.write_medmnist(tmp_path, "pathmnist", False, 9)
    kept = {key: value for key, value in (arrays | change).items() if value is not None}
    np.savez(tmp_path / "pathmnist.npz", **kept)
    refuse(message, "pathmnist", tmp_path)
    fakes.write_medmnist(tmp_path, "pathmnist", False, 9)
    cut_short(tmp_path / "pathmnist.npz")
    refuse(r"pathmnist\.npz: not readable as an \.npz", "pathmnist", tmp_path)


def pack(folder: Path, archive: Path) -> Path:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as packed:
            for path in sorted(folder.rglob("*")):
                packed.write(path, path.relative_to(folder.parent))
    else:
        with tarfile.open(archive, "w:gz") as packed_tar:
            for path in sorted(folder.iterdir()):
                packed_tar.add(path, path.name)  # CINIC's archive has no folder of its own
    return archive


def publish(monkeypatch: pytest.MonkeyPatch, name: str, archive: Path) -> None:
    """Let an archive be the published one."""
    known = hashlib.md5(archive.read_bytes()).hexdigest()
    monkeypatch.setattr(image_folders, name, Published(archive.name, "", known, archive.stat().st_size))


@pytest.mark.parametrize(
    ("name", "constant", "write", "file"),
    [
        ("tiny_imagenet", "TINY", fakes.write_tiny_imagenet, "tiny-imagenet-200.zip"),
        ("cinic10", "CINIC", fakes.write_cinic10, "CINIC-10.tar.gz"),
    ],
)
def test_archives_are_checked_and_unpacked(tmp_path, monkeypatch, name, constant, write, file):
    folder = write(tmp_path / "source")
    (tmp_path / "data").mkdir()
    archive = pack(folder, tmp_path / "data" / file)
    expected = load(name, root=tmp_path / "source").digest
    refuse(rf"{file} is not the published file: md5 .* bytes instead of", name, tmp_path / "data")
    publish(monkeypatch, constant, archive)
    assert load(name, root=tmp_path / "data").digest == expected
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    archive.rename(fresh / file)
    refuse("is not the published file", name, fresh)
    refuse("cannot be unpacked .*: it is cut short or damaged", name, fresh, verify=False)
    assert [path.name for path in fresh.iterdir()] == [file]  # nothing half unpacked is left


def test_an_archive_cannot_write_outside_its_folder(tmp_path):
    with tarfile.open(tmp_path / "CINIC-10.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("../../evil.txt")
        archive.addfile(info)
    with pytest.raises(ValueError, match="cannot be unpacked"):
        files.unpack(tmp_path / "CINIC-10.tar.gz", tmp_path / "a" / "CINIC-10")
    assert not list(tmp_path.glob("**/evil.txt"))
    assert not (tmp_path.parent / "evil.txt").exists()


def test_texts_without_words_are_one_unknown_word(tmp_path):
    folder = fakes.write_dbpedia(tmp_path)
    rows = (folder / "train.csv").read_text().splitlines()
    rows[0] = '1," ","..."'
    (folder / "train.csv").write_text("\n".join(rows))
    data = load("dbpedia14", root=tmp_path, vocabulary=30, length=4)
    assert data.train_inputs[0].tolist() == [1, 0, 0, 0]


def test_corrupted_cifar_files_that_do_not_fit(tmp_path):
    labels = np.arange(4)
    folder = fakes.write_corrupted_cifar(tmp_path, labels)
    images = corrupted_cifar.read_corrupted(folder, "fog", 3, labels)
    np.testing.assert_array_equal(images[1], fakes.draw(0, 20, 32, 32, 3)[9].transpose(2, 0, 1))
    for other, message in ((labels[::-1], "does not belong to these test images"), (labels[:3], "5 times the 3 test")):
        with pytest.raises(ValueError, match=message):
            corrupted_cifar.read_corrupted(folder, "fog", 3, other)
    with pytest.raises(ValueError, match=r"no .*snow\.npy: the folder is not complete"):
        corrupted_cifar.read_corrupted(folder, "snow", 1, labels)
    cut_short(folder / "contrast.npy")
    with pytest.raises(ValueError, match=r"contrast\.npy is not an \.npy file of numbers, or is cut short"):
        corrupted_cifar.read_corrupted(folder, "contrast", 1, labels)
    np.save(folder / "contrast.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"contrast\.npy is not an \.npy file of numbers"):
        corrupted_cifar.read_corrupted(folder, "contrast", 1, labels)


def test_paths_of_a_split_are_not_followed_outside(tmp_path):
    fakes.write_cityscapes(tmp_path)
    path = tmp_path / "splits/heterogeneous/train/all_data_1.json"
    content = json.loads(path.read_text())
    content["user_data"]["bochum0"]["x"][0] = "/etc/passwd"
    path.write_text(json.dumps(content))
    refuse("must hold paths inside the data set", "cityscapes", tmp_path, split="splits/heterogeneous")
