"""A recipe: TOML read into frozen, strict settings; unknown keys and values out of range are refused in words."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from landscape.errors import choose
from training import catalog, partition
from training.augment import Augment

RECIPES = Path(__file__).parent / "recipes"


class Settings(BaseModel):
    """Frozen, and strict about names and types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=True)


class OpenSettings(Settings):
    """A name, and settings that belong to whatever carries that name; the table behind it checks them."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)
    name: str

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Data(OpenSettings):
    name: str = "digits"
    root: str | None = None  # folder in torchvision's layout; default $LANDSCAPE_DATA, then data
    download: bool = False
    pooled: bool = False  # train + test pooled, partitioned, then split 70/30 on every client (FedFSA)


class Partition(OpenSettings):
    name: str = "iid"
    clients: int = Field(10, ge=1)


class Model(OpenSettings):
    name: str = "digits_cnn"


class Algorithm(OpenSettings):
    name: str = "fedavg"


class Local(Settings):
    """Local training of one participant."""

    lr: float = Field(0.01, gt=0)
    lr_decay: float = Field(1.0, gt=0, le=1)  # factor per round
    batch_size: int = Field(64, ge=1)
    epochs: int = Field(1, ge=1)
    steps: int | None = Field(None, ge=1)  # a fixed number of local steps instead of epochs
    momentum: float = Field(0.0, ge=0, lt=1)  # fresh for every client and round
    weight_decay: float = Field(0.0, ge=0)  # taken at the unperturbed weights
    clip: float | None = Field(None, gt=0)  # largest norm of the corrected direction


class Rounds(Settings):
    count: int = Field(10, ge=1)
    participants: int = Field(5, ge=1)
    sampling: Literal["fixed", "bernoulli"] = "fixed"
    aggregation: Literal["size", "uniform"] = "size"


class Swa(Settings):
    """Averaging of the global model over the last rounds with a cyclic rate (FedSAM paper, Algorithm 1)."""

    start: float = Field(0.75, ge=0, lt=1)  # share of the rounds after which it begins
    cycle: int = Field(10, ge=1)
    lr_end: float = Field(1e-4, gt=0)  # rate at the end of each cycle; local.lr is the rate at its start
    capture: Literal["cycle_end", "after_start"] = "cycle_end"  # the paper's, or the published code's round
    count_from: Literal["zero", "paper"] = "zero"  # n = captures so far, or the paper's n = t / cycle


class Evaluation(Settings):
    every: int = Field(1, ge=1)  # rounds between evaluations; the last round is always evaluated
    last: int = Field(10, ge=1)  # rounds whose mean is reported as the result


class Checkpoints(Settings):
    every: int = Field(5, ge=1)  # rounds between checkpoints; the last round is always saved
    keep_locals: Literal["none", "last", "all"] = "last"  # checkpoints that hold every participant's model


def _augment(given: Any) -> Augment:
    if isinstance(given, Augment):
        return given
    if not isinstance(given, Mapping):
        raise ValueError("augment must be a table")
    for key in given:
        choose("setting", key, Augment.__dataclass_fields__)
    return Augment(**given)


class Recipe(Settings):
    """Everything that determines a run."""

    seed: int = Field(0, ge=0)
    dtype: Literal["float32", "float64"] = "float32"
    data: Data = Data()
    partition: Partition = Partition()
    model: Model = Model()
    algorithm: Algorithm = Algorithm()
    augment: Annotated[Augment, BeforeValidator(_augment)] = Augment()
    local: Local = Local()
    rounds: Rounds = Rounds()
    swa: Swa | None = None
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.rounds.participants > self.partition.clients:
            raise ValueError(
                f"rounds.participants ({self.rounds.participants}) must not exceed "
                f"partition.clients ({self.partition.clients})"
            )
        catalog.method(self.algorithm.name, self.algorithm.settings)
        settled = dict(self.partition.settings)
        if self.partition.name == "pachinko":
            settled.setdefault("coarse", [0])  # comes with the data set
        partition.settle(self.partition.name, settled)
        return self

    @property
    def slug(self) -> str:
        """The run's directory: readable, and different whenever anything that matters differs."""
        words = [self.data.name, self.algorithm.name, self.partition.name]
        for key in ("alpha", "beta", "shards_per_client", "classes_per_client"):
            if key in self.partition.settings:
                words[-1] += f"-{self.partition.settings[key]:g}"
        words += ["swa"] if self.swa else []
        readable = "_".join(words).replace(":", "-").replace("/", "-")
        return f"{readable}_s{self.seed}_{self.digest[:8]}"

    @property
    def digest(self) -> str:
        """SHA-256 of all settings but where the data lie."""
        content = self.model_dump(mode="json")
        for key in ("root", "download"):
            content["data"].pop(key)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def load(source: str | Path, overrides: Sequence[str] = ()) -> list[Recipe]:
    """The recipes of a file (or of a shipped recipe's name): one, or the cross product of its [sweep]."""
    path = Path(source)
    if path.suffix != ".toml":
        names = [found.stem for found in RECIPES.glob("*.toml")]
        path = RECIPES / f"{choose('recipe', str(source), names)}.toml"
    try:
        content = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: not valid TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise ValueError(f"--set wants key=value, for example local.lr=0.1; got '{override}'")
        put(content, key.strip(), parse(value.strip()))
    return [validate(single, str(path)) for single in swept(content)]


def swept(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of the lists in [sweep], whose keys are dotted: "local.lr" = [0.1, 0.01]."""
    sweep = content.pop("sweep", {})
    flat = dict(_dotted(sweep))
    for key, values in flat.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"sweep.{key} must be a list of values, got {values!r}")
    for combination in itertools.product(*flat.values()):
        single = json.loads(json.dumps(content))
        for key, value in zip(flat, combination, strict=True):
            put(single, key, value)
        yield single


def validate(content: Mapping[str, Any], source: str = "recipe") -> Recipe:
    """A recipe from nested settings, or every mistake in words."""
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        raise ValueError("\n".join(f"{source}: {_explain(problem)}" for problem in error.errors())) from None


def put(content: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in nested dictionaries."""
    *folders, leaf = key.split(".")
    for folder in folders:
        content = content.setdefault(folder, {})
        if not isinstance(content, dict):
            raise ValueError(f"{key}: '{folder}' is a value, not a table")
    content[leaf] = value


def parse(text: str) -> Any:
    """A TOML value if it is one, else the text itself: 0.1, true, [1, 2], fedsam."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def dump(recipe: Recipe) -> str:
    """The recipe as TOML with every setting spelled out; loading it gives the same recipe."""
    content = recipe.model_dump(mode="python", exclude_none=True)
    lines = [f"{key} = {_value(value)}" for key, value in content.items() if not isinstance(value, dict)]
    for key, table in content.items():
        if isinstance(table, dict):
            lines += ["", f"[{key}]", *(f"{name} = {_value(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(part) for part in value) + "]"
    return json.dumps(value)


def _dotted(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _explain(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        folder: Any = Recipe
        for part in problem["loc"][:-1]:
            annotation = folder.model_fields[part].annotation
            folder = Swa if part == "swa" else annotation
        try:
            choose("setting", str(problem["loc"][-1]), folder.model_fields)
        except ValueError as error:
            return f"{place}: {error}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{place}: {message}, got {problem['input']!r}" if place else message
