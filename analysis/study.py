"""What a study is: settings, a list of pieces of work, how one is measured, and how they make a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from analysis.store import Table, Variable
from analysis.subjects import GLOBAL_MODELS, Subject
from landscape.errors import choose, positive, whole

Arrays = dict[str, NDArray[Any]]  # what one piece of work found; names with a leading underscore do not reach the file


@dataclass(frozen=True)
class Piece:
    """A piece of work that is done whole or not at all, and kept if the rest is interrupted."""

    key: str  # names it within its study
    passes: float  # gradient evaluations of one example that it takes, for the estimate of time
    vectors: int = 2  # vectors of the model's size that it holds, for the estimate of memory
    round: int = -1
    client: int = -1


@dataclass(frozen=True)
class About:
    """What a setting means, and what it may be."""

    text: str
    choices: tuple[str, ...] = ()  # a word, or every word of a list, is one of these
    least: int | None = None  # of a whole number
    most: int | None = None
    positive: bool = False  # a number above zero
    absent: str = ""  # what none means, where none is allowed


def setting(
    default: Any,
    text: str,
    *,
    choices: Iterable[str] = (),
    least: int | None = None,
    most: int | None = None,
    positive: bool = False,
    absent: str = "",
) -> Any:
    """A field of a study's settings, with what `landscape list studies NAME` says of it; see `About`."""
    return dataclasses.field(
        default=default, metadata={"about": About(text, tuple(choices), least, most, positive, absent)}
    )


def about(settings: type[Any]) -> dict[str, About]:
    """What every setting means."""
    return {field.name: field.metadata["about"] for field in dataclasses.fields(settings)}


class Checked:
    """Settings whose values are what `setting` said they may be."""

    def __post_init__(self) -> None:
        for name, said in about(type(self)).items():
            value = getattr(self, name)
            if value is None:
                continue
            for one in value if isinstance(value, tuple) else (value,):
                if said.choices:
                    choose(name, one, said.choices)
                if said.least is not None:
                    whole(name, one, said.least, said.most)
                if said.positive:
                    positive(name, one)


def limit_setting() -> Any:
    """How many examples a study looks at; the same in every study."""
    text = "most examples of each data set that is looked at (everyone's, or one client's), drawn by class"
    return setting(None, text, least=1, absent="all of them")


def seed_setting() -> Any:
    return setting(0, "of whatever is drawn at random", least=0)


def rounds_setting(default: str) -> Any:
    """The rounds a study looks at."""
    return setting(default, 'rounds that have a checkpoint: last, all, "every 10", or numbers like 0,50,100')


def model_setting(default: str = "final", choices: Iterable[str] = GLOBAL_MODELS) -> Any:
    """Which of a checkpoint's global models a study looks at."""
    text = (
        "the server's model, the plain mean of the participants, or the average of rounds; final: the one that counts"
    )
    return setting(default, text, choices=choices)


@dataclass(frozen=True)
class Study:
    """One study. `subjects` has one entry, unless the study compares runs (`together`)."""

    name: str
    about: str
    settings: type[Any]  # a frozen dataclass with defaults
    rounds: Callable[[Subject, Any], Sequence[int]]  # the rounds that the answer depends on
    pieces: Callable[[Sequence[Subject], Any], Sequence[Piece]]
    # (subjects, settings, piece, what earlier pieces found) -> what this one finds
    measure: Callable[[Sequence[Subject], Any, Piece, Mapping[str, Arrays]], Arrays]
    tables: Callable[[Sequence[Subject], Any, Mapping[str, Arrays]], dict[str, Table]]
    together: bool = False
    papers: str = ""  # the seeds' tables and figures that it answers


def choose_settings(study: Study, given: Mapping[str, Any]) -> Any:
    """The study's settings with some changed; each keeps the type of its default."""
    fields = {field.name: field.default for field in dataclasses.fields(study.settings)}
    hints = get_type_hints(study.settings)
    changes = {}
    for key, value in given.items():
        if not fields:
            raise ValueError(f"{study.name} has no settings, got '{key}'")
        default = fields[choose(f"setting of {study.name}", key, fields)]
        changes[key] = _like(f"{study.name}.{key}", value, default, hints[key])
    return study.settings(**changes)


def _like(what: str, value: Any, default: Any, hint: Any) -> Any:
    """The value in the type of its default; where that is None, in the other type of the annotation."""
    if default is None and value is not None:
        default = next((kind() for kind in get_args(hint) if kind is not type(None)), value)
    if value is None or type(value) is type(default):
        return value
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, tuple) and isinstance(value, list):
        return tuple(value)
    if isinstance(default, str) and type(value) in (int, float):
        return str(value)  # rounds = 10
    words = {bool: "true or false", str: "a word", float: "a number", int: "a whole number", tuple: "a list"}
    raise ValueError(f"{what} must be {words[type(default)]}, got {value!r}")


def variable(
    found: Mapping[str, Arrays], keys: Sequence[str], name: str, dims: tuple[str, ...], long_name: str, units: str = "1"
) -> Variable:
    """A variable whose first axis runs over pieces of work."""
    return Variable(dims, stacked(found, keys, name), long_name, units)


def stacked(found: Mapping[str, Arrays], keys: Sequence[str], name: str) -> NDArray[Any]:
    """One array of every piece, in order; shorter ones are filled up with NaN."""
    parts = [np.asarray(found[key][name]) for key in keys]
    shape = tuple(max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)) if parts else ()
    if all(part.shape == shape for part in parts):
        return np.stack(parts)
    whole = np.full((len(parts), *shape), np.nan)
    for row, part in enumerate(parts):
        whole[row][tuple(slice(0, size) for size in part.shape)] = part
    return whole
