"""Checkpoints: written aside and renamed, hashed, verified. Nothing in them can execute code.

run_directory.py describes the files of a checkpoint. A checkpoint appears under its name only when it is complete and
flushed. meta.json holds the hashes of its files, and is sealed by a hash of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from training.storage import lock, tensors
from training.storage.atomic_files import (
    DamagedError,
    Fingerprint,
    explain_write_errors,
    flush,
    remove,
    remove_temporary_files,
    temporary_path,
    write_atomically,
    write_flushed,
)
from training.storage.client_vectors import ClientVectors, Shelf
from training.storage.run_directory import METRICS, TENSOR_FILES, checkpoint_path, checkpoint_rounds, read_meta
from training.storage.tensors import Floats, Stored, check_checkpoint
from training.storage.verified_files import FORMAT, Json, seal

CLIENTS = "clients.safetensors"
RESUMABLE = 2  # checkpoints that keep the clients' vectors: the newest, and one in case that it is damaged

Vectors = dict[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """What is saved of a round: enough to analyse it, and to resume training from it."""

    round: int  # rounds finished
    # "server", "mean" of participants, "swa"; "sent", what the participants were sent, where `locals` are kept;
    # "statistics", "swa_statistics", "sent_statistics" of norm layers
    models: Vectors
    locals: dict[int, Tensor]  # participant -> weights and running statistics; empty where not asked for
    server: Vectors
    # client -> its own vectors, for those that ever took part; see `forget_clients`
    clients: Mapping[int, Mapping[str, Tensor]]
    extra: Json  # small numbers: cohort, sizes, SWA count, last participation


def save(run: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint in one step and return its folder. An intact one of the same round is left as it is."""
    target = checkpoint_path(run, checkpoint.round)
    if target.exists() and not check_checkpoint(target) and not read_meta(target).get("forgotten"):
        return target
    temporary = temporary_path(target)
    with explain_write_errors(f"the checkpoint of round {checkpoint.round} in {target.parent}"):
        try:
            remove(temporary)
            temporary.mkdir(parents=True)
            _write_files(temporary, checkpoint)
            flush(temporary)
            if checkpoint.round:
                flush(run / METRICS)  # a checkpoint promises that the rounds before it are recorded
            lock.check(target)
            remove(target)  # a damaged one, or one that forgot its clients
            os.replace(temporary, target)
            flush(target.parent)
        finally:
            remove(temporary)
    return target


def _write_files(folder: Path, checkpoint: Checkpoint) -> None:
    contents: dict[str, Mapping[str, Floats | Stored]] = {
        "global": _to_arrays(checkpoint.models),
        "locals": _to_arrays({f"{client}": w for client, w in checkpoint.locals.items()}),
        "server": _to_arrays(checkpoint.server),
        "clients": {f"{k}/{name}": record for k, name, record in ClientVectors.of(checkpoint.clients).list_records()},
    }
    written = {
        f"{name}.safetensors": tensors.write(folder / f"{name}.safetensors", arrays)
        for name, arrays in contents.items()
        if arrays or name == "global"
    }
    meta = {"format": FORMAT, "round": checkpoint.round, "files": written, **checkpoint.extra}
    write_flushed(folder / "meta.json", [seal(meta).encode()])


def _to_arrays(vectors: Mapping[str, Tensor]) -> dict[str, Floats]:
    return {name: vector.detach().numpy() for name, vector in vectors.items()}


def forget_clients(run: Path) -> None:
    """Drop the clients' vectors from all but the newest checkpoints: each holds a model or more for every client.

    The description is changed first, then the file is removed: a process killed in between leaves a file that is not
    read.
    """
    for round in checkpoint_rounds(run)[:-RESUMABLE]:
        path = checkpoint_path(run, round)
        try:
            meta = read_meta(path)
        except DamagedError:
            continue  # reported by `landscape check`
        if meta["files"].pop(CLIENTS, None):
            write_atomically(path / "meta.json", seal({**meta, "forgotten": True}).encode())
        remove_temporary_files(path)
        (path / CLIENTS).unlink(missing_ok=True)


def discard(run: Path, round: int) -> None:
    """Remove the checkpoint of a round; a process killed meanwhile leaves no half of it under its name."""
    target = checkpoint_path(run, round)
    if target.exists():
        hidden = temporary_path(target)
        remove(hidden)
        os.replace(target, hidden)
        remove(hidden)


def load(path: Path, *, shelf: Shelf | None = None, with_clients: bool = True) -> Checkpoint:
    """Read one checkpoint and verify every byte of it.

    path: its folder.
    shelf: where the clients' vectors are kept; by default one with room for a quarter of the free memory.
    with_clients: whether they are wanted; else they are only verified, which takes little memory.
    """
    meta = read_meta(path)
    contents: dict[str, Vectors] = {file: {} for file in TENSOR_FILES}
    clients = ClientVectors(shelf)
    for file, expected in meta["files"].items():
        if file != CLIENTS:
            arrays = tensors.read(path / file, expected)
            contents[file] = {name: torch.from_numpy(array) for name, array in arrays.items()}
        elif with_clients:
            _read_clients(path, expected, clients)
        else:
            tensors.verify(path / file, expected)
    # a file gives its tensors in any order
    local_models = sorted((_parse_client(path, client), w) for client, w in contents["locals.safetensors"].items())
    return Checkpoint(
        round=meta["round"],
        models=contents["global.safetensors"],
        locals=dict(local_models),
        server=contents["server.safetensors"],
        clients=clients,
        extra={name: value for name, value in meta.items() if name not in ("format", "round", "files")},
    )


def _read_clients(path: Path, expected: Fingerprint, clients: ClientVectors) -> None:
    """Read the vectors of clients from a checkpoint, in memory one at a time beside what `clients` keeps."""
    for key, array in tensors.read_each(path / CLIENTS, expected):
        client, _, name = key.partition("/")
        clients.add(_parse_client(path, client), name, array)
    clients.sort()


def _parse_client(path: Path, name: str) -> int:
    if not (name.isascii() and name.isdecimal() and len(name) < 19):
        raise DamagedError(f"{path}: '{name[:40]}' is not the number of a client")
    return int(name)


def load_newest(
    run: Path, *, shelf: Shelf | None = None, with_clients: bool = True
) -> tuple[Checkpoint | None, list[str]]:
    """Load the newest intact checkpoint that training can resume from.

    run: its directory. shelf, with_clients: as `load` takes them.
    Returns it, or None if there is none, and a line for every damaged checkpoint that was skipped.
    """
    problems: list[str] = []
    for round in reversed(checkpoint_rounds(run)):
        try:
            found = load(checkpoint_path(run, round), shelf=shelf, with_clients=with_clients)
        except DamagedError as error:
            problems.append(str(error))
            continue
        if not found.extra.get("forgotten"):
            return found, problems
    return None, problems
