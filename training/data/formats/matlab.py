"""Read numeric arrays from MATLAB 5 files in plain Python: scipy's reader crashes on some damaged files."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADER = 128  # bytes before the first variable
LITTLE = b"IM"  # how a little-endian file ends its header
KINDS = {1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
MATRIX, PACKED = 14, 15
NUMERIC = range(6, 16)  # classes of arrays; others are text, cells, structures
COMPLEX = 0x800
MOST = 2**32  # bytes that a packed variable may unpack to


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read every numeric array of a file.

    path: of the file. ValueError if it is damaged or not a MATLAB 5 file.
    Returns the arrays by name.
    """
    data = memoryview(path.read_bytes())
    if len(data) < HEADER or data[HEADER - 2 : HEADER] != LITTLE:
        raise ValueError("not a little-endian MATLAB 5 file")
    arrays: dict[str, NDArray[Any]] = {}
    for kind, content in _read_elements(data[HEADER:]):
        if kind == PACKED:
            kind, content = next(_read_elements(_unpack(content)), (0, content))
        if kind == MATRIX:
            arrays.update(_read_variable(content))
    return arrays


def _unpack(content: memoryview) -> memoryview:
    packed = zlib.decompressobj()
    try:
        data = packed.decompress(content, MOST)
    except zlib.error as error:
        raise ValueError(f"a variable cannot be unpacked: {error}") from None
    if not packed.eof:
        raise ValueError("a variable ends early, or is too large")
    return memoryview(data)


def _read_elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield kind and content of the elements that follow each other."""
    start = 0
    while start < len(data):
        if len(data) - start < 8:
            raise ValueError("an element ends early")
        kind, size = (int.from_bytes(data[start + half : start + half + 4], "little") for half in (0, 4))
        begin = start + 8
        if kind >> 16:  # up to four bytes, which lie in the tag
            kind, size, begin = kind & 0xFFFF, kind >> 16, start + 4
        content = data[begin : begin + size]
        if len(content) != size or (begin == start + 4 and size > 4):
            raise ValueError("an element ends early")
        yield kind, content
        start = begin + (size if kind == PACKED else -(-size // 8) * 8 if begin == start + 8 else 4)


def _read_variable(content: memoryview) -> dict[str, NDArray[Any]]:
    """Read the array of a variable by its name; nothing if it is not numeric."""
    elements = list(_read_elements(content))
    if len(elements) < 4 or len(elements[0][1]) < 4:
        raise ValueError("a variable has no values")
    flags = int.from_bytes(elements[0][1][:4], "little")
    if flags & 0xFF not in NUMERIC or flags & COMPLEX:
        return {}
    shape, values = (_read_numbers(*element) for element in (elements[1], elements[3]))
    lengths = [int(length) for length in shape]
    if not 2 <= len(lengths) <= 32 or min(lengths) < 0 or math.prod(lengths) != len(values):
        raise ValueError("a variable has another number of values than its shape says")
    return {bytes(elements[2][1]).decode("ascii", "replace"): values.reshape(lengths, order="F")}


def _read_numbers(kind: int, content: memoryview) -> NDArray[Any]:
    if kind not in KINDS or len(content) % np.dtype(KINDS[kind]).itemsize:
        raise ValueError("a variable holds something other than numbers")
    return np.frombuffer(content, KINDS[kind])
