"""Which run, round and client a model comes from, and how models are loaded, described and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from torch import Tensor

from analysis.study import Piece, variable
from analysis.subjects import Run, Subject
from landscape import Layout
from training.storage.atomic_files import DamagedError

Reference = Literal["sent", "global"]
Measure = Callable[[int | None], Mapping[str, ArrayLike]]
OWN = "own"  # the split of a participant's own training data
NOBODY = -1  # the client of a global model, in files


@dataclass(frozen=True)
class ModelPoint:
    """A stored model.

    run: its place among the subjects of a study.
    round: the communication round.
    client: the participant whose model it is; None: the global model.
    """

    run: int
    round: int
    client: int | None = None

    def load(self, subjects: Sequence[Subject], model: str) -> Tensor:
        """Its weights, followed by running statistics where there are norm layers.

        model: which of the global models, if it is one.
        """
        subject = subjects[self.run]
        if self.client is None:
            return subject.point(self.round, model)
        return subject.local_points(self.round)[self.client]

    def find_data(self, split: str) -> tuple[str, int | None]:
        """A split, and the client whose data it is; None: everyone's."""
        return ("train", self.client) if split == OWN else (split, None)

    def describe(self, subjects: Sequence[Subject]) -> str:
        """A name for messages and progress bars."""
        whose = "" if self.client is None else f" client {self.client}"
        return f"{name_runs(subjects)[self.run]} round {self.round}{whose}"


def tell_origin(
    what: str, dims: str | Sequence[str], points: Sequence[ModelPoint], subjects: Sequence[Subject]
) -> dict[str, xr.Variable]:
    """Typed variables that say where models come from: `<what>_run`, `<what>_round` and `<what>_client`.

    what: the first word of the names, such as "start".
    dims: () for one model, the name of an axis for several.
    """
    runs = name_runs(subjects)
    columns: dict[str, tuple[Sequence[str | int], str]] = {
        "run": ([runs[one.run] for one in points], "run"),
        "round": ([one.round for one in points], "communication round"),
        "client": ([NOBODY if one.client is None else one.client for one in points], "client; -1: the global model"),
    }
    return {
        f"{what}_{name}": variable(dims, np.asarray(values if dims else values[0]), f"{about} of the {what} model")
        for name, (values, about) in columns.items()
    }


def load_participants(subject: Subject, round: int, most: int | None = None) -> dict[int, Tensor]:
    """The models of a round's participants by client, `most` of them at most; empty where a run kept none."""
    try:
        found = subject.local_points(round)
    except DamagedError:
        raise
    except ValueError:
        return {}
    return {client: found[client] for client in sorted(found)[:most]}


def list_participants(subject: Subject, rounds: Sequence[int], most: int | None = None) -> dict[int, list[int]]:
    """The participants of each of these rounds that kept local models, `most` of each; an error if none did."""
    found = {round: list(kept) for round in rounds if (kept := load_participants(subject, round, most))}
    if not found:
        subject.local_points(rounds[-1])  # says what is missing
    return found


def name_runs(subjects: Sequence[Subject]) -> list[str]:
    """The names of runs, numbered where two have the same."""
    names = [subject.name for subject in subjects]
    return [f"{name} ({place})" if names.count(name) > 1 else name for place, name in enumerate(names, start=1)]


def check_architectures(subjects: Sequence[Subject]) -> None:
    """Refuse models that are not of one architecture."""
    names = name_runs(subjects)
    shapes = [{e.name: e.shape for e in Layout.of(one.model, statistics=True).entries} for one in subjects]
    for name, other in zip(names, shapes, strict=True):
        odd = sorted(key for key in {*shapes[0], *other} if shapes[0].get(key) != other.get(key))
        if odd:
            raise ValueError(
                f"models must be of one architecture, but '{odd[0]}' has shape {shapes[0].get(odd[0])} in {names[0]} "
                f"and {other.get(odd[0])} in {name}: compare runs that trained the same network"
            )


def match_rounds(subjects: Sequence[Subject], rounds: str) -> list[tuple[ModelPoint, ...]]:
    """The runs' global models of the same rounds, one tuple for each round; "last" takes each run's own."""
    selected = [subject.select(rounds) for subject in subjects]
    if rounds != "last" and any(some != selected[0] for some in selected):
        found = "; ".join(f"{name}: {some}" for name, some in zip(name_runs(subjects), selected, strict=True))
        raise ValueError(f'runs have different rounds ({found}): write those they share, or rounds = "last"')
    return [tuple(ModelPoint(run, round) for run, round in enumerate(some)) for some in zip(*selected, strict=True)]


def load_model(subject: Subject, piece: Piece) -> Tensor:
    """The model that a piece is about: a participant's, or the server's."""
    return ModelPoint(0, piece.round, piece.client).load([subject], "server")


def describe_views(
    piece: Piece, clients: Sequence[int], measure_on: Measure, axis: str, about: Mapping[str, str], everyone: bool
) -> dict[str, xr.Variable]:
    """A participant's model on its own data and on everyone's; or the global one on everyone's and on each client's.

    piece: of the participant, or of the global model.
    clients: on whose data the global model is seen.
    measure_on: measures the model on a client's data, or on everyone's (None): numbers, or arrays over `axis`.
    about: long names of what it measures; {model} stands for which model on which data.
    everyone: whether a participant's model is seen on everyone's data too.
    """
    if piece.client is not None:
        views = {"local": ("the client's model on its own data", measure_on(piece.client))}
        if everyone:
            views["global"] = ("the client's model on everyone's data", measure_on(None))
    else:
        views = {"global_model": ("the global model on everyone's data", measure_on(None))}
        if clients:
            each = [measure_on(client) for client in clients]
            stacked = {name: np.stack([one[name] for one in each]) for name in about}
            views["global_model_on_client"] = ("the global model on each client's data", stacked)
    found = {}
    for prefix, (model, values) in views.items():
        for name, text in about.items():
            dims = ("client", axis) if prefix == "global_model_on_client" else (axis,)
            found[f"{prefix}_{name}"] = variable(dims[: np.ndim(values[name])], values[name], text.format(model=model))
    return found


def find_reference(subject: Subject, wanted: Reference, round: int) -> Tensor:
    """What local models are compared with.

    wanted: "sent", the point at which they began, which must be on record; or "global", the model made of them.
    """
    if wanted == "global":
        return subject.point(round)
    found = subject.sent_point(round)
    if found is None:
        kept = [str(one) for one in subject.rounds if subject.sent_point(one) is not None]
        advice = 'Train with checkpoints.keep_locals = "all" (runs of earlier versions never kept it)'
        if isinstance(subject, Run) and subject.recipe.adopted is not None:
            advice = "Adopt the run again with adopt.sent_models"
        raise ValueError(
            f"{subject.name}: round {round} does not keep the point that was sent; rounds that do: "
            f"{', '.join(kept) or 'none'}. {advice}, "
            'or set reference = "global" to compare with the model that was made of the local ones'
        )
    return found
