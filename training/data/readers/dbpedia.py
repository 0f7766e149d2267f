"""DBpedia-14: titles and abstracts of articles in fourteen classes."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch

from landscape import rng
from training.data.formats.files import Published, obtain
from training.data.formats.texts import build_vocabulary, encode_words
from training.data.readers.contents import Contents

ARCHIVE = Published(
    "dbpedia_csv.tar.gz",
    "https://drive.google.com/uc?export=download&id=0Bz8a_Dbh9QhbQ2Vic1kxMmZZQ1k",
    "dca7b1ae12b1091090db52aa7ec5ca64",
)
CLASSES = (
    "Company",
    "EducationalInstitution",
    "Artist",
    "Athlete",
    "OfficeHolder",
    "MeanOfTransportation",
    "Building",
    "NaturalPlace",
    "Village",
    "Animal",
    "Plant",
    "Album",
    "Film",
    "WrittenWork",
)


def read_dbpedia(
    root: Path,
    download: bool,
    check: bool,
    *,
    vocabulary: int,
    length: int,
    train_per_class: int,
    test_per_class: int,
    seed: int,
) -> Contents:
    """Read DBpedia-14: 560,000 + 70,000 texts, or an equal number of each class.

    root: the folder that holds dbpedia_csv, or its archive.
    download: whether to download it.
    check: whether the archive's checksum is compared.
    vocabulary: the most frequent words of the training texts that are known, with padding and the unknown word.
    length: words of a text; longer ones are cut off.
    train_per_class, test_per_class: texts of each class, drawn at random; 0 for all.
    seed: of that draw.

    A text is its title followed by its content, in lower case, without punctuation.
    """
    folder = root / "dbpedia_csv"
    obtain("dbpedia14", folder, ["train.csv", "test.csv"], ARCHIVE, download=download, check=check)
    parts = []
    for part, per_class in (("train", train_per_class), ("test", test_per_class)):
        texts, labels = _read_part(folder / f"{part}.csv")
        if per_class:
            chosen = _draw(folder / f"{part}.csv", labels, per_class, seed, part)
            texts, labels = [texts[one] for one in chosen], labels[chosen]
        parts.append((texts, labels))
    (train_texts, train_labels), (test_texts, test_labels) = parts
    known = build_vocabulary(train_texts, vocabulary)
    return Contents(
        (torch.from_numpy(encode_words(train_texts, known, length)), torch.from_numpy(train_labels)),
        (torch.from_numpy(encode_words(test_texts, known, length)), torch.from_numpy(test_labels)),
        len(CLASSES),
        CLASSES,
        vocabulary=vocabulary,
    )


def _read_part(path: Path) -> tuple[list[str], np.ndarray]:
    """Read texts and labels 0..13."""
    texts, labels = [], []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for line, row in enumerate(csv.reader(file, strict=True), start=1):
                if len(row) != 3:
                    raise ValueError(f"{path}, line {line}: {len(row)} cells, expected class, title and content")
                if not (row[0].isascii() and row[0].isdigit() and 1 <= int(row[0][:9]) <= len(CLASSES)):
                    raise ValueError(
                        f"{path}, line {line}: the class must lie in 1..{len(CLASSES)}, got {row[0][:40]!r}"
                    )
                texts.append(f"{row[1].strip()} {row[2].strip()}")
                labels.append(int(row[0]) - 1)
    except csv.Error as error:
        raise ValueError(f"{path} is not readable as CSV ({error})") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8 ({error.reason})") from None
    if not texts:
        raise ValueError(f"{path} is empty")
    return texts, np.asarray(labels, np.int64)


def _draw(path: Path, labels: np.ndarray, per_class: int, seed: int, part: str) -> np.ndarray:
    """Draw equally many texts of each class; returns their places in increasing order."""
    drawn = []
    for label in range(len(CLASSES)):
        own = np.flatnonzero(labels == label)
        if len(own) < per_class:
            raise ValueError(f"{path} has {len(own):,} texts of class {CLASSES[label]}, fewer than {per_class:,}")
        drawn.append(rng.numpy_generator(seed, "dbpedia14", part, label).choice(own, per_class, replace=False))
    return np.sort(np.concatenate(drawn))
