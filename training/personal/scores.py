"""The scores of one strategy on every client, and the file that holds them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from training.storage import atomic_files, verified_files
from training.storage.atomic_files import DamagedError
from training.storage.verified_files import Json

FORMAT = "personal 1"
KEYS = {"strategy": "way"}  # in the file, where a field has another name: results of earlier versions stay readable


@dataclass(frozen=True)
class ClientScore:
    """Accuracies of the global model and of the personal one on a client's test examples.

    client: its number.
    examples: of its test set.
    before: accuracy of the global model.
    after: accuracy of the personal model.
    """

    client: int
    examples: int
    before: float
    after: float


@dataclass(frozen=True)
class PersonalResult:
    """The accuracy of personal models, client by client, and how they were made.

    strategy: one of `strategies.STRATEGIES`.
    round: rounds finished when the global model was taken.
    model: which global model: server, mean or swa.
    options: all options of the strategy.
    sample: how many clients were drawn; None stands for all.
    checkpoint: SHA-256 of the global models at that round.
    left_out: number of clients that have no test examples, or no own model.
    clients: the scores of the others.
    """

    strategy: str
    round: int
    model: str
    options: Json
    sample: int | None
    checkpoint: str
    left_out: int = 0
    clients: tuple[ClientScore, ...] = ()

    @property
    def file(self) -> str:
        """The name of its file, different for every strategy, round, model, sample and set of options."""
        about = [self.strategy, self.round, self.model, self.sample, self.options]
        return f"{self.strategy}-{hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]}.json"

    @property
    def mean(self) -> float:
        """Mean accuracy over clients, each counting once however many examples it has."""
        return float(np.mean([score.after for score in self.clients]))

    @property
    def mean_before(self) -> float:
        """Mean accuracy of the global model over clients."""
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
    """Write a result as JSON with a digest; after an interruption the file is complete or absent.

    path: of the file.
    result: to write.
    """
    summary = {name: getattr(result, name) for name in ("mean", "std", "worst_tenth", "mean_before")}
    stored = {KEYS.get(name, name): value for name, value in dataclasses.asdict(result).items()}
    content = {"format": FORMAT, **stored, "summary": summary}
    path.parent.mkdir(exist_ok=True)
    atomic_files.write_atomically(path, verified_files.seal(content).encode())


def load(path: Path) -> PersonalResult:
    """Read a result; DamagedError if a byte of it has changed.

    path: of the file.
    """
    content = verified_files.read_sealed(path)
    if content.get("format") != FORMAT:
        raise DamagedError(f"{path}: not a personalised evaluation of this version; remove it")
    try:
        fields = {field.name: content[KEYS.get(field.name, field.name)] for field in dataclasses.fields(PersonalResult)}
        return _RESULT.validate_json(json.dumps(fields), strict=True)
    except (KeyError, ValidationError):
        raise DamagedError(f"{path}: not a personalised evaluation; remove it") from None


def find_problems(run: Path) -> list[str]:
    """List the damaged results of a run, a line each.

    run: its directory.
    """
    problems = []
    for path in sorted(run.glob("personal/[!.]*.json")):
        try:
            verified_files.require_inside(path, run)
            load(path)
        except DamagedError as error:
            problems.append(str(error))
    return problems
