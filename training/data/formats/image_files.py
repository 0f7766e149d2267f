"""Images in files: decoded when they are asked for, the latest kept in memory up to a number of bytes."""

from __future__ import annotations

import hashlib
import io
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from training.data.formats.files import list_some

IGNORED = 255  # the label of pixels that do not count
MOST_PIXELS = 2**27  # of one image; more is a file that was made to fill the memory
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Decoding:
    """How a file becomes an array of fixed height and width.

    height, width: of the array.
    fit: what becomes of an image of another size: "exact" refuses it, "stretch" resizes the whole image (bilinear;
        label maps: nearest pixel), "crop" resizes the square in its middle (bicubic).
    crop: share of the shorter side that the square has.
    """

    height: int
    width: int
    fit: Literal["exact", "stretch", "crop"] = "exact"
    crop: float = 1.0


class ImageFiles:
    """A store of colour images (N, 3, H, W) uint8; grey images get three equal channels.

    root: folder of the files.
    names: of the files, relative to it.
    decoding: what becomes of a file.
    cache: bytes of decoded images that stay in memory.

    ValueError where files are missing; a file that cannot be decoded is told when it is read.
    """

    channels: tuple[int, ...] = (3,)
    dtype = torch.uint8

    def __init__(self, root: Path, names: Sequence[str], decoding: Decoding, cache: int) -> None:
        self.root, self.names, self.decoding = root, list(names), decoding
        self.digest = self._compute_digest(find_sizes(root, self.names))
        self.shape = (len(self.names), *self.channels, decoding.height, decoding.width)
        self._most = cache // int(np.prod(self.shape[1:]))  # images that are kept
        self._kept: OrderedDict[int, Bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, positions: Tensor) -> Tensor:
        found = np.empty((len(positions), *self.shape[1:]), np.uint8)
        for place, position in enumerate(positions.tolist()):
            found[place] = self._get(position)
        return torch.from_numpy(found)

    def _get(self, position: int) -> Bytes:
        try:
            image = self._kept[position]
            self._kept.move_to_end(position)
        except KeyError:  # not there, or another thread has just dropped it
            image = self._decode(self.root / self.names[position])
            self._kept[position] = image
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return image

    def _decode(self, path: Path) -> Bytes:
        return decode_image(path, self.decoding)

    def _compute_digest(self, sizes: Sequence[int]) -> str:
        total = hashlib.sha256(f"{type(self).__name__} {self.decoding}".encode())
        for name, size in zip(self.names, sizes, strict=True):
            total.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
        return total.hexdigest()


class LabelMaps(ImageFiles):
    """A store of label maps (N, H, W) uint8, whose pixels are class numbers or 255.

    root, names, decoding, cache: as for images.
    classes: the class of every number that may occur in a file.
    """

    channels = ()

    def __init__(
        self, root: Path, names: Sequence[str], decoding: Decoding, cache: int, classes: Mapping[int, int]
    ) -> None:
        self._table = np.full(256, -1, np.int16)
        for number, label in {IGNORED: IGNORED, **classes}.items():
            self._table[number] = label
        super().__init__(root, names, decoding, cache)

    def _decode(self, path: Path) -> Bytes:
        numbers = decode_map(path, self.decoding)
        labels = self._table[numbers]
        if labels.min(initial=0) < 0:
            known = np.flatnonzero(self._table >= 0)
            raise ValueError(
                f"{path}: pixels have the label {int(numbers[labels < 0][0])}; the labels of this data set are "
                f"{known[0]} to {known[known < IGNORED][-1]}, and {IGNORED} for pixels that do not count"
            )
        return labels.astype(np.uint8)

    def _compute_digest(self, sizes: Sequence[int]) -> str:
        return hashlib.sha256(super()._compute_digest(sizes).encode() + self._table.tobytes()).hexdigest()


def find_sizes(root: Path, names: Sequence[str]) -> list[int]:
    """Find the sizes of files in bytes, or raise ValueError that says which are missing.

    root: their folder.
    names: of the files, relative to it.
    """
    sizes, missing = [], []
    for name in names:
        try:
            sizes.append(os.stat(root / name).st_size)
        except (OSError, ValueError):  # ValueError: a name that no file can have
            missing.append(name)
    if missing:
        raise ValueError(f"{root} lacks {len(missing):,} of {len(names):,} files: {list_some(missing)}")
    return sizes


def decode_image(path: Path, decoding: Decoding) -> Bytes:
    """Decode an image file into (3, H, W), or raise ValueError that names it.

    path: of the file.
    decoding: the height and width, and what becomes of images of another size.
    """
    with _open(path) as image:
        fitted = _fit(image, decoding, path, Image.Resampling.BILINEAR, colour=True)
        pixels: Bytes = np.ascontiguousarray(np.asarray(fitted, np.uint8).transpose(2, 0, 1))
    return pixels


def decode_map(path: Path, decoding: Decoding) -> Bytes:
    """Decode an image file of one channel into (H, W), or raise ValueError that names it.

    path: of the file.
    decoding: the height and width, and what becomes of maps of another size.
    """
    with _open(path) as image:
        if image.mode not in ("L", "P"):
            raise ValueError(f"{path}: a label map has one channel of bytes, this image is of mode {image.mode}")
        fitted = _fit(image, decoding, path, Image.Resampling.NEAREST, colour=False)
        return np.array(fitted, np.uint8)


def _open(path: Path) -> Image.Image:
    """Open an image and decode all of it."""
    try:
        image = Image.open(io.BytesIO(path.read_bytes()))
        if image.width * image.height > MOST_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels are too many")
        image.load()
    except FileNotFoundError:
        raise ValueError(f"{path} was there when the data set was opened, and is gone") from None
    except MemoryError:
        raise
    except Exception as error:  # decoders fail in many ways: OSError, SyntaxError, struct.error, ...
        reason = " ".join(str(error).replace(str(path), "it").split())[:200] or type(error).__name__
        reason = "no known format" if isinstance(error, UnidentifiedImageError) else reason
        raise ValueError(f"{path} cannot be decoded as an image ({reason}). Get it again") from None
    return image


def _fit(image: Image.Image, decoding: Decoding, path: Path, filter: Image.Resampling, *, colour: bool) -> Image.Image:
    """Bring a decoded image to its height and width."""
    wanted = (decoding.width, decoding.height)
    converted = image.convert("RGB") if colour and image.mode != "RGB" else image
    if image.size == wanted and decoding.crop == 1:
        return converted
    if decoding.fit == "exact":
        raise ValueError(
            f"{path} has {image.width} x {image.height} pixels, expected {wanted[0]} x {wanted[1]} like all others"
        )
    if decoding.fit == "stretch":
        return converted.resize(wanted, filter)
    side = decoding.crop * min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    box = (left, top, left + side, top + side)
    return converted.resize(wanted, Image.Resampling.BICUBIC if colour else filter, box=box)
