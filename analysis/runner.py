"""Run studies: plan, measure piece by piece, store each piece, resume after an interruption."""

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
    """One question about one subject, or about several together, and the pieces of its work.

    path: the file of the answer.
    kept: whether the answer exists already.
    damage: what is wrong with the existing file.
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
        """Number of pieces that an interrupted attempt has stored."""
        return sum(find_piece_file(self, piece).exists() for piece in self.pieces)

    @property
    def passes(self) -> float:
        """Gradients of single examples that are left to compute."""
        return 0.0 if self.kept else sum(piece.passes for piece in self.pieces)

    @property
    def whom(self) -> Subject | Sequence[Subject]:
        """What the study's functions take: the subject, or all subjects if the study compares runs."""
        return self.subjects if self.study.together else self.subjects[0]

    @property
    def folder(self) -> Path:
        """The folder in which finished pieces are stored until all are measured."""
        return self.path.with_name(f".{self.path.stem}-{self.digest[:16]}")


class NameTakenError(ValueError):
    """The name given to a question is that of another one.

    path: the answer of that one.
    """

    def __init__(self, path: Path):
        super().__init__(
            f"{path}: '{path.stem}' already names an answer with other settings or about other runs; "
            "choose another --name"
        )
        self.path = path


def plan(study: Study, settings: object, subjects: Sequence[Subject], out: Path, name: str = "") -> Plan:
    """Plan a question; nothing is written. A damaged file will be moved aside, an outdated answer replaced.

    study, settings: the question.
    subjects: what it is asked of.
    out: the `analysis` folder that answers go to.
    name: what to call the question; by default the settings that were changed.
    """
    inputs = [subject.inputs(study.rounds(subject, settings)) for subject in subjects]
    inputs += find_source(study)
    digest = store.compute_digest(study.name, settings_of.values(settings), inputs)
    path, kept, damage = _find_file(study, settings, out / study.name, name, digest, inputs)
    pieces = [] if kept else sort_pieces(study.pieces(subjects if study.together else subjects[0], settings))
    return Plan(study, settings, subjects, path, pieces, digest, inputs, kept, damage)


def _find_file(
    study: Study, settings: object, folder: Path, name: str, digest: str, inputs: object
) -> tuple[Path, bool, str]:
    """Find the file of a question, whether it holds the answer, and what is wrong with it.

    Answers with other settings and answers about other runs are never replaced: the file then gets a longer name.
    """
    stem, runs = name or name_question(study, settings), _list_runs(inputs)
    for suffix in ("", f"-{hashlib.sha256(json.dumps(runs).encode()).hexdigest()[:8]}", f"-{digest[:8]}"):
        path = folder / f"{stem}{suffix}.h5"
        if not path.exists():
            return path, False, ""
        try:
            found = store.read(path)
        except DamagedError as error:
            return path, False, str(error)
        # a setting that a later version adds has a default that changes nothing: answers from before it are kept
        found = replace(found, settings={**settings_of.values(study.settings()), **found.settings})
        same_runs = _list_runs(found.provenance.get("inputs")) == runs
        if found.digest == digest or (same_runs and _are_same(found.settings, settings_of.values(settings))):
            return path, found.digest == digest, ""
        if name:
            raise NameTakenError(path)
    return path, False, ""


def _list_runs(inputs: object) -> list[object]:
    """List the recipes of the runs that an answer is about; a user's own model has none."""
    entries = inputs if isinstance(inputs, list) else []
    return [one["run"] for one in entries if isinstance(one, dict) and "run" in one]


def _are_same(stored: Mapping[str, object], given: Mapping[str, object]) -> bool:
    return bool(json.loads(json.dumps(stored, default=str)) == json.loads(json.dumps(given, default=str)))


def name_question(study: Study, settings: object) -> str:
    """Make the name of a question from the settings that differ from their defaults: "top10-limit2000"."""
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


def sort_pieces(pieces: Sequence[Piece]) -> list[Piece]:
    """Sort pieces so that each one follows those in its `after`."""
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

    planned: the plan. step: called with the numbers of measured pieces and of all pieces.
    say: called with every line that a person should see.
    """
    progress = PlanProgress(planned, step, say)
    for piece in progress.left:
        progress.add(piece, measure_piece(planned, piece, progress.find_earlier(piece), say))
    return planned.path


class PlanProgress:
    """The pieces of a plan that are measured; each is stored at once, and the answer is written with the last one.

    plan: what is to be done; a damaged answer is moved aside. Pieces of an interrupted attempt are read again.
    step: called with the numbers of measured pieces and of all pieces.
    say: called with every line that a person should see.
    """

    def __init__(self, plan: Plan, step: Step, say: Say):
        self.plan, self.step = plan, step
        self.found: dict[Piece, xr.Dataset] = {}
        if plan.kept:
            return
        if plan.damage:
            say(f"{plan.damage}; moved to {store.move_aside(plan.path).name}, and measured again")
        stored = {piece: load_piece(plan, piece) for piece in plan.pieces}
        self.found = {piece: data for piece, data in stored.items() if data is not None}
        self._advance()

    @property
    def left(self) -> list[Piece]:
        """The pieces that are not measured yet."""
        return [piece for piece in self.plan.pieces if piece not in self.found]

    def find_earlier(self, piece: Piece) -> list[xr.Dataset]:
        """Find the Datasets of the pieces that a piece comes after, all of which have been measured."""
        return [self.found[one] for one in piece.after]

    def add(self, piece: Piece, data: xr.Dataset) -> None:
        """Store what was measured of a piece."""
        save_piece(self.plan, piece, data)
        self.found[piece] = data
        self._advance()

    def _advance(self) -> None:
        """Report the progress; write the answer and remove the stored pieces once all are measured."""
        self.step(len(self.found), len(self.plan.pieces))
        if len(self.found) == len(self.plan.pieces):
            store.write(self.plan.path, finish(self.plan, self.found))
            for leftover in self.plan.path.parent.glob(f".{self.plan.path.stem}-*"):
                shutil.rmtree(leftover, ignore_errors=True)


def finish(planned: Plan, found: Mapping[Piece, xr.Dataset]) -> Answer:
    """Make the answer from the Datasets of all pieces."""
    study, settings = planned.study, planned.settings
    private = {name for one in found.values() for name in one.variables if str(name).startswith("_")}
    data = combine(expand(piece, found[piece].drop_vars(private, errors="ignore")) for piece in planned.pieces)
    if study.derive is not None:
        data = study.derive(planned.whom, settings, data)
    question = planned.path.stem
    return Answer(study.name, question, settings_of.values(settings), describe_origin(planned), data)


def measure_piece(planned: Plan, piece: Piece, earlier: Sequence[xr.Dataset], say: Say) -> xr.Dataset:
    """Measure one piece; if memory runs out, try again with smaller chunks."""
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
    """Describe where an answer comes from: subjects, digests of what was measured, versions."""
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
    """Describe the source of a user's own study, so that a changed file gives a new answer; nothing if built in."""
    module = study.settings.__module__
    return [] if module.startswith(BUILT_IN) else [describe_source(module)]


def find_piece_file(planned: Plan, piece: Piece) -> Path:
    """Find the file in which a piece is stored until all are measured."""
    name = hashlib.sha256(piece.name.encode()).hexdigest()[:16]
    return planned.folder / f"{name}.nc"


def save_piece(planned: Plan, piece: Piece, data: xr.Dataset) -> None:
    """Store a piece until all are measured."""
    store.write(find_piece_file(planned, piece), Answer(planned.digest, piece.name, {}, {}, data))


def load_piece(planned: Plan, piece: Piece) -> xr.Dataset | None:
    """Load a stored piece; None if there is none, or if it is damaged: it is then measured again."""
    try:
        found = store.read(find_piece_file(planned, piece))
    except ValueError:
        return None
    return found.data if (found.study, found.question) == (planned.digest, piece.name) else None


def measure_rate(subject: Subject) -> float:
    """Measure how many gradients of single examples are computed per second, on a few hundred examples."""
    objective = subject.objective("train", limit=256)
    theta = subject.point(subject.rounds[-1]).to(objective.dtype)
    objective.loss_and_gradient(theta)
    start = time.perf_counter()
    objective.loss_and_gradient(theta)
    return objective.count / max(time.perf_counter() - start, 1e-9)
