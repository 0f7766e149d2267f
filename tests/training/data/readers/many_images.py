"""python -m tests.training.data.readers.many_images FOLDER: memory of a federation of 164,172 images that are files.

Writes the tables of Landmarks-User-160k with made-up users and classes, and as many names of files (hard links to a few
JPEGs of 341 x 256 pixels, since only names, sizes and decoding cost anything), then trains a round of 50 clients.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from tests.benchmarks.worker import peak_bytes
from training import config
from training.data.readers.landmarks import SPLITS
from training.engine.federation import Federation
from training.executors.serial import Serial

IMAGES, TESTS, USERS, CLASSES, PICTURES = 164_172, 200, 1_262, 2_028, 50


def write(root: Path) -> None:
    """Write tables and images, unless they are there."""
    split = SPLITS["landmarks"]
    folder = root / split.folder
    if (folder / split.test.file).is_file():
        return
    generator = np.random.default_rng(0)
    pictures = root / "pictures"
    pictures.mkdir(parents=True)
    for number in range(PICTURES):
        small = generator.integers(0, 256, (16, 21, 3), dtype=np.uint8)
        Image.fromarray(small).resize((341, 256), Image.Resampling.BICUBIC).save(pictures / f"{number}.jpg")
    for file, count in ((split.train.file, IMAGES), (split.test.file, TESTS)):
        rows = []
        for number in range(count):
            name = f"{number * 2654435761 % 2**32:08x}{len(file):02x}{number:06x}"
            place = folder / "train" / name[0] / name[1] / name[2]
            place.mkdir(parents=True, exist_ok=True)
            os.link(pictures / f"{number % PICTURES}.jpg", place / f"{name}.jpg")
            user = [str(number * USERS // count)] if count == IMAGES else []
            rows.append(",".join([*user, name, str(number % CLASSES)]))
        header = "user_id,image_id,class" if count == IMAGES else "image_id,class"
        (folder / file).write_text("\n".join([header, *rows]) + "\n")


def main() -> None:
    root = Path(sys.argv[1])
    write(root)
    torch.set_num_threads(1)
    began = time.perf_counter()
    settings = {
        "data": {"name": "landmarks", "root": str(root), "size": 224, "cache": 512},
        "partition": {"name": "natural", "clients": USERS},
        "model": {"name": "tests.training.data.readers.many_images:pooled"},
        "rounds": {"count": 1, "participants": 50},
        "evaluation": {"every": 100, "last": 1},
    }
    federation = Federation(config.validate(settings))
    opened, state, executor = time.perf_counter() - began, federation.begin(), Serial(federation.trainer)
    after = peak_bytes()
    began = time.perf_counter()
    _, record, _ = federation.advance(state, executor)
    spent = time.perf_counter() - began
    read = sum(len(federation.client_indices[client]) for client in federation.draw_cohort(0))
    found = {"seconds to open": opened, "peak bytes when open": after, "images of the round": read}
    print(
        json.dumps({**found, "seconds of the round": spent, "peak bytes": peak_bytes(), "loss": record["train_loss"]})
    )


def pooled(classes: int, channels: int) -> nn.Module:
    """A network that costs next to nothing: mean colours, one linear layer."""
    return torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(16 * channels, classes)
    )


if __name__ == "__main__":
    main()
