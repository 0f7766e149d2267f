"""How well every client is served: the scores of one way, and how they are kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from training.storage import atomic_files, verified_files
from training.storage.atomic_files import DamagedError

FORMAT = "personal 1"


@dataclass(frozen=True)
class ClientScore:
    """How often the global model and the personal one are right on a client's test examples."""

    client: int
    examples: int
    before: float  # accuracy of the global model
    after: float


@dataclass(frozen=True)
class PersonalResult:
    """The accuracy of personal models, client by client, and how they were made."""

    way: str
    round: int  # rounds finished when the global model was taken
    model: str  # which global model: server, mean or swa
    options: dict[str, Any]
    sample: int | None  # how many clients were drawn; None is all
    checkpoint: str  # SHA-256 of the global models at that round
    left_out: int = 0  # clients without test examples, or without a model of their own
    clients: tuple[ClientScore, ...] = ()

    @property
    def file(self) -> str:
        """The name of its file: one for every way, round, model, sample and set of options."""
        about = [self.way, self.round, self.model, self.sample, self.options]
        return f"{self.way}-{hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]}.json"

    @property
    def mean(self) -> float:
        """Mean accuracy over clients, each counting once however many examples it has."""
        return float(np.mean([score.after for score in self.clients]))

    @property
    def mean_before(self) -> float:
        return float(np.mean([score.before for score in self.clients]))

    @property
    def std(self) -> float:
        """Standard deviation over these clients (divided by their number)."""
        return float(np.std([score.after for score in self.clients]))

    @property
    def worst_tenth(self) -> float:
        """Mean accuracy of the tenth of the clients that do worst, at least one (Li et al. 2020, q-FFL)."""
        worst = sorted(score.after for score in self.clients)[: math.ceil(len(self.clients) / 10)]
        return float(np.mean(worst))


_RESULT = TypeAdapter(PersonalResult)


def save(path: Path, result: PersonalResult) -> None:
    """Write a result as sealed JSON, in one step."""
    summary = {name: getattr(result, name) for name in ("mean", "std", "worst_tenth", "mean_before")}
    content = {"format": FORMAT, **dataclasses.asdict(result), "summary": summary}
    path.parent.mkdir(exist_ok=True)
    atomic_files.write_atomically(path, verified_files.seal(content).encode())


def load(path: Path) -> PersonalResult:
    """Read a result, if not one byte of it has changed."""
    content = verified_files.read_sealed(path)
    if content.get("format") != FORMAT:
        raise DamagedError(f"{path}: not a personalised evaluation of this version; remove it")
    try:
        about = {field.name: content[field.name] for field in dataclasses.fields(PersonalResult)}
        return _RESULT.validate_json(json.dumps(about), strict=True)
    except (KeyError, ValidationError):
        raise DamagedError(f"{path}: not a personalised evaluation; remove it") from None


def find_problems(run: Path) -> list[str]:
    """List what is wrong with the results in a run directory, a line each."""
    found = []
    for path in sorted(run.glob("personal/[!.]*.json")):
        try:
            verified_files.require_inside(path, run)
            load(path)
        except DamagedError as error:
            found.append(str(error))
    return found
