"""Running studies: planned, estimated, kept piece by piece, and resumed after an interruption."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import xarray as xr

from analysis import store
from analysis.store import Answer
from analysis.study import Piece, Study, combine, expand
from analysis.subjects import Subject
from landscape.runtime.device import describe_device
from training import settings as settings_of
from training.plugins import describe_source
from training.storage.atomic_files import DamagedError
from training.storage.verified_files import Json

BUILT_IN = "analysis.studies."  # modules of the studies that come with the package
LONGEST_NAME = 60  # characters of a question's name
Say = Callable[[str], object]
Step = Callable[[int, int], object]  # (pieces done, pieces in all)


@dataclass(frozen=True)
class Plan:
    """One question about one subject (or about several together), and what it will take.

    path: the file of the answer.
    kept: whether the answer is there already.
    damage: what is wrong with the file that is there.
    """

    study: Study
    settings: object
    subjects: Sequence[Subject]
    path: Path
    pieces: Sequence[Piece]
    digest: str
    inputs: object
    kept: bool
    damage: str = ""

    @property
    def done(self) -> int:
        """Pieces kept from an interrupted attempt."""
        return sum(file_of(self, piece).exists() for piece in self.pieces)

    @property
    def passes(self) -> float:
        """Gradient evaluations of one example that are left."""
        return 0.0 if self.kept else sum(piece.passes for piece in self.pieces)

    @property
    def whom(self) -> Subject | Sequence[Subject]:
        """What the study's functions are given: the subject, or all of them where runs are compared."""
        return self.subjects if self.study.together else self.subjects[0]

    @property
    def folder(self) -> Path:
        """Where finished pieces are kept until all are done."""
        return self.path.with_name(f".{self.path.stem}-{self.digest[:16]}")


def plan(study: Study, settings: object, subjects: Sequence[Subject], out: Path, name: str = "") -> Plan:
    """See what there is to do; changes nothing. A damaged file will be moved aside, an outdated answer replaced.

    study, settings: the question.
    subjects: what it is asked of.
    out: the `analysis` folder that answers go to.
    name: what to call the question; by default the settings that were changed.
    """
    inputs = [subject.inputs(study.rounds(subject, settings)) for subject in subjects]
    inputs += find_source(study)
    digest = store.digest_of(study.name, settings_of.values(settings), inputs)
    path, kept, damage = _find_file(study, settings, out / study.name, name, digest)
    pieces = [] if kept else in_order(study.pieces(subjects if study.together else subjects[0], settings))
    return Plan(study, settings, subjects, path, pieces, digest, inputs, kept, damage)


def _find_file(study: Study, settings: object, folder: Path, name: str, digest: str) -> tuple[Path, bool, str]:
    """The file of a question, whether it holds the answer, and what is wrong with it."""
    path = folder / f"{name or name_question(study, settings)}.h5"
    if not path.exists():
        return path, False, ""
    try:
        found = store.read(path)
    except DamagedError as error:
        return path, False, str(error)
    # a setting that a later version adds has a default that changes nothing: answers from before it are kept
    found = replace(found, settings={**settings_of.values(study.settings()), **found.settings})
    if found.digest == digest or _same(found.settings, settings_of.values(settings)):
        return path, found.digest == digest, ""
    if name:
        raise ValueError(f"{path}: '{name}' already names a question with other settings; choose another --name")
    return path.with_name(f"{path.stem}-{digest[:8]}.h5"), False, ""


def _same(stored: Mapping[str, object], given: Mapping[str, object]) -> bool:
    return bool(json.loads(json.dumps(stored, default=str)) == json.loads(json.dumps(given, default=str)))


def name_question(study: Study, settings: object) -> str:
    """A name for a question: the settings that differ from their defaults, such as "top10-limit2000"."""
    usual = settings_of.values(study.settings())
    changed = {key: value for key, value in settings_of.values(settings).items() if value != usual[key]}
    words = [_spell(key, value) for key, value in changed.items()]
    name = re.sub(r"[^\w.+-]+", "-", "-".join(words), flags=re.ASCII).strip(".-")
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name or store.DEFAULT


def _spell(key: str, value: object) -> str:
    if isinstance(value, bool):
        return key if value else f"no-{key}"
    if isinstance(value, (tuple, list)):
        return "-".join([key, *map(str, value)])
    return f"{key}-{value}" if isinstance(value, str) else f"{key}{value}"


def in_order(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces, each behind those it comes after."""
    placed: dict[Piece, None] = {}

    def place(piece: Piece) -> None:
        for earlier in piece.after:
            place(earlier)
        placed.setdefault(piece)

    for piece in pieces:
        place(piece)
    return list(placed)


def carry_out(planned: Plan, step: Step = lambda done, total: None, say: Say = print) -> Path:
    """Measure what is left of a plan and write its answer.

    step: called before each piece, and once at the end.
    say: called with every line that a person should see.
    """
    if planned.kept:
        return planned.path
    make_room(planned, say)
    found: dict[Piece, xr.Dataset] = {}
    for place, piece in enumerate(planned.pieces):
        step(place, len(planned.pieces))
        data = load_piece(planned, piece)
        if data is None:
            data = measure_piece(planned, piece, [found[earlier] for earlier in piece.after], say)
            save_piece(planned, piece, data)
        found[piece] = data
    step(len(planned.pieces), len(planned.pieces))
    return write_answer(planned, found)


def make_room(planned: Plan, say: Say) -> None:
    """Move a damaged answer aside, so that the new one can take its place."""
    if planned.damage:
        say(f"{planned.damage}; moved to {store.move_aside(planned.path).name}, and measured again")


def write_answer(planned: Plan, found: Mapping[Piece, xr.Dataset]) -> Path:
    """Write the answer from the Datasets of all pieces, and remove those that were kept."""
    store.write(planned.path, finish(planned, found))
    for leftover in planned.path.parent.glob(f".{planned.path.stem}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    return planned.path


def finish(planned: Plan, found: Mapping[Piece, xr.Dataset]) -> Answer:
    """The answer, from the Datasets of all pieces."""
    study, settings = planned.study, planned.settings
    private = {name for one in found.values() for name in one.variables if str(name).startswith("_")}
    data = combine(expand(piece, found[piece].drop_vars(private, errors="ignore")) for piece in planned.pieces)
    if study.derive is not None:
        data = study.derive(planned.whom, settings, data)
    question = planned.path.stem
    return Answer(study.name, question, settings_of.values(settings), describe_origin(planned), data)


def measure_piece(planned: Plan, piece: Piece, earlier: Sequence[xr.Dataset], say: Say) -> xr.Dataset:
    """Measure one piece; what does not fit into memory is tried again in smaller chunks."""
    while True:
        try:
            return planned.study.measure(planned.whom, planned.settings, piece, earlier)
        except (MemoryError, RuntimeError) as error:
            sizes = [subject.limits.chunk_size for subject in planned.subjects]
            if not _is_out_of_memory(error) or all(size == 1 for size in sizes):
                raise
            for subject in planned.subjects:
                subject.limits = subject.limits.halved()
            size = planned.subjects[0].limits.chunk_size
            say(f"{piece.name}: out of memory; trying again with {size} examples at once")


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate memory" in str(error)


def describe_origin(planned: Plan) -> Json:
    """Where an answer comes from: subjects, fingerprints of what was measured, versions."""
    return {
        "inputs": planned.inputs,
        "subjects": [subject.name for subject in planned.subjects],
        "seed": [getattr(getattr(subject, "recipe", None), "seed", None) for subject in planned.subjects],
        "dtype": [str(subject.limits.dtype).removeprefix("torch.") for subject in planned.subjects],
        "device": [describe_device(subject.device) for subject in planned.subjects],
        "batchnorm": [subject.policy for subject in planned.subjects],
        "packages": {name: version(name) for name in ("fl-landscape", "torch", "numpy", "h5py", "xarray")},
    }


def find_source(study: Study) -> list[dict[str, str]]:
    """Where a user's own study comes from, so that it is asked again when its file changes; nothing if built in."""
    module = study.settings.__module__
    return [] if module.startswith(BUILT_IN) else [describe_source(module)]


def file_of(planned: Plan, piece: Piece) -> Path:
    """Where a piece is kept until all are done."""
    name = hashlib.sha256(piece.name.encode()).hexdigest()[:16]
    return planned.folder / f"{name}.nc"


def save_piece(planned: Plan, piece: Piece, data: xr.Dataset) -> None:
    """Keep a piece until all are done, as an answer to a question of its own."""
    store.write(file_of(planned, piece), Answer(planned.digest, piece.name, {}, {}, data))


def load_piece(planned: Plan, piece: Piece) -> xr.Dataset | None:
    """A piece that was kept; None if there is none, or if it is not what was written: it is measured again."""
    try:
        found = store.read(file_of(planned, piece))
    except ValueError:
        return None
    return found.data if (found.study, found.question) == (planned.digest, piece.name) else None


def measure_rate(subject: Subject) -> float:
    """Gradient evaluations of one example per second, measured on a few hundred of them."""
    objective = subject.objective("train", limit=256)
    theta = subject.point(subject.rounds[-1]).to(objective.dtype)
    objective.loss_and_gradient(theta)
    start = time.perf_counter()
    objective.loss_and_gradient(theta)
    return objective.count / max(time.perf_counter() - start, 1e-9)
