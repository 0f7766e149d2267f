"""Read a pickle of plain values without running code that it contains.

CIFAR's batches are Python pickles, and a pickle can execute code. They are read by an unpickler that knows byte
strings, lists, dictionaries, numbers and one stand-in for arrays of bytes, and refuses every other name in the file.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from training.storage.verified_files import Json


class _Bytes:
    """Stands in for numpy.ndarray in a pickle: takes unsigned bytes and a shape, and calls nothing."""

    __slots__ = ("array",)

    def __init__(self, *_: object) -> None:
        self.array = np.zeros(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, _Kind) or kind.code != "u1" or fortran:
            raise pickle.UnpicklingError("it holds an array that is not of plain unsigned bytes")
        self.array = np.frombuffer(raw.encode("latin1") if isinstance(raw, str) else raw, np.uint8).reshape(shape)


class _Kind:
    """Stands in for numpy.dtype."""

    __slots__ = ("code",)

    def __init__(self, code: object, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass  # byte order and alignment, which single bytes do not have


class _Unpickler(pickle.Unpickler):
    # stand-ins, not NumPy's own: no code but the dozen lines above ever sees what the file says
    stand_ins = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _Bytes,
        ("numpy._core.multiarray", "_reconstruct"): _Bytes,  # its name since NumPy 2
        ("numpy", "ndarray"): _Bytes,
        ("numpy", "dtype"): _Kind,
    }

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in self.stand_ins:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which was refused and not run")
        return self.stand_ins[module, name]


def unpickle(path: Path) -> Json:
    """Read a dictionary of plain values and byte arrays from a pickle.

    path: of the file. ValueError if it is damaged, or asks for anything beyond such values.
    """
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="latin1").load()  # latin1: Python 2 wrote bytes as strings
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it holds a {type(content).__name__}, not a dictionary")
        return {str(key): value.array if isinstance(value, _Bytes) else value for key, value in content.items()}
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can fail in nearly any way
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not one of CIFAR's batches: {reason}. Delete it and download it again") from error
