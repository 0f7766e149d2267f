"""Readers meet mutated files: what is not readable is a ValueError in words, never anything else.

`make fuzz` tries 10,000 files of each kind; otherwise a sample.
"""

from __future__ import annotations

import json
import os
import pickle
import random

import numpy as np
import pytest
from scipy.io import savemat

from training import config
from training.data import datasets, partition
from training.personal import scores
from training.storage import metrics, npz, run_directory, tensors, verified_files
from training.storage.atomic_files import DamagedError

COUNT = int(os.environ.get("FUZZ", "100"))
ODD = (
    b"\xff" * 8,
    bytes(8),
    b"\x7f" + b"\xff" * 7,
    b"9" * 20,
    b"[" * 30,
    b"{",
    b"-1",
    b"1e999",
    b"NaN",
    b"null",
    b"\n",
)


def mutated(data, rng):
    """The bytes with one to five changes: flipped, cut, replaced, copied elsewhere, or something odd put in."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place, length = rng.randrange(len(data) + 1), rng.randrange(1, 40)
        kind = rng.randrange(5)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[place : place + (length if rng.random() < 0.7 else len(data))]
        elif kind == 2:
            data[place : place + length] = rng.randbytes(rng.randrange(9))
        elif kind == 3:
            other = rng.randrange(len(data) + 1)
            data[place:place] = data[other : other + length]
        else:
            odd = rng.choice(ODD)
            data[place : place + rng.choice((0, 1, len(odd)))] = odd
    return bytes(data)


def altered(value, rng):
    """JSON with one of its values, at any depth, replaced by something odd or left out."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(sorted(value))
        rest = {name: part for name, part in value.items() if name != key}
        return rest if rng.random() < 0.1 else {**rest, key: altered(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.5:
        return [altered(value[0], rng), *value[1:]]
    return rng.choice(
        [None, True, -1, 0, 1, 2, 0.5, 10**9, 10**30, float("nan"), "", "x", "../x", [], {}, [[]], {"a": 1}]
    )


def tomls(folder):
    path = folder / "recipe.toml"
    text = config.dump(config.load("digits_fedasam_swa")[0])
    text += '[sweep]\n"local.lr" = [0.1, 0.2]\nseed = [1, 2]\n'
    return path, text.encode(), lambda: config.load(path)


def archives(folder):
    path = folder / "partition.npz"
    partition.save(partition.partition("dirichlet_total", [0, 1, 2] * 8, 3, seed=0, alpha=1.0), path)
    return path, path.read_bytes(), lambda: partition.load(path)


def packed_archives(folder):
    path = folder / "data.npz"
    np.savez_compressed(path, x=np.zeros((200, 2)), y=np.arange(300), words=np.array(["a", "b"]))
    return path, path.read_bytes(), lambda: npz.read_npz(path)


def vectors(folder):
    path = folder / "w.safetensors"
    tensors.write(path, {"a": np.arange(3, dtype=np.float32), "b": np.zeros((2, 1))})
    return path, path.read_bytes(), lambda: tensors.read(path, verified_files.fingerprint(path))


def records(folder):
    for round in (1, 2, 3):
        metrics.append(folder, {"round": round, "accuracy": 0.1 * round})
    path = folder / "metrics.jsonl"
    return path, path.read_bytes(), lambda: metrics.read(folder)


def sealed_files(folder):
    path = folder / "status.json"
    path.write_text(verified_files.seal({"format": 1, "state": "running", "round": 3, "message": "", "files": {}}))
    return path, path.read_bytes(), lambda: run_directory.read_status(folder)


def pickles(folder):
    (folder / "cifar-10-batches-py").mkdir()
    content = {"data": np.zeros((1, 3072), dtype=np.uint8), "labels": [9], "batch_label": b"x"}
    data = pickle.dumps(content, protocol=3)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (folder / "cifar-10-batches-py" / name).write_bytes(data)
    path = folder / "cifar-10-batches-py" / "data_batch_1"
    return path, data, lambda: datasets.load("cifar10", root=folder)


def matrices(folder):
    for part in ("train", "test"):
        content = {"X": np.zeros((32, 32, 3, 1), dtype=np.uint8), "y": np.array([[10]], dtype=np.uint8)}
        savemat(folder / f"{part}_32x32.mat", content, do_compression=part == "train")
    path = folder / "train_32x32.mat"
    return path, path.read_bytes(), lambda: datasets.load("svhn", root=folder)


READERS = (tomls, archives, packed_archives, vectors, records, sealed_files, pickles, matrices)


@pytest.mark.parametrize("prepare", READERS, ids=[one.__name__ for one in READERS])
@pytest.mark.filterwarnings("ignore")  # of numpy and scipy, about what they find
def test_mutated_files_are_read_or_refused(tmp_path, prepare):
    path, data, read = prepare(tmp_path)
    path.write_bytes(data)
    read()
    rng, refused = random.Random(0), 0
    for number in range(COUNT):
        changed = mutated(data, rng)
        path.write_bytes(changed)
        try:
            read()
        except ValueError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"file {number}: {changed[:2000]!r}") from error
    assert refused > COUNT // 3


def descriptions(folder):
    path = run_directory.checkpoint_path(folder, 3) / "meta.json"
    path.parent.mkdir(parents=True)
    prints = {name: {"bytes": 3, "sha256": "0" * 64} for name in run_directory.TENSOR_FILES}
    extra = {"cohort": [1, 2], "sizes": [3, 4], "captured": 0, "forgotten": False}
    return path, {"format": 1, "round": 3, "files": prints, **extra}, lambda: run_directory.read_meta(path.parent)


def states(folder):
    prints = {"config.toml": {"bytes": 3, "sha256": "0" * 64}}
    content = {"format": 1, "state": "finished", "round": 3, "message": "", "files": prints}
    return folder / "status.json", content, lambda: run_directory.read_status(folder)


def results(folder):
    path = folder / "result.json"
    result = scores.PersonalResult(
        "own", 3, "server", {"lr": 0.1}, 5, "0" * 64, 0, (scores.ClientScore(1, 5, 0.5, 1.0),)
    )
    scores.save(path, result)
    content = json.loads(path.read_text())
    del content["sha256"]
    return path, content, lambda: scores.load(path)


SEALED = (descriptions, states, results)


@pytest.mark.parametrize("prepare", SEALED, ids=[one.__name__ for one in SEALED])
def test_made_up_contents_under_a_good_seal_are_read_or_refused(tmp_path, prepare):
    path, content, read = prepare(tmp_path)
    path.write_text(verified_files.seal(content))
    read()
    rng, refused = random.Random(0), 0
    for number in range(COUNT):
        changed = content
        for _ in range(rng.choice((1, 1, 2, 4))):
            changed = altered(changed, rng)
        if not isinstance(changed, dict):
            continue
        path.write_text(verified_files.seal(changed))
        try:
            read()
        except DamagedError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"content {number}: {changed}") from error
    assert refused > COUNT // 3
