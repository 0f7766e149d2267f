"""One hostile input for one reader, and the judgement of what the reader made of it."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import xarray as xr

from training.console.messages import printable

SLOW = 5.0  # seconds of computing for one input


@dataclass(frozen=True)
class Case:
    """Files that are put into a sound directory before a reader is called.

    reader: its name among those of the format.
    files: new content by path, relative to the directory.
    forged: hashes were made anew, so that another value is what was asked for; it must still not cause an accident.
    words: further arguments of the reader.
    """

    reader: str
    files: Mapping[str, bytes]
    forged: bool = False
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reader:
    """A reader as commands use it.

    read: takes the directory and a case's words; returns a value, or raises ValueError.
    protected: a change that is not forged must be noticed.
    lines: that a refusal may have.
    may_differ: values that are right although they differ from the sound one: (sound, found) -> bool.
    """

    read: Callable[..., Any]
    protected: bool = True
    lines: int = 1
    may_differ: Callable[[Any, Any], bool] = lambda sound, found: False


class Format(Protocol):
    """What is fuzzed under one name."""

    readers: Mapping[str, Reader]

    def case(self, rng: random.Random) -> Case: ...


class RefusedError(ValueError):
    """Problems that a reader returned as a list."""


class Bench:
    """A sound directory in which cases of one format are tried, one after the other."""

    def __init__(self, folder: Path, format: Format) -> None:
        self.folder, self.format = folder, format
        self._sound: dict[str, Any] = {}

    def run(self, case: Case) -> tuple[str, str]:
        """What became of a case, and more about it: same, other or refused, or a fault."""
        reader = self.format.readers[case.reader]
        if case.reader not in self._sound:
            self._sound[case.reader] = reader.read(self.folder)
        before = {name: _content(self.folder / name) for name in case.files}
        start = time.process_time()
        try:
            for name, data in case.files.items():
                (self.folder / name).write_bytes(data)
            outcome = self._judge(case, reader)
        finally:
            for name, sound in before.items():
                _restore(self.folder / name, sound)
        spent = time.process_time() - start
        return ("slow", f"{spent:.1f} s") if spent > SLOW else outcome

    def _judge(self, case: Case, reader: Reader) -> tuple[str, str]:
        try:
            found = reader.read(self.folder, *case.words)
        except ValueError as error:
            return self._judge_message(case, reader, error)
        except MemoryError as error:
            return "memory", f"MemoryError: {str(error)[:300]}"
        except Exception as error:
            return "uncaught", f"{type(error).__name__}: {str(error)[:300]}"
        sound = self._sound[case.reader]
        if digest(found) == digest(sound) or reader.may_differ(sound, found):
            return "same", ""
        if case.forged or not reader.protected:
            return "other", ""
        return "different", "another value was read, and no hash noticed"

    def _judge_message(self, case: Case, reader: Reader, error: ValueError) -> tuple[str, str]:
        message = printable(error)  # as the command does
        lines = message.split("\n")
        names = [Path(name).name for name in case.files]
        if "Unable to allocate" in message or "MemoryError" in message:
            return "memory", message[:300]
        if type(error).__module__ == "builtins" and isinstance(error, UnicodeError):
            return "uncaught", f"{type(error).__name__}: {message[:300]}"
        if len(lines) > reader.lines or not message.strip():
            return "unclear", f"{len(lines)} lines: {message[:300]!r}"
        if not any(name in message for name in (*names, str(self.folder), *(["--set"] if case.words else []))):
            return "unclear", f"names neither the file nor the setting: {message[:300]!r}"
        return "refused", message[:300]


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _restore(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(content)


def digest(value: Any) -> str:
    """A hash of any value that readers return, whatever it is made of."""
    found = hashlib.sha256()
    _feed(found, value)
    return found.hexdigest()


def _feed(found: Any, value: Any) -> None:
    found.update(f"<{type(value).__name__}>".encode())
    if isinstance(value, torch.Tensor):
        _feed(found, value.detach().contiguous().numpy())
    elif isinstance(value, np.ndarray):
        found.update(f"{value.dtype} {value.shape}".encode())
        found.update(repr(value.tolist()).encode() if value.dtype == object else value.tobytes())
    elif isinstance(value, xr.Dataset):
        variables = {str(name): (one.dims, np.asarray(one.values), one.attrs) for name, one in value.variables.items()}
        _feed(found, {**variables, "attributes": dict(value.attrs)})
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _feed(found, {field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    elif isinstance(value, Mapping):
        for key, part in value.items():
            _feed(found, key)
            _feed(found, part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _feed(found, part)
    else:
        found.update(repr(value).encode())
    found.update(b";")
