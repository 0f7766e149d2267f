"""What a study is: settings, pieces of work, and a function that measures one piece into a Dataset."""

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
from training.settings import Count, Names, Positive, Whole

Floats = NDArray[np.float64]
Datasets = Sequence[xr.Dataset]
Part = tuple[xr.Variable, Mapping[Hashable, Sequence[int]]]  # of a variable, and where its entries go by dimension
Split = Literal["train", "test"]
GlobalModel = Literal["final", "server", "mean", "swa"]
ALL_ROUNDS = -1


@dataclass(frozen=True)
class Piece:
    """One unit of a study's work, which is stored as soon as it is measured.

    A study with other coordinates than round and client makes a subclass with a field for each of them.

    round: the communication round that is measured; ALL_ROUNDS: the piece is not of one round.
    client: the client whose model or data are measured; None: the global model, or everyone's data.
    passes: gradient evaluations of one example that it takes, for the estimate of time.
    vectors: vectors of the model's size that it holds, for the estimate of memory.
    after: pieces whose Datasets `measure` is given, in this order; they are measured first.
    """

    dims: ClassVar[tuple[str, ...]] = ("round", "client")  # fields that become dimensions of the answer
    round: int = ALL_ROUNDS
    client: int | None = None
    passes: float = field(default=0.0, compare=False, kw_only=True)
    vectors: int = field(default=2, compare=False, kw_only=True)
    after: tuple[Piece, ...] = field(default=(), compare=False, kw_only=True)

    @property
    def coordinates(self) -> dict[str, int | str | float]:
        """The coordinates of the piece by name, without those that it does not have."""
        known = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.compare}
        return {name: value for name, value in known.items() if value not in (None, ALL_ROUNDS)}

    @property
    def name(self) -> str:
        """The coordinates as text, for messages and for the name of its file; never parsed."""
        return ", ".join(f"{name} {value}" for name, value in self.coordinates.items())


@dataclass(frozen=True)
class Study:
    """One study. Its functions are given a subject, or a list of them if it compares runs (`together`).

    name: as on the command line and in the names of files.
    doc: the docstring of its module.
    settings: a class made by `training.settings.settings`, with defaults for all fields.
    pieces: lists the work: (subject, settings) -> pieces.
    measure: (subject, settings, piece, Datasets of the pieces in `piece.after`) -> what the piece finds. The runner
        adds the coordinates of the piece as leading dimensions of every data variable, and joins pieces by their
        coordinates. Variables whose names begin with an underscore are for later pieces and do not reach the answer.
    derive: adds what only all pieces together tell, such as means over clients: (subject, settings, answer) -> answer.
    rounds: the rounds of a subject that the answer depends on; by default those that its settings select.
    together: whether it compares runs.
    papers: the tables and figures of the papers that it answers.
    """

    name: str
    doc: str
    settings: type[Any]
    pieces: Callable[[Any, Any], Sequence[Piece]]
    measure: Callable[[Any, Any, Any, Datasets], xr.Dataset]
    derive: Callable[[Any, Any, xr.Dataset], xr.Dataset] | None = None
    rounds: Callable[[Subject, Any], Sequence[int]] = lambda subject, settings: subject.select(settings.rounds)
    together: bool = False
    papers: str = ""

    @property
    def about(self) -> str:
        """What it measures: the first line of its documentation."""
        return self.doc.partition("\n")[0]


def variable(dims: str | Sequence[str], values: ArrayLike, long_name: str, units: str = "1") -> xr.Variable:
    """Make an array with named axes, a description and units.

    >>> variable("rank", [3.0, 1.0], "eigenvalue of the Hessian").dims
    ('rank',)
    """
    return xr.Variable(dims, np.asarray(values), {"long_name": long_name, "units": units})


def scalar(value: float, long_name: str, units: str = "1") -> xr.Variable:
    """Make a single number; the runner gives it the dimensions of its piece."""
    return variable((), value, long_name, units)


COORDINATES = {  # what the coordinates that studies share mean, where their names do not say it
    "round": "communication round",
    "rank": "rank of the eigenvalue, largest first",
    "layer": "parameter tensor",
    "split": "data that were evaluated",
}


def expand(piece: Piece, found: xr.Dataset) -> xr.Dataset:
    """Give every data variable of a piece its coordinates as leading dimensions."""
    coordinates = piece.coordinates
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
    axes = _join_axes(datasets)
    sizes = {dim: max(one.sizes.get(dim, 0) for one in datasets) for one in datasets for dim in one.sizes}
    sizes |= {dim: len(axis) for dim, axis in axes.items()}
    positions = {dim: {value: place for place, value in enumerate(axis.values.tolist())} for dim, axis in axes.items()}
    parts: dict[Hashable, list[Part]] = {}
    for one in datasets:
        places: dict[Hashable, Sequence[int]] = {dim: range(size) for dim, size in one.sizes.items()}
        for dim in places.keys() & one.variables.keys():
            places[dim] = [positions[dim][value] for value in one.variables[dim].values.tolist()]
        for name in one.variables.keys() - axes.keys():
            parts.setdefault(name, []).append((one.variables[name], places))
    names = dict.fromkeys(name for one in datasets for name in one.variables if name in parts)
    joined = xr.Dataset({name: _assemble(str(name), parts[name], sizes) for name in names}, axes, datasets[0].attrs)
    return joined.set_coords([name for name in names if any(name in one.coords for one in datasets)])


def _join_axes(datasets: Datasets) -> dict[Hashable, xr.Variable]:
    """Every dimension that has coordinates: numbers in ascending order, texts as they come."""
    axes = {}
    for dim in dict.fromkeys(dim for one in datasets for dim in one.sizes if dim in one.variables):
        parts = [one.variables[dim] for one in datasets if dim in one.variables]
        values = np.concatenate([part.values for part in parts])
        unique, first = np.unique(values, return_index=True)
        name = str(dim)
        about = {"long_name": COORDINATES.get(name, name.replace("_", " ")), "units": "1"}
        ordered = unique if values.dtype.kind in "iuf" else values[np.sort(first)]
        axes[dim] = xr.Variable(dim, ordered, parts[0].attrs or about)
    return axes


def _assemble(name: str, parts: Sequence[Part], sizes: Mapping[Hashable, int]) -> xr.Variable:
    """One variable from those of the pieces.

    sizes: the length of each dimension.
    """
    first = parts[0][0]
    if any(part.dims != first.dims for part, _ in parts):
        raise AssertionError(f"{name} has dimensions {sorted({part.dims for part, _ in parts})}: expected one kind")
    cells = np.zeros([sizes[dim] for dim in first.dims], dtype=np.result_type(*(part.dtype for part, _ in parts)))
    filled = np.zeros(cells.shape, dtype=bool)
    for part, places in parts:
        index = np.ix_(*(places[dim] for dim in part.dims))
        cells[index], filled[index] = part.values, True
    if not filled.all() and cells.dtype.kind not in "US":
        cells = np.where(filled, cells.astype(np.float64), np.nan)
    return xr.Variable(first.dims, cells, first.attrs)


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
Clients = Annotated[Count | None, Field(description="most clients that are measured; none: all of them")]
Top = Annotated[Count, Field(description="how many of the largest eigenvalues")]
Tolerance = Annotated[Positive, Field(description="residual ||H v - lambda v|| / |lambda| to reach")]
Seed = Annotated[Whole, Field(description="seed of whatever is drawn at random")]


def require_names(known: Iterable[str], *, empty: bool = False) -> AfterValidator:
    """A check for a setting that lists some of a few known names, each once: `Annotated[Names, require_names("ab")]`.

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


Splits = Annotated[Names, require_names(get_args(Split))]
