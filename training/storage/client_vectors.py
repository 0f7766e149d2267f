"""The vectors that clients keep from round to round: in memory up to a budget, beyond it in a file without a name.

    shelf = Shelf(run, budget=parse_bytes("2G"), on_message=print)
    clients = ClientVectors(shelf)
    clients[7] = {"control": torch.zeros(d)}
    clients[7]["control"]  # from memory, or read now

Where a vector is changes no bit. The file is only an extension of memory: it disappears with the process, however that
ends, and a run resumes from its checkpoints.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from landscape.runtime.memory import allowance
from training.storage.atomic_files import DamagedError, explain_write_errors
from training.storage.tensors import FloatDtype, Floats

STEP = 2**28  # bytes after which free memory is read again, where no budget is given


class Record:
    """One vector on a shelf; its room is free again as soon as nothing refers to it.

    shelf: that holds it. array: the numbers, if they are in memory. start: where they begin in the shelf's file, if
    they are there. dtype, shape: of the array.
    """

    __slots__ = ("_array", "_shelf", "_start", "dtype", "nbytes", "shape")

    def __init__(self, shelf: Shelf, array: Floats | None, start: int, dtype: FloatDtype, shape: tuple[int, ...]):
        self._shelf, self._array, self._start = shelf, array, start
        self.dtype, self.shape = dtype, shape
        self.nbytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))

    def read(self) -> Floats:
        """The numbers, from memory or from the file."""
        if self._array is not None:
            return self._array
        array = np.empty(self.shape, self.dtype)
        self._shelf.fill(array, self._start)
        return array

    def __del__(self) -> None:
        self._shelf.release(self.nbytes, None if self._array is not None else self._start)


class Shelf:
    """Room for vectors: memory up to a budget, then a file.

    folder: where the file is made when it is needed; where that is not allowed, in the system's folder for temporary
        files. None: that folder at once.
    budget: bytes in memory at most; None: a quarter of what is free at the time.
    on_message: called with a sentence when the file is begun.
    """

    def __init__(
        self, folder: Path | None = None, budget: int | None = None, on_message: Callable[[str], object] | None = None
    ):
        self.folder, self.budget, self._tell = folder, budget, on_message
        self.held = 0  # bytes in memory
        self.written = 0  # bytes that records have in the file now
        self._allowed = 0 if budget is None else budget
        self._file: BinaryIO | None = None
        self._end = 0  # of the file
        self._gaps: dict[int, list[int]] = {}  # bytes -> starts of gaps in the file that are as long

    def put(self, array: Floats) -> Record:
        """Keep an array, which must not be changed afterwards: in memory if there is room, else in the file."""
        if self._fits(array.nbytes):
            self.held += array.nbytes
            return Record(self, array, 0, array.dtype, array.shape)
        start = self._write(array)
        self.written += array.nbytes
        return Record(self, None, start, array.dtype, array.shape)

    def fill(self, array: Floats, start: int) -> None:
        """Read an array from the file.

        array: that is filled. start: where its numbers begin.
        """
        assert self._file is not None
        self._file.seek(start)
        view = array.reshape(-1).view(np.uint8).data
        while len(view):
            count = self._file.readinto(view)  # type: ignore[attr-defined]  # at most two gigabytes at a time
            if not count:
                raise DamagedError(f"the file for clients' vectors in {self._describe_folder()} ends early")
            view = view[count:]

    def release(self, size: int, start: int | None) -> None:
        """Free the room of a record of `size` bytes: in memory, or from `start` on in the file."""
        if start is None:
            self.held -= size
        else:
            self.written -= size
            self._gaps.setdefault(size, []).append(start)

    def _fits(self, size: int) -> bool:
        if self.budget is None and self.held + size > self._allowed:
            self._allowed = self.held + min(allowance(held=self.held), max(STEP, size))
        return self.held + size <= self._allowed

    def _write(self, array: Floats) -> int:
        with explain_write_errors("the file for clients' vectors beyond the memory budget (--memory)"):
            if self._file is None:
                self._file = self._open()
            gaps = self._gaps.get(array.nbytes)
            start = gaps.pop() if gaps else self._end
            self._end = max(self._end, start + array.nbytes)
            self._file.seek(start)
            view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            while len(view):
                view = view[self._file.write(view) :]
        return start

    def _open(self) -> BinaryIO:
        if self._tell is not None:
            self._tell(
                f"clients' vectors take more than {max(self._allowed, self.held) / 2**20:,.0f} MB: the others are kept "
                f"in a temporary file in {self._describe_folder()} (--memory sets the limit)"
            )
        try:
            return tempfile.TemporaryFile(buffering=0, dir=self.folder)
        except PermissionError:
            return tempfile.TemporaryFile(buffering=0)

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()  # which removes it

    def _describe_folder(self) -> str:
        return str(self.folder or tempfile.gettempdir())


class StoredVectors(Mapping[str, Tensor]):
    """The vectors of one client by name, each read when it is asked for.

    records: where they are.
    """

    def __init__(self, records: Mapping[str, Record]):
        self._records = records

    def __getitem__(self, name: str) -> Tensor:
        return torch.from_numpy(self._records[name].read())

    def __contains__(self, name: object) -> bool:
        return name in self._records  # without reading the vector

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)


class ClientVectors(MutableMapping[int, Mapping[str, Tensor]]):
    """The vectors of every client that ever took part, by client; each is read when it is asked for.

    shelf: where they are kept; by default one with room for a quarter of the free memory.
    """

    def __init__(self, shelf: Shelf | None = None):
        self._shelf = shelf or Shelf()
        self._clients: dict[int, dict[str, Record]] = {}

    @classmethod
    def of(cls, clients: Mapping[int, Mapping[str, Tensor]]) -> ClientVectors:
        """Any mapping of clients to vectors; one of this kind is returned itself."""
        if isinstance(clients, ClientVectors):
            return clients
        found = cls()
        found.update(clients)
        return found

    def copy(self) -> ClientVectors:
        """The same vectors in another mapping, which may be changed; no vector is copied."""
        other = ClientVectors(self._shelf)
        other._clients = dict(self._clients)
        return other

    def add(self, client: int, name: str, array: Floats) -> None:
        """Keep one more vector of a client.

        client: its number. name: of the vector. array: the vector, which must not be changed afterwards.
        """
        self._clients.setdefault(client, {})[name] = self._shelf.put(array)

    def sort(self) -> None:
        """Order the clients by their numbers."""
        self._clients = dict(sorted(self._clients.items()))

    def list_records(self) -> Iterator[tuple[int, str, Record]]:
        """List every vector with its client and its name, without reading it."""
        for client, records in self._clients.items():
            for name, record in records.items():
                yield client, name, record

    def __getitem__(self, client: int) -> StoredVectors:
        return StoredVectors(self._clients[client])

    def __setitem__(self, client: int, vectors: Mapping[str, Tensor]) -> None:
        self._clients[client] = {name: self._shelf.put(vector.detach().numpy()) for name, vector in vectors.items()}

    def __delitem__(self, client: int) -> None:
        del self._clients[client]

    def __contains__(self, client: object) -> bool:
        return client in self._clients

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)
