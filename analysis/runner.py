"""Running studies: planned, estimated, kept piece by piece, and finished after whatever stopped them."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from analysis import store
from analysis.store import Stored
from analysis.study import Arrays, Piece, Study
from analysis.subjects import Subject

SEAL_SIZE = hashlib.sha256().digest_size
Say = Callable[[str], object]
Step = Callable[[int, int, str], object]  # (pieces done, pieces in all, name of the next)


@dataclass(frozen=True)
class Plan:
    """One study of one subject (or of several together), and what it will take."""

    study: Study
    settings: Any
    subjects: Sequence[Subject]
    path: Path
    pieces: Sequence[Piece]
    digest: str
    inputs: Any
    kept: bool  # the answer is there already
    done: int  # pieces kept from an interrupted attempt
    damage: str = ""  # what is wrong with the file that is there, in words

    @property
    def passes(self) -> float:
        return 0.0 if self.kept else sum(piece.passes for piece in self.pieces)

    @property
    def parts(self) -> Path:
        return self.path.with_name(f".{self.path.stem}-{self.digest[:16]}")


def plan(study: Study, settings: Any, subjects: Sequence[Subject], out: Path) -> Plan:
    """See what there is to do; changes nothing. A damaged file, or one of another question, will be replaced."""
    path = out / f"{study.name}.h5"
    inputs = [subject.inputs(study.rounds(subject, settings)) for subject in subjects]
    digest = store.digest_of(study.name, dataclasses.asdict(settings), inputs)
    kept, damage = False, ""
    if path.exists():
        try:
            kept = store.read(path).digest == digest
        except store.DamagedError as error:
            damage = str(error)
    pieces = [] if kept else study.pieces(subjects, settings)
    planned = Plan(study, settings, subjects, path, pieces, digest, inputs, kept, 0, damage)
    done = sum(_part(planned, piece).exists() for piece in pieces)
    return dataclasses.replace(planned, done=done)


def carry_out(planned: Plan, step: Step | None = None, say: Say = print) -> Path:
    """Do what is left of a plan and write its file."""
    if planned.kept:
        return planned.path
    if planned.damage:
        say(f"{planned.damage}; moved to {store.move_aside(planned.path).name}, and made anew")
    found: dict[str, Arrays] = {}
    for place, piece in enumerate(planned.pieces):
        if step is not None:
            step(place, len(planned.pieces), piece.key)
        arrays = _load(planned, piece)
        if arrays is None:
            arrays = _measured(planned, piece, found, say)
            _save(planned, piece, arrays)
        found[piece.key] = arrays
    if step is not None:
        step(len(planned.pieces), len(planned.pieces), "")
    study, settings = planned.study, planned.settings
    public = {key: {n: a for n, a in arrays.items() if not n.startswith("_")} for key, arrays in found.items()}
    tables = study.tables(planned.subjects, settings, public)
    stored = Stored(study.name, dataclasses.asdict(settings), provenance(planned), tables)
    store.write(planned.path, stored)
    for leftover in planned.path.parent.glob(f".{planned.path.stem}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    return planned.path


def _measured(planned: Plan, piece: Piece, found: Mapping[str, Arrays], say: Say) -> Arrays:
    """One piece; what does not fit into memory is tried again in smaller chunks."""
    while True:
        try:
            return planned.study.measure(planned.subjects, planned.settings, piece, found)
        except (MemoryError, RuntimeError) as error:
            sizes = [subject.limits.chunk_size for subject in planned.subjects]
            if not _out_of_memory(error) or all(size == 1 for size in sizes):
                raise
            for subject in planned.subjects:
                subject.limits = subject.limits.halved()
            size = planned.subjects[0].limits.chunk_size
            say(f"{piece.key}: out of memory; trying again with {size} examples at once")


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate memory" in str(error)


def provenance(planned: Plan) -> dict[str, Any]:
    """Where an answer comes from."""
    return {
        "inputs": planned.inputs,
        "subjects": [subject.name for subject in planned.subjects],
        "seed": [getattr(getattr(subject, "recipe", None), "seed", None) for subject in planned.subjects],
        "dtype": [str(subject.limits.dtype).removeprefix("torch.") for subject in planned.subjects],
        "batchnorm": [subject.policy for subject in planned.subjects],
        "packages": {name: version(name) for name in ("fl-landscape", "torch", "numpy", "h5py")},
    }


def _part(planned: Plan, piece: Piece) -> Path:
    name = hashlib.sha256(piece.key.encode()).hexdigest()[:16]
    return planned.parts / f"{name}.npz"


def _save(planned: Plan, piece: Piece, arrays: Arrays) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    store.replace(_part(planned, piece), _piece_seal(planned, piece, buffer.getvalue()), buffer.getvalue())


def _load(planned: Plan, piece: Piece) -> Arrays | None:
    """A piece that was kept; None if there is none, or if it is not what was written: it is measured again."""
    try:
        content = _part(planned, piece).read_bytes()
        if _piece_seal(planned, piece, content[SEAL_SIZE:]) != content[:SEAL_SIZE]:
            return None
        with np.load(io.BytesIO(content[SEAL_SIZE:]), allow_pickle=False) as found:
            return dict(found)
    except Exception:  # what is not readable for whatever reason is worth no more than what is not there
        return None


def _piece_seal(planned: Plan, piece: Piece, content: bytes) -> bytes:
    """The hash of a piece and of what it is: a file under another's name is no answer."""
    return hashlib.sha256(f"{planned.digest} {piece.key}\n".encode() + content).digest()


def rate(subject: Subject) -> float:
    """Gradient evaluations of one example per second, measured on a few hundred of them."""
    objective = subject.objective("train", limit=256)
    theta = subject.point(subject.rounds[-1]).to(objective.dtype)
    objective.loss_and_gradient(theta)
    start = time.perf_counter()
    objective.loss_and_gradient(theta)
    return objective.count / max(time.perf_counter() - start, 1e-9)


def described(settings: Any) -> str:
    """Settings as they are written after --set."""
    return " ".join(f"{key}={json.dumps(value)}" for key, value in dataclasses.asdict(settings).items())
