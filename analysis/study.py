"""What a study is: settings, pieces of work, and how one piece is measured into a Dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from analysis.subjects import Subject, check_rounds
from landscape.errors import choose
from training.settings import Count, Names, Whole

Array = NDArray[Any]
Split = Literal["train", "test"]
GlobalModel = Literal["final", "server", "mean", "swa"]


@dataclass(frozen=True)
class Piece:
    """One unit of a study's work: it is measured whole or not at all, and kept if the rest is interrupted.

    A study with other coordinates than round and client makes a subclass with a field for each of them.

    round: the communication round that is measured.
    client: the client whose model or data are measured; None: the global model, or everyone's data.
    passes: gradient evaluations of one example that it takes, for the estimate of time.
    vectors: vectors of the model's size that it holds, for the estimate of memory.
    after: pieces whose Datasets `measure` is given, in this order; they are measured first.
    """

    dims: ClassVar[tuple[str, ...]] = ("round", "client")  # fields that become dimensions of the answer
    round: int | None = None
    client: int | None = None
    passes: float = field(default=0.0, compare=False, kw_only=True)
    vectors: int = field(default=2, compare=False, kw_only=True)
    after: tuple[Piece, ...] = field(default=(), compare=False, kw_only=True)

    @property
    def coordinates(self) -> dict[str, int | str | float]:
        """Where the piece stands, by the names of its coordinates; those that are None are left out."""
        known = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.compare}
        return {name: value for name, value in known.items() if value is not None}

    @property
    def name(self) -> str:
        """The coordinates for a person, and for the name of its file; never parsed."""
        return ", ".join(f"{name} {value}" for name, value in self.coordinates.items())


@dataclass(frozen=True)
class Study:
    """One study. `subjects` has one entry, unless the study compares runs (`together`).

    name: as on the command line and in the names of files.
    about: what it measures, in one line.
    settings: a class made by `training.settings.settings`, with defaults for all fields.
    pieces: the work there is.
    measure: (subjects, settings, piece, Datasets of the pieces in `piece.after`) -> what the piece finds. The runner
        adds the coordinates of the piece as leading dimensions of every data variable, and joins pieces by their
        coordinates. Variables whose names begin with an underscore are for later pieces and do not reach the answer.
    rounds: the rounds of a subject that the answer depends on; by default those that its settings select.
    derive: adds what only all pieces together tell, such as means over clients: (subjects, settings, answer) -> answer.
    together: whether it compares runs.
    papers: the tables and figures of the papers that it answers.
    """

    name: str
    about: str
    settings: type[Any]
    pieces: Callable[[Sequence[Subject], Any], Sequence[Piece]]
    measure: Callable[[Sequence[Subject], Any, Any, Sequence[xr.Dataset]], xr.Dataset]
    rounds: Callable[[Subject, Any], Sequence[int]] = lambda subject, settings: subject.select(settings.rounds)
    derive: Callable[[Sequence[Subject], Any, xr.Dataset], xr.Dataset] | None = None
    together: bool = False
    papers: str = ""


def variable(dims: str | Sequence[str], values: ArrayLike, long_name: str, units: str = "1") -> xr.Variable:
    """An array with named axes, a description and units.

    >>> variable("rank", [3.0, 1.0], "eigenvalue of the Hessian").dims
    ('rank',)
    """
    return xr.Variable(dims, np.asarray(values), {"long_name": long_name, "units": units})


def scalar(value: float, long_name: str, units: str = "1") -> xr.Variable:
    """A single number; the runner gives it the dimensions of its piece."""
    return variable((), value, long_name, units)


COORDINATES = {  # what the coordinates that studies share mean
    "round": "communication round",
    "client": "client",
    "rank": "rank of the eigenvalue, largest first",
    "class": "class",
    "layer": "parameter tensor",
    "split": "data that were evaluated",
}


def expand(piece: Piece, found: xr.Dataset) -> xr.Dataset:
    """Give every data variable of a piece its coordinates as leading dimensions."""
    coordinates = {name: value for name, value in piece.coordinates.items() if name in piece.dims}
    there = {dim for one in found.data_vars.values() for dim in one.dims}
    leading = [name for name in piece.dims if name in coordinates and name not in there]
    expanded = {
        name: xr.Variable((*leading, *one.dims), np.asarray(one.values)[(None,) * len(leading)], one.attrs)
        for name, one in found.data_vars.items()
    }
    return xr.Dataset(expanded, {**found.coords, **{name: [coordinates[name]] for name in leading}}, found.attrs)


def combine(found: Iterable[xr.Dataset]) -> xr.Dataset:
    """Join Datasets by their coordinates; what no piece has measured is NaN, or "" among texts.

    `xarray.merge` does the same, but takes four times as long and turns whole numbers into floats.

    found: Datasets whose variables have the same dimensions wherever they occur. A dimension without coordinates is as
        long as the longest of its kind.
    """
    datasets = list(found)
    pieces = [{str(name): one.variables[name] for name in one.variables} for one in datasets]
    axes = _join_axes(datasets, pieces)
    sizes = {dim: max(one.sizes.get(dim, 0) for one in datasets) for one in datasets for dim in one.sizes}
    sizes |= {dim: len(values) for dim, values in axes.items()}
    first: dict[str, xr.Variable] = {name: one for piece in reversed(pieces) for name, one in piece.items()}
    cells, filled = {}, {}
    for name in first:
        if name not in axes:
            cells[name] = _make_room(name, [piece[name] for piece in pieces if name in piece], sizes)
            filled[name] = np.zeros(cells[name].shape, dtype=bool)
    positions = {dim: {value: place for place, value in enumerate(values.tolist())} for dim, values in axes.items()}
    for one, piece in zip(datasets, pieces, strict=True):
        places = {dim: _places(one.sizes[dim], piece.get(str(dim)), positions.get(str(dim))) for dim in one.sizes}
        for name in piece:
            if name in cells:
                index = np.ix_(*(places[dim] for dim in piece[name].dims))
                cells[name][index], filled[name][index] = piece[name].values, True
    variables = {
        name: xr.Variable(first[name].dims, _mark_missing(cells[name], filled[name]), first[name].attrs)
        for name in cells
    }
    coords = {dim: xr.Variable(dim, values, first[dim].attrs or _about(dim)) for dim, values in axes.items()}
    joined = xr.Dataset(variables, coords, datasets[0].attrs if datasets else None)
    return joined.set_coords([name for name in variables if any(name in one.coords for one in datasets)])


def _about(dim: str) -> dict[str, str]:
    return {"long_name": COORDINATES.get(dim, dim.replace("_", " ")), "units": "1"}


def _join_axes(datasets: Sequence[xr.Dataset], pieces: Sequence[Mapping[str, xr.Variable]]) -> dict[str, Array]:
    """The values of every dimension that has coordinates: numbers in ascending order, texts as they come."""
    axes: dict[str, Array] = {}
    for dim in dict.fromkeys(str(dim) for one in datasets for dim in one.sizes if dim in one.variables):
        values = np.concatenate([piece[dim].values for piece in pieces if dim in piece])
        unique, first = np.unique(values, return_index=True)
        axes[dim] = unique if values.dtype.kind in "iuf" else values[np.sort(first)]
    return axes


def _places(size: int, coordinate: xr.Variable | None, positions: Mapping[object, int] | None) -> Array:
    """Where the entries of a dimension go in the joined one."""
    if coordinate is None or positions is None:
        return np.arange(size)
    return np.asarray([positions[value] for value in coordinate.values.tolist()], dtype=np.intp)


def _make_room(name: str, parts: Sequence[xr.Variable], sizes: Mapping[Hashable, int]) -> Array:
    """An array for a variable of all pieces."""
    if any(part.dims != parts[0].dims for part in parts):
        raise AssertionError(f"{name} has dimensions {sorted({part.dims for part in parts})}: expected one kind")
    shape = [sizes[dim] for dim in parts[0].dims]
    return np.zeros(shape, dtype=np.result_type(*(part.dtype for part in parts)))


def _mark_missing(cells: Array, filled: NDArray[np.bool_]) -> Array:
    """NaN for what was not measured; texts stay empty."""
    if filled.all() or cells.dtype.kind in "US":
        return cells
    return np.where(filled, cells.astype(np.float64), np.nan)


Rounds = Annotated[
    str,
    Field(description='rounds that have a checkpoint: last, all, "every 10", or numbers like 0,50,100'),
    BeforeValidator(lambda given: str(given) if type(given) is int else given),  # rounds = 10
    AfterValidator(check_rounds),
]
Model = Annotated[
    GlobalModel,
    Field(
        description="server: the server's model; mean: of the participants; swa: average of rounds; final: swa if any"
    ),
]
Limit = Annotated[
    Count | None,
    Field(description="most examples of each data set (everyone's, or one client's), drawn by class; none: all"),
]
Seed = Annotated[Whole, Field(description="seed of whatever is drawn at random")]


def names_among(known: Iterable[str], *, empty: bool = False) -> AfterValidator:
    """A check for a setting that lists some of a few known names, each once: `Annotated[Names, names_among("ab")]`.

    empty: whether the list may be empty.
    """

    def check(given: tuple[str, ...], about: ValidationInfo) -> tuple[str, ...]:
        what = str(about.field_name)
        if len(set(given)) < len(given) or not (given or empty):
            raise ValueError(f"{what} must be a list of some of {', '.join(known)}, each once; got {list(given)!r}")
        for one in given:
            choose(what, one, list(known))
        return given

    return AfterValidator(check)


Splits = Annotated[Names, names_among(get_args(Split))]
