"""Data sets: files in the published layouts, hostile files, a mixture with a known answer, a user's own data."""

import hashlib
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat
from scipy.special import ndtr

from training.data import dataset as data_set
from training.data.dataset import Dataset, make, normalise, pool
from training.data.datasets import DATASETS, load
from training.data.formats.pickles import unpickle
from training.data.published import PUBLISHED
from training.data.readers.torchvision_folders import COARSE
from training.models import torchvision_shim

REAL = os.environ.get("LANDSCAPE_DATA")
real_data = [
    pytest.mark.data,
    pytest.mark.skipif(not REAL, reason="set LANDSCAPE_DATA to a folder with real data in torchvision's layout"),
]


def photos(count, key, width=3072):
    return np.random.default_rng(key).integers(0, 256, (count, width), dtype=np.uint8)


def text(value):
    return b"U" + bytes([len(value)]) + value


def python2(pixels, labels):
    """A batch as Python 2 and its NumPy pickled it, written opcode by opcode."""
    count, width = (b"M" + struct.pack("<H", one) for one in pixels.shape)
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    kind = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2
    kind += b"K\x00tb"
    raw = b"T" + struct.pack("<i", pixels.size) + pixels.tobytes()
    array = empty + b"(K\x01" + count + width + b"\x86" + kind + b"\x89" + raw + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([one]) for one in labels) + b"e"
    return b"\x80\x02}(" + text(b"labels") + numbers + text(b"data") + array + b"u."


CIFAR10_FILES = [*(f"data_batch_{part}" for part in range(1, 6)), "test_batch"]


@pytest.fixture
def cifar10_root(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for key, name in enumerate(CIFAR10_FILES):
        pixels, labels = photos(3, key), [key, 9, 0]
        new = pickle.dumps({"data": pixels, "labels": labels, "filenames": ["a.png"]}, protocol=4)
        (folder / name).write_bytes(python2(pixels, labels) if key % 2 else new)
    return tmp_path


def test_cifar10_layout(cifar10_root):
    data = load("cifar10", root=cifar10_root)
    expected = np.concatenate([photos(3, key) for key in range(5)]).reshape(15, 3, 32, 32)
    assert torch.equal(data.train_inputs, torch.from_numpy(expected))
    assert torch.equal(data.test_inputs, torch.from_numpy(photos(3, 5).reshape(3, 3, 32, 32)))
    assert data.train_targets.tolist() == [0, 9, 0, 1, 9, 0, 2, 9, 0, 3, 9, 0, 4, 9, 0]
    assert data.test_targets.tolist() == [5, 9, 0]
    assert (data.name, data.classes, data.channels, data.facts["size"], data.coarse) == ("cifar10", 10, 3, 32, None)
    assert data.train_inputs.is_contiguous()
    assert data.train_inputs.dtype == torch.uint8
    assert data.train_targets.dtype == torch.int64


class Evil:
    """Pickles as a call of any function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def hostile(marker):
    touch = f"open({str(marker)!r}, 'w').close()"
    array = np.zeros(3, dtype=object)
    array[0] = Evil(eval, touch)
    return {
        "eval": pickle.dumps({"data": Evil(eval, touch), "labels": [0]}),
        "system": pickle.dumps(Evil(os.system, f"touch {marker}")),
        "path": pickle.dumps({"labels": [Evil(Path.touch, marker)]}),
        "getattr": pickle.dumps({"data": Evil(getattr, "x", "upper")}),
        "object array": pickle.dumps({"data": array}, protocol=4),
        "numpy.load": b"\x80\x02cnumpy\nload\nX\x01\x00\x00\x00x\x85R.",
        "change a stand-in": b"\x80\x02cnumpy\ndtype\n}X\x04\x00\x00\x00codeX\x02\x00\x00\x00u1sb.",
        "change by slots": b"\x80\x02cnumpy\nndarray\nN}X\x04\x00\x00\x00codeX\x02\x00\x00\x00u1s\x86b.",
        "wide array": pickle.dumps({"data": np.zeros((1, 3072), dtype=np.int32)}, protocol=4),
        "signed bytes": pickle.dumps({"data": np.zeros((1, 3072), dtype=np.int8)}, protocol=4),
        "fortran array": pickle.dumps({"data": np.zeros((4, 3072), dtype=np.uint8, order="F")}, protocol=4),
        "not a dictionary": pickle.dumps([1, 2]),
        "truncated": pickle.dumps({"labels": list(range(50))})[:-20],
        "empty": b"",
        "text": b"<html>404</html>",
    }


@pytest.mark.parametrize("kind", hostile(Path("x")))
def test_hostile_or_damaged_pickles_are_refused(kind, tmp_path):
    marker, path = tmp_path / "marker", tmp_path / "batch"
    path.write_bytes(hostile(marker)[kind])
    with pytest.raises(ValueError, match=r"batch is not one of CIFAR's batches: .* Delete it and download it again"):
        unpickle(path)
    assert not marker.exists()


def test_the_refusal_names_what_the_file_asked_for(cifar10_root, tmp_path):
    marker = tmp_path / "marker"
    content = hostile(marker)["eval"]
    pickle.loads(content)
    assert marker.exists()  # so the attack is real
    marker.unlink()
    (cifar10_root / "cifar-10-batches-py" / "data_batch_3").write_bytes(content)
    with pytest.raises(ValueError, match=r"data_batch_3 .* asks for builtins\.eval, which was refused and not run"):
        load("cifar10", root=cifar10_root)
    assert not marker.exists()


def test_cifar_batches_with_the_wrong_content(cifar10_root):
    path = cifar10_root / "cifar-10-batches-py" / "test_batch"
    for content in ({"data": photos(2, 0)}, {"data": photos(2, 0), "labels": [1]}, {"data": 3, "labels": [1]}):
        path.write_bytes(pickle.dumps(content, protocol=4))
        with pytest.raises(ValueError, match="test_batch is not one of CIFAR's batches: it needs 'data'"):
            load("cifar10", root=cifar10_root)
    path.write_bytes(pickle.dumps({"data": photos(1, 0), "labels": [10]}, protocol=4))
    with pytest.raises(ValueError, match=r"labels must lie in 0\.\.9, got values from 0 to 10"):
        load("cifar10", root=cifar10_root)


def write_cifar100(root, coarse):
    folder = root / "cifar-100-python"
    folder.mkdir(exist_ok=True)
    for key, name in enumerate(("train", "test")):
        fine = list(range(100))[:: 1 + key]
        content = {"data": photos(len(fine), key), "fine_labels": fine, "coarse_labels": [coarse[one] for one in fine]}
        (folder / name).write_bytes(pickle.dumps(content, protocol=4))


def test_cifar100_layout(tmp_path):
    write_cifar100(tmp_path, COARSE)
    data = load("cifar100", root=tmp_path)
    assert (len(data.train_targets), len(data.test_targets), data.classes) == (100, 50, 100)
    assert data.test_targets.tolist() == list(range(0, 100, 2))
    assert data.coarse == COARSE
    write_cifar100(tmp_path, (*COARSE[1:], 0))
    with pytest.raises(ValueError, match="coarse labels are not CIFAR-100's superclasses"):
        load("cifar100", root=tmp_path)


SUPERCLASSES = """
beaver dolphin otter seal whale / aquarium_fish flatfish ray shark trout / orchid poppy rose sunflower tulip /
bottle bowl can cup plate / apple mushroom orange pear sweet_pepper / clock keyboard lamp telephone television /
bed chair couch table wardrobe / bee beetle butterfly caterpillar cockroach / bear leopard lion tiger wolf /
bridge castle house road skyscraper / cloud forest mountain plain sea / camel cattle chimpanzee elephant kangaroo /
fox porcupine possum raccoon skunk / crab lobster snail spider worm / baby boy girl man woman /
crocodile dinosaur lizard snake turtle / hamster mouse rabbit shrew squirrel /
maple_tree oak_tree palm_tree pine_tree willow_tree / bicycle bus motorcycle pickup_truck train /
lawn_mower rocket streetcar tank tractor
"""  # in the order of the superclasses' own names: aquatic mammals, fish, flowers, ...


def test_superclasses_from_the_class_names():
    groups = [group.split() for group in SUPERCLASSES.split("/")]
    owner = {name: place for place, group in enumerate(groups) for name in group}
    assert len(groups) == 20
    assert tuple(owner[name] for name in sorted(owner)) == COARSE


def idx(array):
    return struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(root, name):
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    for key, (part, count) in enumerate((("train", 5), ("t10k", 2))):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(photos(count, key, 784).reshape(-1, 28, 28)))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(count, dtype=np.uint8) + 3))
    return folder


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_mnist_layout(tmp_path, name, folder):
    files = write_mnist(tmp_path, folder)
    data = load(name, root=str(tmp_path))
    assert torch.equal(data.train_inputs, torch.from_numpy(photos(5, 0, 784).reshape(5, 1, 28, 28)))
    assert torch.equal(data.test_inputs, torch.from_numpy(photos(2, 1, 784).reshape(2, 1, 28, 28)))
    assert data.train_targets.tolist() == [3, 4, 5, 6, 7]
    assert data.test_targets.tolist() == [3, 4]
    assert data.train_targets.dtype == torch.int64
    for damage in (b"", b"<html>404</html>", (files / "train-images-idx3-ubyte").read_bytes()[:-9]):
        (files / "train-images-idx3-ubyte").write_bytes(damage)
        with pytest.raises(ValueError, match=r"train-images-idx3-ubyte or .* is not an idx file"):
            load(name, root=tmp_path)


def test_svhn_layout(tmp_path):
    images = photos(4, 0).reshape(32, 32, 3, 4)
    for part in ("train", "test"):
        savemat(tmp_path / f"{part}_32x32.mat", {"X": images, "y": np.array([[10], [1], [9], [10]], dtype=np.uint8)})
    data = load("svhn", root=tmp_path)
    assert data.train_targets.tolist() == [0, 1, 9, 0]
    for place in range(4):
        for channel in range(3):
            assert torch.equal(data.test_inputs[place, channel], torch.from_numpy(images[:, :, channel, place].copy()))
    assert data.train_inputs.is_contiguous()
    good = (tmp_path / "test_32x32.mat").read_bytes()
    for damage in (b"<html>404</html>" * 20, b"", good[:200], good[:-9], good[:128] + b"\x0f" + good[129:]):
        (tmp_path / "test_32x32.mat").write_bytes(damage)
        with pytest.raises(ValueError, match=r"test_32x32\.mat is not an SVHN file"):
            load("svhn", root=tmp_path)


@pytest.mark.parametrize("labels", [["1"], [None], [2**80], [-1], [100], [1.5], [[1]]])
@pytest.mark.parametrize("key", ["fine_labels", "coarse_labels"])
def test_labels_of_cifar_that_are_no_classes(tmp_path, labels, key):
    write_cifar100(tmp_path, COARSE)
    path = tmp_path / "cifar-100-python" / "train"
    content = {"data": photos(1, 0), "fine_labels": [0], "coarse_labels": [COARSE[0]], key: labels}
    path.write_bytes(pickle.dumps(content, protocol=4))
    with pytest.raises(ValueError, match="its labels must be whole numbers from 0 to 99"):
        load("cifar100", root=tmp_path)


@pytest.mark.parametrize(
    ("name", "folder"),
    [("cifar10", "cifar-10-batches-py"), ("cifar100", "cifar-100-python"), ("mnist", "MNIST"), ("svhn", "")],
)
def test_missing_files_say_where_and_how(tmp_path, name, folder, monkeypatch):
    expected = rf"{name}: no .* in .*elsewhere.*{folder}.*Add --download .*LANDSCAPE_DATA"
    with pytest.raises(ValueError, match=expected):
        load(name, root=tmp_path / "elsewhere")
    monkeypatch.setenv("LANDSCAPE_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(ValueError, match=expected):
        load(name)
    monkeypatch.delenv("LANDSCAPE_DATA")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"{name}: no .* in data"):
        load(name)


def test_download_only_when_asked(tmp_path, monkeypatch):
    calls = []

    def fake(url, folder, **given):
        calls.append((url, given))
        write_cifar100(Path(folder), COARSE)

    monkeypatch.setattr(torchvision_shim.utils, "download_and_extract_archive", fake)
    with pytest.raises(ValueError, match="no train, test in"):
        load("cifar100", root=tmp_path)
    assert calls == []
    assert load("cifar100", root=tmp_path, download=True).classes == 100
    load("cifar100", root=tmp_path, download=True)
    assert [(url.rsplit("/", 1)[1], len(given["md5"])) for url, given in calls] == [("cifar-100-python.tar.gz", 32)]


def test_download_that_fails(tmp_path, monkeypatch):
    def fake(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(torchvision_shim.utils, "download_and_extract_archive", fake)
    monkeypatch.setattr(torchvision_shim.utils, "download_url", fake)
    for name in ("cifar10", "mnist", "svhn"):
        with pytest.raises(ValueError, match=rf"{name}: the download into .* failed .no route to host"):
            load(name, root=tmp_path, download=True)


def test_digits():
    data = load("digits")
    assert data.train_inputs.shape == (1437, 1, 8, 8)
    assert data.test_inputs.shape == (360, 1, 8, 8)
    from sklearn.datasets import load_digits

    images, labels = (
        torch.cat([data.train_inputs, data.test_inputs]),
        torch.cat([data.train_targets, data.test_targets]),
    )
    source = load_digits()
    ours = sorted(
        (label, *(round(x * 16 / 255) for x in image))
        for label, image in zip(labels.tolist(), images.flatten(1).tolist(), strict=True)
    )
    theirs = sorted((int(label), *map(int, row)) for label, row in zip(source.target, source.data, strict=True))
    assert ours == theirs  # every digit once, and no grey level lost
    assert int(images.max()) == 255
    share = torch.bincount(data.test_targets) - torch.bincount(labels) * 360 / 1797
    assert share.abs().max() < 1
    pixels = data.train_inputs.double() / 255
    assert data.mean == (pytest.approx(float(pixels.mean()), abs=5e-5),)
    assert data.std == (pytest.approx(float(pixels.std(correction=0)), abs=5e-5),)
    # the split is part of every published number, so it must never move
    assert data.digest == "4786f6cf3bd8ed85a993e41b2d72db1d5a1c59659bf8abb5358441d6b28e25d2"


def test_digest_covers_everything():
    images = torch.arange(2 * 4, dtype=torch.uint8).view(2, 1, 2, 2)
    labels = torch.tensor([0, 1])
    base = make("one", (images, labels), (images, labels))
    total = hashlib.sha256()
    for tensor in (images, labels, images, labels):
        total.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    assert base.digest == total.hexdigest()
    others = [
        make("one", (images + 1, labels), (images, labels)),
        make("one", (images, labels), (images + 1, labels)),
        make("one", (images, 1 - labels), (images, labels)),
        make("one", (images, labels), (images, 1 - labels)),
        make("one", (images, labels), (images[:1], labels[:1])),
        make("one", (images.float(), labels), (images.float(), labels)),
    ]
    assert len({base.digest, *(one.digest for one in others)}) == 7
    assert make("two", (images.clone(), labels), (images, labels), mean=[0.5]).digest == base.digest


SMALL = {"examples": 1000, "classes": 3, "shape": (2, 4, 4), "seed": 5}


def test_synthetic_is_a_function_of_its_seed():
    np.random.seed(0)
    state = np.random.get_state()[1].copy()
    before = torch.get_rng_state()
    first, again = load("synthetic", **SMALL), load("synthetic", **SMALL)
    assert first.digest == again.digest
    assert first.digest != load("synthetic", **{**SMALL, "seed": 6}).digest
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == state).all()
    assert first.train_inputs.shape == (1000, 2, 4, 4)
    assert first.test_inputs.shape == (200, 2, 4, 4)
    assert sorted(torch.bincount(first.train_targets).tolist()) == [333, 333, 334]
    assert first.train_targets[:6].tolist() != [0, 1, 2, 0, 1, 2]
    assert load("synthetic", **SMALL, test_examples=7).test_targets.shape == (7,)
    equal = load("synthetic", **SMALL, test_examples=1000)
    assert not torch.equal(equal.train_targets, equal.test_targets)
    assert not torch.equal(equal.train_inputs, equal.test_inputs)


def test_synthetic_has_the_accuracy_of_the_closed_form():
    data = load("synthetic", examples=100_000, test_examples=70_001, classes=2, shape=(1, 5, 5), separation=2.0, seed=1)
    inputs = normalise(data.train_inputs, data, torch.float64).flatten(1)
    means = torch.stack([inputs[data.train_targets == label].mean(0) for label in range(2)])
    torch.testing.assert_close(means.norm(dim=1), torch.full((2,), 2**0.5, dtype=torch.float64), rtol=0.02, atol=0)
    noise = inputs - means[data.train_targets]
    covariance = noise.T @ noise / len(noise)
    torch.testing.assert_close(covariance, torch.eye(25, dtype=torch.float64), rtol=0, atol=0.025)
    tests = normalise(data.test_inputs, data, torch.float64).flatten(1)
    accuracy = float((torch.cdist(tests, means).argmin(1) == data.test_targets).double().mean())
    expected = ndtr(float((means[0] - means[1]).norm()) / 2)
    assert abs(accuracy - expected) < 4 * (expected * (1 - expected) / 70_001) ** 0.5


def test_synthetic_means_lie_separation_apart():
    data = load("synthetic", examples=8_000, classes=4, shape=(3, 16, 16), separation=8.0)
    inputs = normalise(data.train_inputs, data).flatten(1)
    means = torch.stack([inputs[data.train_targets == label].mean(0) for label in range(4)])
    distances = torch.pdist(means)
    assert distances.sub(8).abs().max() < 0.8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": (1, 1, 1), "separation": 8.0}, "separation=8.0 does not fit images of 1 pixels"),
        ({"separation": 0.0}, "separation must be positive"),
        ({"examples": 0}, "examples must be a whole number"),
        ({"classes": 0}, "classes must be a whole number"),
        ({"shape": (1, 0, 4)}, "shape must be a whole number"),
        ({"test_examples": -1}, "examples must be a whole number, at least 0"),
        ({"exampels": 3}, "setting of data set 'synthetic': unknown 'exampels'; did you mean 'examples'"),
    ],
)
def test_synthetic_mistakes(settings, message):
    with pytest.raises(ValueError, match=message):
        load("synthetic", **settings)


def test_names_and_settings():
    with pytest.raises(ValueError, match="data set: unknown 'cifar01'; did you mean 'cifar10'"):
        load("cifar01")
    with pytest.raises(ValueError, match="data set 'digits' takes no settings, got 'seed'"):
        load("digits", seed=3)
    assert load("digits", mean=[0.5], std=[0.25]).std == (0.25,)
    with pytest.raises(ValueError, match="digits: std needs 1 numbers, one per channel; got"):
        load("digits", std=[0.2, 0.2])
    with pytest.raises(ValueError, match="digits: std must be positive"):
        load("digits", std=[0.0])
    own = {"cifar10", "cifar100", "digits", "fashion_mnist", "mnist", "svhn", "synthetic"}
    assert set(DATASETS) == own | set(PUBLISHED)


def test_pooled():
    data = load("synthetic", **SMALL)
    pooled = pool(data)
    assert torch.equal(pooled.train_inputs, torch.cat([data.train_inputs, data.test_inputs]))
    assert torch.equal(pooled.train_targets, torch.cat([data.train_targets, data.test_targets]))
    assert pooled.test_inputs.shape == (0, 2, 4, 4)
    assert pooled.test_targets.shape == (0,)
    assert (pooled.classes, pooled.mean, pooled.std) == (data.classes, data.mean, data.std)
    assert pooled.digest != data.digest
    assert pool(pooled).digest == pooled.digest


def test_normalise_is_torchvisions_to_the_bit():
    data = load("synthetic", **SMALL)
    images = data.train_inputs[:5]
    expected = torchvision_shim.functional.normalize(
        torchvision_shim.functional.convert_image_dtype(images), data.mean, data.std
    )
    assert torch.equal(normalise(images, data), expected)
    assert images.dtype == torch.uint8
    exact = (images.double() / 255 - 128 / 255) / (16 / 255)
    torch.testing.assert_close(normalise(images, data, torch.float64), exact, rtol=1e-13, atol=1e-13)


USERS = """
import numpy as np, torch
from training.data.dataset import make
IMAGES = np.arange(4 * 2 * 3 * 3, dtype=np.uint8).reshape(4, 2, 3, 3)
LABELS = np.array([0, 1, 2, 1])
def pairs(count=4):
    return (IMAGES[:count], LABELS[:count]), (IMAGES[1:], LABELS[1:])
def floats(root, scale=1.0):
    assert root.name == "here"
    images = torch.arange(12.0).view(3, 1, 2, 2) * scale
    return [(images, torch.tensor([0, 0, 1])), (images[:0], torch.tensor([], dtype=torch.int32))]
def whole(download):
    assert download is True
    return make("mine", *pairs(), classes=5)
def nothing():
    return IMAGES
def frozen():
    IMAGES.flags.writeable = False
    return pairs()
"""


@pytest.fixture
def users(tmp_path, monkeypatch):
    (tmp_path / "users_data_for_test.py").write_text(USERS)
    monkeypatch.syspath_prepend(tmp_path)
    return "users_data_for_test:"


def test_a_users_own_data(users):
    data = load(users + "pairs", count=3)
    assert (data.name, data.classes, data.channels, data.facts["size"]) == (users + "pairs", 3, 2, 3)
    assert data.train_targets.tolist() == [0, 1, 2]
    pixels = data.train_inputs.double() / 255
    assert data.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist())
    assert data.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist())
    floats = load(users + "floats", root="here", scale=2.0)
    assert floats.train_inputs.dtype == torch.float32
    assert floats.test_targets.dtype == torch.int64
    assert floats.mean == (11.0,)
    torch.testing.assert_close(normalise(floats.train_inputs, floats).mean(), torch.tensor(0.0), rtol=0, atol=1e-6)
    assert load(users + "whole", download=True, mean=[0, 0]).classes == 5
    assert load(users + "frozen").train_inputs.shape == (4, 2, 3, 3)
    with pytest.raises(ValueError, match=r"must return a Dataset or .*, got ndarray"):
        load(users + "nothing")
    with pytest.raises(ValueError, match="unknown 'pears'; did you mean 'pairs'"):
        load(users + "pears")
    with pytest.raises(ValueError, match="unknown 'cuont'; did you mean 'count'"):
        load(users + "pairs", cuont=2)


IMAGES, LABELS = torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 1])
BAD = [
    ((IMAGES[:, 0], LABELS), r"train images must have shape.*\(3, 2, 2\): write images\[:, None\]"),
    ((IMAGES.double(), LABELS), "images must be a tensor or array of uint8 or float32, got torch.float64"),
    (([1, 2], LABELS), "images must be a tensor or array of uint8 or float32, got list"),
    ((IMAGES.float() / 0, LABELS), "train images has 12 non-finite entries"),
    ((IMAGES, LABELS.float()), "labels must be a tensor or array of whole numbers, got torch.float32"),
    ((IMAGES, [0, 1, 1]), "labels must be a tensor or array of whole numbers, got list"),
    ((IMAGES, LABELS[:2]), r"labels must have shape \(3,\), one per example; got \(2,\)"),
    ((IMAGES, LABELS - 1), r"labels must lie in 0\.\.1, got values from -1 to 1"),
    ((IMAGES, LABELS + 1), r"labels must lie in 0\.\.1, got values from 0 to 2"),
    ((IMAGES[:0], LABELS[:0]), "there are no training examples"),
    ((IMAGES.float(), LABELS), "train and test inputs must agree"),
    ((torch.zeros(3, 2, 2, 2, dtype=torch.uint8), LABELS), "train and test inputs must agree"),
]


@pytest.mark.parametrize(("pair", "message"), BAD)
def test_bad_data_is_named(pair, message):
    with pytest.raises(ValueError, match=message):
        make("mine", pair, (IMAGES, LABELS), classes=2)


def test_a_constant_channel_can_be_normalised():
    data = make("flat", (IMAGES + 51, LABELS), (IMAGES, LABELS))
    assert data.std == (1.0,)
    assert normalise(data.train_inputs, data).abs().max() < 1e-7


def test_the_record_is_frozen():
    data = make("mine", (IMAGES, LABELS), (IMAGES, LABELS))
    assert isinstance(data, Dataset)
    with pytest.raises(AttributeError):
        data.classes = 3


def check_real(data, images, channels, size):
    assert data.train_inputs.shape == (images, channels, size, size)
    assert data.test_inputs.shape == (10_000, channels, size, size)
    assert torch.bincount(data.train_targets).tolist() == [images // 10] * 10
    assert torch.bincount(data.test_targets).tolist() == [1000] * 10
    found = data_set._compute_moments("mine", data.train_inputs)
    assert data.mean == pytest.approx(found[0], abs=6e-4)
    assert data.std == pytest.approx(found[1], abs=6e-4)


class TestRealData:
    pytestmark = real_data

    def test_cifar10(self):
        data = load("cifar10", root=REAL)
        check_real(data, 50_000, 3, 32)
        reference = torchvision_shim.datasets.CIFAR10(REAL, train=False)
        assert torch.equal(data.test_inputs, torch.from_numpy(reference.data).permute(0, 3, 1, 2))
        assert data.test_targets.tolist() == reference.targets

    def test_fashion_mnist(self):
        data = load("fashion_mnist", root=REAL)
        check_real(data, 60_000, 1, 28)
        reference = torchvision_shim.datasets.FashionMNIST(REAL, train=True)
        assert torch.equal(data.train_inputs[:, 0], reference.data)


def test_images_need_not_be_square():
    data = load("synthetic", examples=20, shape=(2, 4, 5))
    assert data.facts == {"classes": 10, "channels": 2, "image_height": 4, "image_width": 5}
    assert data.read("test", torch.tensor([3, 1, 3]))[0].shape == (3, 2, 4, 5)
