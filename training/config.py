"""A recipe: TOML read into frozen, strict settings; unknown keys and values out of range are refused in words."""

from __future__ import annotations

import copy
import hashlib
import inspect
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from landscape.errors import choose
from training.data import datasets, partition
from training.data.augment import Augment
from training.engine import recording
from training.methods import catalog
from training.models import networks
from training.storage import toml

RECIPES = Path(__file__).parent / "recipes"
MOST_RUNS = 10_000  # of one sweep: each is checked before the first is trained
LONGEST_NAME = 120  # characters of a run's name before its seed and digest
SKEWS = {"alpha": "alpha", "beta": "beta", "shards_per_client": "shards", "classes_per_client": "classes"}
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
EXPECTED = {  # pydantic's kind of mistake -> what was expected
    "int_type": KINDS[int],
    "float_type": KINDS[float],
    "bool_type": KINDS[bool],
    "string_type": KINDS[str],
    "model_type": "a table of settings",
    "dataclass_exact_type": "a table of settings",
    "finite_number": "finite",
    "literal_error": "{expected}",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
}


class Settings(BaseModel):
    """Frozen, and strict about names and types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class OpenSettings(Settings):
    """A name, and the settings of whatever carries that name, all of them spelled out once they are checked."""

    model_config = ConfigDict(extra="allow")
    name: str

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _settle(self) -> OpenSettings:
        assert self.model_extra is not None
        self.model_extra.update(self.settled({key: toml.plain(key, value) for key, value in self.model_extra.items()}))
        return self

    def settled(self, given: dict[str, Any]) -> dict[str, Any]:
        """The settings, checked as far as that goes without data."""
        return given


def _known(
    kind: str, name: str, given: dict[str, Any], table: Mapping[str, Callable[..., Any]], *, brought: set[str]
) -> dict[str, Any]:
    """The settings, if the named function has parameters for them; `brought` are those that are not the recipe's."""
    if ":" in name:
        return given  # the user's own function is imported, and its settings checked, when the run begins
    parameters = set(inspect.signature(table[choose(kind, name, table)]).parameters) - brought
    parameters |= {"mean", "std"} if kind == "data set" else set()
    for key in given:
        if not parameters:
            raise ValueError(f"{kind} '{name}' takes no settings, got '{key}'; leave it out")
        choose(f"setting of {kind} '{name}'", key, parameters)
    return given


class Data(OpenSettings):
    name: str = "digits"
    root: str | None = None  # folder in torchvision's layout; default $LANDSCAPE_DATA, then data
    download: bool = False
    pooled: bool = False  # train + test pooled, partitioned, then split 70/30 on every client (FedFSA)

    def settled(self, given: dict[str, Any]) -> dict[str, Any]:
        return _known("data set", self.name, given, datasets.DATASETS, brought={"root", "download"})


class Partition(OpenSettings):
    name: str = "iid"
    clients: int = Field(10, ge=1)

    def settled(self, given: dict[str, Any]) -> dict[str, Any]:
        brought = {"coarse": [0]} if self.name == "pachinko" and "coarse" not in given else {}  # comes with the data
        found = partition.settle(self.name, {**brought, **given})
        return {key: value for key, value in found.items() if key not in brought}


class Model(OpenSettings):
    name: str = "digits_cnn"

    def settled(self, given: dict[str, Any]) -> dict[str, Any]:
        return _known("model", self.name, given, networks.MODELS, brought={"classes", "channels", "size"})


class Algorithm(OpenSettings):
    name: str = "fedavg"

    def settled(self, given: dict[str, Any]) -> dict[str, Any]:
        return catalog.read_settings(catalog.find_method(self.name, given))


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
    lr_end: float = Field(
        1e-4, gt=0
    )  # rate at the end of each cycle; it starts at the rate that local.lr has decayed to
    capture: Literal["cycle_end", "after_start"] = "cycle_end"  # the paper's, or the published code's round
    # n in eq. 8. The paper says two things: "number of completed cycles", which begin with SWA (appendix A.2, and the
    # published code): "zero", n = captures so far, so that the result is the mean of the captured models; and n = t / c
    # with t counted from the first round of all (line 22 of Algorithm 1): "paper", which weighs the model that SWA
    # started from as heavily as all the cycles before it
    count_from: Literal["zero", "paper"] = "zero"


class Evaluation(Settings):
    every: int = Field(1, ge=1)  # rounds between evaluations, up to the last rounds
    last: int = Field(10, ge=1)  # the last rounds: each of them is evaluated, and their mean is reported as the result


class Checkpoints(Settings):
    every: int = Field(5, ge=1)  # rounds between checkpoints; the last round is always saved
    keep_locals: Literal["none", "last", "all"] = "last"  # checkpoints that hold every participant's model
    keep_clients: Literal["last", "all"] = "last"  # those that hold the clients' own vectors: the newest two, or all


def _augment(given: Any) -> Any:
    """Augment from a table; its own checks are of ranges only."""
    if not isinstance(given, Mapping):
        return given
    for key, value in given.items():
        default = getattr(Augment, choose("setting of augment", key, Augment.__dataclass_fields__))
        if type(value) is not type(default) and not (isinstance(default, float) and type(value) is int):
            raise ValueError(f"augment.{key} must be {KINDS[type(default)]}, got {toml.written(value)}")
    return Augment(**given)


def _names(given: Any) -> Any:
    """A tuple of names from a list of them."""
    if not isinstance(given, (list, tuple)) or not all(isinstance(name, str) for name in given):
        raise ValueError(f'record must be a list of quantities such as ["gradient_norm"], got {toml.written(given)}')
    if len(set(given)) < len(given):
        raise ValueError(f"record names a quantity twice: {toml.written(given)}")
    return tuple(given)


class Recipe(Settings):
    """Everything that determines a run."""

    seed: int = Field(0, ge=0)
    dtype: Literal["float32", "float64"] = "float32"
    record: Annotated[
        tuple[str, ...], BeforeValidator(_names)
    ] = ()  # quantities along the local steps; see `recording`
    data: Data = Data()
    partition: Partition = Partition()
    model: Model = Model()
    algorithm: Algorithm = Algorithm()
    augment: Annotated[Augment, BeforeValidator(_augment)] = Augment()
    local: Local = Local()
    rounds: Rounds = Rounds()
    swa: Annotated[Swa | None, BeforeValidator(lambda given: None if given is False else given)] = None
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.rounds.participants > self.partition.clients:
            raise ValueError(
                f"rounds.participants ({self.rounds.participants}) must not exceed "
                f"partition.clients ({self.partition.clients})"
            )
        recording.check_quantities(self.record, catalog.find_method(self.algorithm.name, self.algorithm.settings))
        return self

    @property
    def slug(self) -> str:
        """The run's directory where nothing more is to be told; see `name`."""
        return self.name()

    def name(self, keys: Iterable[str] = ()) -> str:
        """The run's directory: readable, one path component, different whenever anything that matters differs.

        keys: dotted keys of settings to be told beside data, method, partition and seed, as far as there is room. Of a
        whole table only what differs from its defaults is told.
        """
        pieces = [self.data.name, self.algorithm.name, self._skew()]
        pieces += ["swa"] if self.swa else []
        flat, usual = (dict(toml.dotted(table)) for table in (self.model_dump(mode="json"), self._usual()))
        unusual = [key for key, value in flat.items() if key not in usual or value != usual[key]]
        told = [key for key in unusual if key.startswith("algorithm.")]
        for wanted in keys:
            told += [wanted] if wanted in flat else [key for key in unusual if key.startswith(f"{wanted}.")]
        pieces += [self._piece(key, flat[key]) for key in dict.fromkeys(told) if key in flat and not self._named(key)]
        words = [words for words in map(slugged, pieces) if words]
        while len("_".join(words)) > LONGEST_NAME:
            words.pop()
        return "_".join([*words, f"seed{self.seed}"[:24], self.digest[:8]])

    def _skew(self) -> str:
        """How the data are dealt out: alpha0.1, shards2; a partition without such a number by its name."""
        for key, word in SKEWS.items():
            if key in self.partition.settings:
                return f"{word}{self.partition.settings[key]:g}"
        return self.partition.name

    def _piece(self, key: str, value: Any) -> str:
        """A setting as part of a name: lr0.1, rounds50, part-head, no-clip."""
        table, _, leaf = key.rpartition(".")
        if leaf == "name":
            return str(value)
        word = {"rounds.count": "rounds", "evaluation.every": "evaluation", "checkpoints.every": "checkpoints"}.get(key)
        if word is None:
            # start and cycle mean little without swa, and a method's alpha is not the partition's
            word = f"swa-{leaf}" if table == "swa" else leaf
            word = f"{self.algorithm.name}-{leaf}" if table == "algorithm" and leaf in SKEWS else word
        if value is None or isinstance(value, bool):
            return word if value else f"no-{word}"
        if isinstance(value, (str, list)):
            return "-".join([word, *map(str, [value] if isinstance(value, str) else value)])
        return f"{word}{value:g}" if isinstance(value, float) else f"{word}{value}"

    def _named(self, key: str) -> bool:
        """Whether every name tells this setting, or none does."""
        table, _, leaf = key.partition(".")
        always = key in ("seed", "data.name", "algorithm.name") or (table == "partition" and leaf in SKEWS)
        return always or key in ("data.root", "data.download", "swa.name")

    @property
    def digest(self) -> str:
        """SHA-256 of the settings that differ from their defaults, but for where the data lie.

        A setting that a later version adds has a default that changes nothing, so runs keep their digests.
        """
        content = self.model_dump(mode="json")
        for key in ("root", "download"):
            content["data"].pop(key)
        return hashlib.sha256(json.dumps(_differing(content, self._usual()), sort_keys=True).encode()).hexdigest()

    def _usual(self) -> dict[str, Any]:
        """The defaults of every setting there is, given the names of the method and the partition."""
        usual = Recipe.model_construct().model_dump(mode="json")
        usual["algorithm"] |= catalog.read_settings(catalog.find_method(self.algorithm.name, {}))
        usual["partition"] |= partition.defaults(self.partition.name)
        return usual | {"swa": Swa().model_dump(mode="json") if self.swa else None}


def _differing(given: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the defaults, table by table; a table that is all defaults is kept where it is optional."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if isinstance(value, Mapping) and isinstance(usual.get(key), Mapping):
            inner = _differing(value, usual[key])
            found |= {key: inner} if inner or key == "swa" else {}
        elif key not in usual or value != usual[key]:
            found[key] = value
    return found


def slugged(text: str) -> str:
    """Letters, digits, and . + - _ only: safe as part of a file's name wherever it comes from."""
    return re.sub(r"[^\w.+-]+", "-", text, flags=re.ASCII).strip(".-")[:32]


def load(source: str | Path, overrides: Sequence[str] = ()) -> list[Recipe]:
    """The recipes of a file (or of a shipped recipe's name): one, or the cross product of its [sweep].

    Several of them, each headed [[sweep]], are made one after the other: for settings that belong together.
    overrides: "key=value" with a dotted key. One that names a swept setting takes its place: "local.lr=0.1" fixes it,
    "sweep.local.lr=[0.1, 0.2]" sweeps other values.
    """
    path = Path(source)
    if path.suffix != ".toml":
        names = [found.stem for found in RECIPES.glob("*.toml")]
        path = RECIPES / f"{choose('recipe', str(source), names)}.toml"
    content = toml.read(path)
    given = content.pop("sweep", {})
    sweeps = given if isinstance(given, list) and given else [given]
    if not all(isinstance(sweep, dict) for sweep in sweeps):
        raise ValueError(
            f'{path}: sweep must be a table such as [sweep] "local.lr" = [0.1, 0.2], got {toml.written(given)}'
        )
    several, fixed = [dict(toml.dotted(sweep)) for sweep in sweeps], {}
    for override in overrides:
        if not toml.is_text(override):
            raise ValueError(f"--set wants text in UTF-8, got '{override[:80]}'")
        key, equals, text = (part.strip() for part in override.partition("="))
        if not equals or not all(key.split(".")) or key.count(".") > toml.DEEP:
            raise ValueError(f"--set wants key=value, for example local.lr=0.1; got '{override[:80]}'")
        if key.startswith("sweep."):
            for axes in several:
                axes[key.removeprefix("sweep.")] = toml.parse(text)
        else:
            fixed[key] = toml.parse(text)
            for axes in several:
                axes.pop(key, None)
    count = sum(combinations(axes, str(path)) for axes in several)
    if count > MOST_RUNS:
        sizes = ", ".join(f"{key} {len(values)}" for axes in several[:3] for key, values in axes.items())
        raise ValueError(
            f"{path}: sweep: {count:,} combinations ({sizes}), at most {MOST_RUNS:,} at a time; split the sweep"
        )
    return [validate(single, str(path)) for axes in several for single in swept(content, axes, fixed, str(path))]


def combinations(axes: Mapping[str, Any], source: str = "recipe") -> int:
    """How many runs the lists in `axes` make, if they are lists. source: where they come from, for messages."""
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            example = "must be a list of values such as [0.1, 0.2]"
            raise ValueError(f"{source}: sweep.{key} {example}, got {toml.written(values)}")
    return math.prod(len(values) for values in axes.values())


def swept(
    content: Mapping[str, Any], axes: Mapping[str, Any], fixed: Mapping[str, Any], source: str = "recipe"
) -> Iterator[dict[str, Any]]:
    """Every combination of the lists in `axes`, named by dotted keys: "local.lr" -> [0.1, 0.01]; `fixed` wins.

    source: where the content comes from, for messages.
    """
    for combination in itertools.product(*axes.values()):
        single = copy.deepcopy(dict(content))
        for key, value in [*zip(axes, combination, strict=True), *fixed.items()]:
            try:
                toml.put(single, key, copy.deepcopy(value))
            except ValueError as error:
                raise ValueError(f"{source}: {error}") from None
        yield single


def validate(content: Mapping[str, Any], source: str = "recipe") -> Recipe:
    """A recipe from nested settings, or every mistake in words."""
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        raise ValueError("\n".join(f"{source}: {_explain(problem)}" for problem in error.errors())) from None


def dump(recipe: Recipe) -> str:
    """The recipe as TOML with every setting spelled out; loading it gives the same recipe."""
    return toml.document(recipe.model_dump(mode="python", exclude_none=True))


def _explain(problem: Any) -> str:
    """One mistake in words: what was expected, what came."""
    kind, place = problem["type"], ".".join(str(part) for part in problem["loc"])
    if kind == "extra_forbidden":
        return _unknown(*problem["loc"])
    if kind == "value_error":
        message = str(problem["ctx"]["error"])
        return f"{place}: {message}" if place and place not in message else message
    context = {key: f"{part:g}" if isinstance(part, float) else part for key, part in problem.get("ctx", {}).items()}
    return f"{place} must be {EXPECTED[kind].format(**context)}, got {toml.written(problem['input'])}"


def _unknown(*loc: str) -> str:
    """A key that nobody knows, with the nearest that somebody does."""
    fields = {name: getattr(field.annotation, "model_fields", {}) for name, field in Recipe.model_fields.items()}
    fields |= {"swa": Swa.model_fields, "augment": Augment.__dataclass_fields__}
    *section, leaf = loc
    elsewhere = [f"{name}.{leaf}" for name, known in fields.items() if leaf in known]
    if elsewhere and not section:
        return f"setting: unknown '{leaf}'; did you mean '{elsewhere[0]}'?"
    try:
        choose(f"setting of {section[0]}" if section else "setting", leaf, fields[section[0]] if section else fields)
    except ValueError as error:
        return str(error)
    raise AssertionError(f"{loc} is known")
