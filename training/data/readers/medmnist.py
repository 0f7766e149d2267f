"""PathMNIST and TissueMNIST: one .npz with six arrays each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from training.data.formats.files import ELSEWHERE, Published, fetch, verify
from training.data.readers.contents import Contents
from training.storage.npz import read_npz

HOST = "https://zenodo.org/records/10519652/files"
FILES = {
    "pathmnist": Published("pathmnist.npz", f"{HOST}/pathmnist.npz?download=1", "a8b06965200029087d5bd730944a56c1"),
    "tissuemnist": Published(
        "tissuemnist.npz", f"{HOST}/tissuemnist.npz?download=1", "ebe78ee8b05294063de985d821c1c34b"
    ),
}
CLASSES = {
    "pathmnist": (
        "adipose",
        "background",
        "debris",
        "lymphocytes",
        "mucus",
        "smooth muscle",
        "normal colon mucosa",
        "cancer-associated stroma",
        "colorectal adenocarcinoma epithelium",
    ),
    "tissuemnist": (
        "collecting duct, connecting tubule",
        "distal convoluted tubule",
        "glomerular endothelial cells",
        "interstitial endothelial cells",
        "leukocytes",
        "podocytes",
        "proximal tubule segments",
        "thick ascending limb",
    ),
}


def read_medmnist(name: str, root: Path, download: bool, check: bool, validation: bool, rgb: bool) -> Contents:
    """Read PathMNIST or TissueMNIST.

    name: pathmnist or tissuemnist.
    root: the folder that holds the .npz.
    download: whether to download it.
    check: whether its checksum is compared.
    validation: whether the validation images belong to the training set (FedSoL); else they are not used.
    rgb: whether grey images get three equal channels (FedSoL).
    """
    published = FILES[name]
    path = root / published.file
    if not path.is_file() and download:
        fetch(name, path, published)
    if not path.is_file():
        raise ValueError(
            f"{name}: no {path}. Get {published.describe()}, add --download (download=True), or {ELSEWHERE}"
        )
    if check:
        verify(path, published)
    arrays = read_npz(path)
    parts = ["train", "val"] if validation else ["train"]
    pairs = []
    for split in (parts, ["test"]):
        found = [_read_part(path, arrays, part, len(CLASSES[name])) for part in split]
        images = np.concatenate([images for images, _ in found])
        if rgb and images.shape[1] == 1:
            images = np.repeat(images, 3, axis=1)
        pairs.append((torch.from_numpy(images), torch.from_numpy(np.concatenate([labels for _, labels in found]))))
    return Contents(pairs[0], pairs[1], len(CLASSES[name]), CLASSES[name])


def _read_part(path: Path, arrays: dict[str, np.ndarray], part: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Read the images (N, C, H, W) and labels (N,) of one part, after checking them."""
    images, labels = arrays.get(f"{part}_images"), arrays.get(f"{part}_labels")
    if images is None or labels is None:
        raise ValueError(f"{path} lacks {part}_images or {part}_labels; it has {', '.join(sorted(arrays)[:8])}")
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3):
        raise ValueError(
            f"{path}: {part}_images must be bytes of shape (N, H, W) or (N, H, W, 3), got {images.dtype} {images.shape}"
        )
    if labels.shape not in ((len(images), 1), (len(images),)) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: {part}_labels must be whole numbers ({len(images)}, 1), got {labels.dtype} {labels.shape}"
        )
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"{path}: {part}_labels must lie in 0..{classes - 1}, got {labels.min()} to {labels.max()}")
    channels_last = images if images.ndim == 4 else images[..., None]
    return np.ascontiguousarray(channels_last.transpose(0, 3, 1, 2)), labels.reshape(-1).astype(np.int64)
