"""Tiny data sets in the published layouts, as the authors' archives unpack."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
from PIL import Image

WNIDS = ("n02124075", "n01443537", "n04067472")  # not sorted, like wnids.txt
CITIES = {"aachen": 3, "bochum": 2}
DOMAINS = ("T01_CN_A", "T02_HRN_B")


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(path: Path, pixels: np.ndarray, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def write_tiny_imagenet(root: Path) -> Path:
    """Three classes of four JPEGs, one of them grey, and a validation table of six columns."""
    folder = root / "tiny-imagenet-200"
    folder.mkdir(parents=True)
    (folder / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (folder / "words.txt").write_text("n01443537\tgoldfish, Carassius auratus\nn02124075\tEgyptian cat\nn9\tother\n")
    for key, wnid in enumerate(WNIDS):
        for number in range(4):
            shape = (64, 64) if (key, number) == (1, 2) else (64, 64, 3)
            save(folder / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", draw(10 * key + number, *shape))
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t63\t63\n")
    rows = []
    for number in range(5):
        save(folder / "val" / "images" / f"val_{number}.JPEG", draw(100 + number, 64, 64, 3))
        rows.append(f"val_{number}.JPEG\t{WNIDS[number % 3]}\t0\t32\t44\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(rows))
    return folder


def write_cinic10(root: Path) -> Path:
    classes = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    for part, key in (("train", 0), ("valid", 1), ("test", 2)):
        for label, name in enumerate(classes):
            for number, file in enumerate((f"cifar10-{part}-{label}.png", f"n0{label}_{part}7.png")):
                path = root / "CINIC-10" / part / name / file
                save(path, draw(100 * key + 10 * label + number, 32, 32, 3))
    (root / "CINIC-10" / "README.md").write_text("CINIC-10")
    return root / "CINIC-10"


def write_medmnist(root: Path, name: str, grey: bool, classes: int) -> dict[str, np.ndarray]:
    arrays = {}
    for key, (part, count) in enumerate((("train", 7), ("val", 3), ("test", 4))):
        arrays[f"{part}_images"] = draw(key, count, 28, 28, *(() if grey else (3,)))
        arrays[f"{part}_labels"] = (np.arange(count) % classes).astype(np.uint8)[:, None]
    np.savez_compressed(root / f"{name}.npz", **arrays)
    return arrays


def write_dbpedia(root: Path) -> Path:
    """Rows grouped by class, with a comma and a doubled quote inside quotes."""
    folder = root / "dbpedia_csv"
    folder.mkdir(parents=True)
    for part, each in (("train", 3), ("test", 1)):
        with (folder / f"{part}.csv").open("w", newline="") as file:
            for label in range(1, 15):
                for number in range(each):
                    content = f' Word{label} said ""so"", in {part} {number}. '
                    file.write(f'{label},"Title{number}","{content}"\n')
    (folder / "classes.txt").write_text("Company\n")
    return folder


def write_table(path: Path, header: list[str], rows: list[list[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def write_landmarks(root: Path, name: str = "landmarks", nested: bool = True) -> Path:
    """Photographs of several sizes by three authors, and test images of nobody."""
    folder = root / {"landmarks": "landmarks-user-160k", "gld23k": "gld23k"}[name]
    both = (("federated_train.csv", "test.csv"), ("mini_gld_train_split.csv", "mini_gld_test.csv"))
    files = dict(zip(("landmarks", "gld23k"), both, strict=True))
    rows: list[list[object]] = []
    ids = ("0123456789abcdef", "00ff456789abcdef", "aaaa456789abcdef", "f" * 16)
    for key, (user, image, label) in enumerate(zip(("12", "7", "12", "abc"), ids, (0, 2, 1, 0), strict=True)):
        rows.append([user, image, label])
        place = f"train/{image[0]}/{image[1]}/{image[2]}" if nested else "images"
        save(folder / place / f"{image}.jpg", draw(key, 40 + 10 * key, 60, 3))
    tests = []
    for key, image in enumerate(("1" * 16, "2" * 16)):
        tests.append([image, key])
        place = f"train/{image[0]}/{image[1]}/{image[2]}" if nested else "images"
        save(folder / place / f"{image}.jpg", draw(50 + key, 64, 48, 3))
    write_table(folder / files[name][0], ["user_id", "image_id", "class"], rows)
    write_table(folder / files[name][1], ["image_id", "class"], tests)
    return folder


def write_split(path: Path, users: dict[str, tuple[list[object], list[object]]], data: str = "user_data") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = [int(user) if user.isdigit() else user for user in users]
    content = {
        "users": numbers,
        "num_samples": [len(x) for x, _ in users.values()],
        data: {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    path.write_text(json.dumps(content))


def write_cityscapes(root: Path) -> None:
    """Two cities for training, one for testing, label numbers with void ones, and a federated split in two files."""
    scenes: dict[str, list[str]] = {}
    for part, cities in (("train", CITIES), ("val", {"lindau": 2})):
        for city, count in cities.items():
            for number in range(count):
                stem = f"{part}/{city}/{city}_00000{number}_000019"
                key = len(scenes) * 10 + number
                save(root / "leftImg8bit" / f"{stem}_leftImg8bit.png", draw(key, 64, 128, 3))
                save(root / "gtFine" / f"{stem}_gtFine_labelIds.png", draw(key, 64, 128) % 34)
                save(root / "gtFine" / f"{stem}_gtFine_color.png", draw(key, 64, 128, 3))
                scenes.setdefault(city, []).append(stem)

    def name(stems: list[str]) -> tuple[list[object], list[object]]:
        return [f"{one}_leftImg8bit.png" for one in stems], [f"{one}_gtFine_labelIds.png" for one in stems]

    folder = root / "splits" / "heterogeneous"
    write_split(folder / "train" / "all_data_0.json", {"aachen0": name(scenes["aachen"][:2])})
    write_split(folder / "train" / "all_data_1.json", {"bochum0": name(scenes["bochum"])})
    write_split(folder / "test" / "all_data_0.json", {"test_user": name(scenes["lindau"])})


def write_idda(root: Path) -> None:
    """Two domains, and a test set of a seen and of an unseen one."""
    files = {}
    for key, domain in enumerate((*DOMAINS, "T07_CN_A")):
        for number in range(3):
            image, labels = (f"{domain}/{kind}/{number}_{domain}" for kind in ("RGB", "Semantic"))
            save(root / "IDDAsmall" / f"{image}.jpg", draw(key * 10 + number, 108, 192, 3))
            save(root / "IDDAsmall" / f"{labels}.png", draw(key * 10 + number, 108, 192) % 21)
            files[domain, number] = (f"{image}.jpg", f"{labels}.png")
    folder = root / "country"
    users = {domain: tuple(map(list, zip(files[domain, 0], files[domain, 1], strict=True))) for domain in DOMAINS}
    write_split(folder / "train" / "idda_train_clients.json", users)  # type: ignore[arg-type]
    tests = {
        "test_user_diff_domain": tuple([one] for one in files["T07_CN_A", 0]),
        "test_user_same_domain": tuple([one] for one in files["T01_CN_A", 2]),
    }
    write_split(folder / "test" / "idda_test_clients.json", tests)  # type: ignore[arg-type]


def write_femnist(root: Path, tested: tuple[str, ...] = ("f0000_14", "f0001_41")) -> dict[str, np.ndarray]:
    drawings = {"f0000_14": draw(0, 3, 784), "f0001_41": draw(1, 2, 784)}
    for number, (writer, own) in enumerate(drawings.items()):
        labels: list[object] = [60 + number, *range(len(own) - 1)]
        write_split(root / "femnist/data/train" / f"all_data_{number}.json", {writer: ((own / 255).tolist(), labels)})
    tests = {writer: ((draw(5, 1, 784) / 255).tolist(), [3]) for writer in tested}
    write_split(root / "femnist/data/test/all_data_0.json", tests)  # type: ignore[arg-type]
    return drawings


def write_shakespeare(root: Path) -> None:
    text = "To be, or not to be: that is the question: Whether 'tis nobler in the mind to suffer The slings\n"
    windows = [text[start : start + 80] for start in range(3)]
    following = [text[start + 80] for start in range(3)]
    users = {"THE_TRAGEDY_HAMLET": (windows, following), "THE_TRAGEDY_OPHELIA": (windows[:1], following[:1])}
    write_split(root / "shakespeare/data/train/all_data_niid.json", users)  # type: ignore[arg-type]
    tests = dict.fromkeys(users, (windows[2:], following[2:]))
    write_split(root / "shakespeare/data/test/all_data_niid.json", tests)  # type: ignore[arg-type]


def write_corrupted_cifar(root: Path, labels: np.ndarray, kinds: tuple[str, ...] = ("fog", "contrast")) -> Path:
    folder = root / "CIFAR-10-C"
    folder.mkdir(parents=True)
    np.save(folder / "labels.npy", np.tile(labels, 5))
    for key, kind in enumerate(kinds):
        np.save(folder / f"{kind}.npy", draw(key, 5 * len(labels), 32, 32, 3))
    return folder
