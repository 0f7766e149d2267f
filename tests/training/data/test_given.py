"""Partitions by users, by published files, and by a user's own function."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.training.data.readers import fakes
from training import config
from training.data.datasets import load
from training.data.given import Known
from training.data.partition import load as load_partition
from training.data.partition import partition
from training.data.partition import save as save_partition
from training.data.readers.torchvision_folders import COARSE
from training.data.stores import Groups
from training.engine.federation import Federation, draw_partition

LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1])
KEYS = tuple(f"img_{number}_label_{label}.png" for number, label in enumerate(LABELS.tolist()))


def write(path: Path, users: dict[str, list[int]], data: str = "user_data") -> Path:
    """A split as FedSAM and FedGloSS released theirs."""
    named = {user: ([KEYS[one] for one in own], LABELS[own].tolist()) for user, own in users.items()}
    fakes.write_split(path, named, data)
    return path


def parts(made) -> list[list[int]]:
    return [own.tolist() for own in made.indices]


@pytest.mark.parametrize("data", ["user_data", "users_data"])
def test_released_splits(tmp_path, data):
    path = write(tmp_path / "federated_train_alpha_0.05.json", {"10": [4, 1, 7], "2": [0, 6, 3], "0": [5, 2]}, data)
    made = partition("file", LABELS, 3, seed=0, known=Known(keys=KEYS), path=str(path))
    assert parts(made) == [[2, 5], [0, 3, 6], [1, 4, 7]]  # clients by number: 0, 2, 10
    assert made.histogram.tolist() == [[0, 0, 2], [3, 0, 0], [0, 3, 0]]
    assert parts(partition("file", LABELS, 3, seed=9, known=Known(keys=KEYS), path=str(path))) == parts(made)


def test_wrong_numbers_of_samples_are_not_believed_and_a_missing_image_is_named(tmp_path):
    """FedGloSS's split of alpha 5 states sizes that it does not have; all of CIFAR-10's leave out one image."""
    path = write(tmp_path / "federated_train_alpha_5.00.json", {"0": [0, 3], "1": [1, 2, 5, 6, 7]}, "users_data")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "num_samples": [4, 4]}))
    with pytest.raises(ValueError, match=r"example 4 belongs to no client \(allow_unused\)"):
        partition("file", LABELS, 2, seed=0, known=Known(keys=KEYS), path=str(path))
    made = partition("file", LABELS, 2, seed=0, known=Known(keys=KEYS), path=str(path), allow_unused=True)
    assert made.sizes.tolist() == [2, 5]
    assert made.histogram.tolist() == [[2, 0, 0], [1, 2, 2]]


def test_paths_are_relative_to_the_data_or_to_the_working_directory(tmp_path, monkeypatch):
    write(tmp_path / "data" / "split.json", {"0": [*range(8)]})
    made = partition("file", LABELS, 1, seed=0, known=Known(keys=KEYS, root=tmp_path / "data"), path="split.json")
    assert made.sizes.tolist() == [8]
    monkeypatch.chdir(tmp_path / "data")
    assert partition("file", LABELS, 1, seed=0, known=Known(keys=KEYS), path="split.json").digest == made.digest
    with pytest.raises(ValueError, match=r"there is no other\.json, neither in .*data nor in"):
        partition("file", LABELS, 1, seed=0, known=Known(root=tmp_path / "data"), path="other.json")


def test_examples_may_be_given_by_number_and_in_csv(tmp_path):
    fakes.write_split(tmp_path / "numbers.json", {"a": ([3, 0, 6, 1], [0, 0, 0, 1]), "b": ([2, 4, 5, 7], ["?"] * 4)})
    made = partition("file", LABELS, 2, seed=0, path=str(tmp_path / "numbers.json"))
    assert parts(made) == [[0, 1, 3, 6], [2, 4, 5, 7]]
    rows = [[user, example, LABELS[example]] for user, example in ((7, 3), (0, 0), (7, 6), (0, 1), (7, 2), (0, 4))]
    for header in (["user_id", "image_id", "class"], ["user", "path", "label"]):
        fakes.write_table(tmp_path / "split.csv", header, rows)  # type: ignore[arg-type]
        csv = partition("file", LABELS, 2, seed=0, path=str(tmp_path / "split.csv"), allow_unused=True)
        assert parts(csv) == [[0, 1, 4], [2, 3, 6]]


def test_a_folder_of_files_is_one_split(tmp_path):
    write(tmp_path / "all_data_0.json", {"b": [0, 1, 2]})
    write(tmp_path / "all_data_1.json", {"a": [3, 4, 5, 6, 7]})
    assert parts(partition("file", LABELS, 2, seed=0, known=Known(keys=KEYS), path=str(tmp_path)))[1] == [0, 1, 2]


@pytest.mark.parametrize(
    ("users", "clients", "message"),
    [
        ({"0": [0, 1, 2], "1": [3, 4, 5]}, 2, r"example 6 belongs to no client, as do 1 others \(allow_unused\)"),
        ({"0": [*range(8)], "1": [3, 4]}, 2, r"example 3 is there several times, as are 1 others \(allow_repeated\)"),
        ({"0": [*range(8)], "1": []}, 2, "client 1 has no examples"),
        ({"0": [*range(8)]}, 2, r"has 1 clients, not 2; write partition\.clients = 1"),
    ],
)
def test_overlapping_and_incomplete_splits_are_said(tmp_path, users, clients, message):
    path = write(tmp_path / "split.json", users)
    with pytest.raises(ValueError, match=message) as caught:
        partition("file", LABELS, clients, seed=0, known=Known(keys=KEYS), path=str(path))
    assert "\n" not in str(caught.value)


def test_overlapping_and_incomplete_splits_can_be_allowed(tmp_path):
    path = write(tmp_path / "split.json", {"0": [0, 1, 1, 2], "1": [2, 3]})
    made = partition(
        "file", LABELS, 2, seed=0, known=Known(keys=KEYS), path=str(path), allow_unused=True, allow_repeated=True
    )
    assert parts(made) == [[0, 1, 1, 2], [2, 3]]
    assert made.histogram.tolist() == [[1, 2, 1], [1, 0, 1]]
    save_partition(made, tmp_path / "partition.npz")
    assert load_partition(tmp_path / "partition.npz").digest == made.digest


def test_examples_that_the_data_do_not_have(tmp_path):
    fakes.write_split(tmp_path / "a.json", {"0": (["img_0_label_0.png", "img_99_label_0.png", 77, -1, None], [0] * 5)})
    with pytest.raises(ValueError, match=r"names examples .*: img_99_label_0\.png \(label 0\), 77 .* and 1 more"):
        partition("file", LABELS, 1, seed=0, known=Known(keys=KEYS), path=str(tmp_path / "a.json"))
    fakes.write_split(tmp_path / "b.json", {"0": (list(KEYS), [1, *LABELS[1:].tolist()])})
    with pytest.raises(ValueError, match=r"or not with these labels: img_0_label_0\.png \(label 1\)"):
        partition("file", LABELS, 1, seed=0, known=Known(keys=KEYS), path=str(tmp_path / "b.json"))


def test_cifar100_has_two_images_of_one_name(tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for part in ("train", "test"):
        labels = [2, 35, 7]
        content = {
            "data": fakes.draw(0, 3, 3072),
            "fine_labels": labels,
            "coarse_labels": [COARSE[one] for one in labels],
        }
        content["filenames"] = ["baby_s_000333.png", "baby_s_000333.png", "bee_s_1.png"]
        (folder / part).write_bytes(pickle.dumps(content, protocol=4))
    data = load("cifar100", root=tmp_path)
    users = {"0": (["baby_s_000333.png", "bee_s_1.png"], [35, 7]), "1": (["baby_s_000333.png"], [2])}
    fakes.write_split(tmp_path / "split.json", users)  # type: ignore[arg-type]
    known = Known(keys=data.keys)
    made = partition("file", data.labels.numpy(), 2, seed=0, known=known, path=str(tmp_path / "split.json"))
    assert parts(made) == [[1, 2], [0]]


def test_natural_users():
    known = Known(users=Groups.of(["cy", "ann", "bob", "ann", "cy", "ann", "bob", "cy"]))
    assert parts(partition("natural", LABELS, 3, seed=0, known=known)) == [[1, 3, 5], [2, 6], [0, 4, 7]]
    with pytest.raises(ValueError, match=r"3 users, not 2; write partition\.clients = 3, or allow_unused = true"):
        partition("natural", LABELS, 2, seed=0, known=known)
    with pytest.raises(ValueError, match=r"3 users, not 4; write partition\.clients = 3$"):
        partition("natural", LABELS, 4, seed=0, known=known, allow_unused=True)
    with pytest.raises(ValueError, match="natural needs data that name the user"):
        partition("natural", LABELS, 3, seed=0)
    drawn = {
        str(parts(partition("natural", LABELS, 2, seed=seed, known=known, allow_unused=True))) for seed in range(9)
    }
    assert len(drawn) == 3  # any two of the three, whole


def halves(labels, clients, generator, known, *, shift: int = 0):
    assert known is not None
    return np.array_split(np.roll(np.arange(len(labels)), shift), clients)


def lose(labels, clients, generator, *, allow_unused: bool = False):
    return [[0], [1]]


def nonsense(labels, clients, generator):
    return 3


HERE = "tests.training.data.test_given"


def test_a_partition_of_ones_own():
    made = partition(f"{HERE}:halves", LABELS, 2, seed=0, shift=1)
    assert parts(made) == [[0, 1, 2, 7], [3, 4, 5, 6]]
    assert partition(f"{HERE}:lose", LABELS, 2, seed=0, allow_unused=True).sizes.tolist() == [1, 1]
    for name, message in (
        ("lose", "example 2 belongs to no client"),
        ("nonsense", "must return the examples of every client"),
        ("absent", "unknown 'absent'"),
    ):
        with pytest.raises(ValueError, match=message):
            partition(f"{HERE}:{name}", LABELS, 2, seed=0)
    with pytest.raises(ValueError, match="made 2 clients, expected 3"):
        partition(f"{HERE}:lose", LABELS, 3, seed=0, allow_unused=True)
    with pytest.raises(ValueError, match="unknown 'shaft'"):
        partition(f"{HERE}:halves", LABELS, 2, seed=0, shaft=1)


def recipe(**changes):
    settings = {"data": {"name": "digits"}, "partition": {"name": "dirichlet_total", "alpha": 1.0}}
    settings["partition"] |= changes.pop("partition", {})
    return config.validate({**settings, **changes})


def test_the_seed_of_the_partition_apart_from_that_of_the_run():
    data = load("digits")
    shared = [draw_partition(recipe(seed=seed, partition={"seed": 7}), data) for seed in (0, 1)]
    assert shared[0].digest == shared[1].digest
    own = [draw_partition(recipe(seed=seed), data) for seed in (7, 1)]
    assert own[0].digest == shared[0].digest != own[1].digest
    assert recipe(seed=7).digest != recipe(seed=7, partition={"seed": 7}).digest
    plain = recipe(seed=3)
    assert "seed" not in json.loads(json.dumps(plain.partition.settings))
    assert config.validate(plain.model_dump(exclude_none=True)).digest == plain.digest


def test_clients_that_are_users_are_tested_on_their_own_examples():
    settings = {
        "data": {"name": "brain"},
        "partition": {"name": "natural", "clients": 12},
        "model": {"name": f"{HERE}:pixelwise"},
        "rounds": {"participants": 2},
    }
    federation = Federation(config.validate(settings))
    data = federation.dataset
    assert federation.users_tests is not None
    for client, name in enumerate(data.users.names):
        assert {data.users.names[one] for one in data.users.index[federation.client_indices[client]]} == {name}
        own = federation.users_tests[client]
        assert len(own)
        assert {data.test_users.names[one] for one in data.test_users.index[own]} == {name}
    assert sorted(federation.users_tests.flat.tolist()) == list(range(36))


def pixelwise(classes: int, channels: int):
    from torch import nn

    return nn.Conv2d(channels, classes, 1)
