"""Stored loss surfaces as figures need them: of the runs of a section, on comparable axes, with what to say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.store import Answer
from landscape.plotting.scales import Scale
from reports import variants
from reports.inputs.runs import Collection, Run
from reports.palette import assign_looks
from reports.plotting.origins import Origin, read_origins
from reports.rows import Row
from training.storage.verified_files import Json

MOST = 12  # panels; with more runs each method is shown by one seed
ABOUT = {
    "random": "two random directions (seed {seed}), filter-normalised to each model",
    "shared": "two random directions (seed {seed}), filter-normalised to the first run's model and the same for all",
    "eigen": "eigenvectors of the two largest Hessian eigenvalues of each model",
}


@dataclass(frozen=True, eq=False)
class Surface:
    """Loss and error of one model around itself.

    run: the run of the model.
    round: its communication round.
    client: the participant whose model it is; None: the global model.
    split: the data: train, test, or a client's own training data (own).
    x, y: coordinates along the two directions.
    loss, error: indexed [x, y].
    examples: how many there were; 0 where it is not on record.
    answer: what it was read from.
    """

    run: Run
    round: int
    client: int | None
    split: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    loss: NDArray[np.float64]
    error: NDArray[np.float64]
    examples: int
    answer: Answer

    @property
    def view(self) -> str:
        """The data from the model's point of view: train, test; of a participant's model own, everyone."""
        return "everyone" if self.client is not None and self.split == "train" else self.split

    @property
    def about(self) -> Json:
        """How the axes were made."""
        return self.answer.data.attrs

    def rows(self, scale: Scale, field: str = "loss") -> list[Row]:
        """Stored numbers, and what is drawn of them."""
        stored = getattr(self, field)
        drawn = scale.shown(stored if field == "loss" else 100 * stored)
        whose: Row = {} if self.client is None else {"client": self.client}
        where: Row = {
            "run": self.run.name,
            "algorithm": self.run.algorithm,
            "round": self.round,
            **whose,
            "data": self.view,
        }
        return [
            {**where, "x": x, "y": y, field: stored[i, j], "drawn": drawn[i, j]}
            for i, x in enumerate(self.x)
            for j, y in enumerate(self.y)
        ]


def find_global_surfaces(runs: Sequence[Run], everything: Collection, split: str = "train") -> list[Surface]:
    """Find the last surface of every run that has one, in the order of methods; FedAvg, if there, comes first."""
    found = [
        rounds[-1] for run in sort_runs(runs, everything) if (rounds := find_surfaces(run, runs, everything, split))
    ]
    return found if len(found) <= MOST else keep_one_seed(found)


def sort_runs(runs: Sequence[Run], everything: Collection) -> list[Run]:
    """Sort runs by method as in every legend, then by seed."""
    order = list(assign_looks(run.algorithm for run in everything.runs))
    return sorted(runs, key=lambda run: (order.index(run.algorithm), run.seed))


def find_local_surfaces(runs: Sequence[Run], everything: Collection) -> list[tuple[Surface, Surface]]:
    """Find participants' surfaces of the last stored round: on their own data, and on everyone's."""
    pairs = []
    for run in sort_runs(runs, everything):
        own, everyone = (find_surfaces(run, runs, everything, split, local=True) for split in ("own", "train"))
        pairs += [both for both in zip(own, everyone, strict=True) if both[0].round == own[-1].round]
    return pairs


def find_surfaces(
    run: Run, runs: Sequence[Run], everything: Collection, split: str, *, local: bool = False
) -> list[Surface]:
    """A run's surfaces in the order of rounds; from the answer that compares most of the runs, else from its own.

    runs: those of the section.
    split: the data.
    local: whether of participants' models, instead of global ones.
    """
    names, own = {one.name for one in runs}, run.answer("surface")
    together = sorted(
        everything.together.get("surface", []),
        key=lambda one: -len(names & set(one.data["model_run"].values.tolist())),
    )
    for answer in [*together, *([own] if own is not None else [])]:
        models = [
            (number, one)
            for number, one in enumerate(read_origins(answer.data, "model"))
            if (one.client is not None) == local
        ]
        mine = [(number, one) for number, one in models if one.run == run.name]
        if not mine and answer is own and len({one.run for _, one in models}) == 1:
            mine = models  # the directory was called otherwise then
        if mine and _was_measured(answer, [number for number, _ in mine], split):
            mine.sort(key=lambda one: one[1].round)
            return [_read_surface(answer, number, one, split, run) for number, one in mine]
    return []


def _was_measured(answer: Answer, models: Sequence[int], split: str) -> bool:
    """Whether these models were evaluated on a split."""
    done = answer.data["done"].isel(model=list(models))
    return split in done["split"].values and bool(done.sel(split=split).any())


def _read_surface(answer: Answer, number: int, origin: Origin, split: str, run: Run) -> Surface:
    data = answer.data.isel(model=number).sel(split=split)
    return Surface(
        run=run,
        round=origin.round,
        client=origin.client,
        split=split,
        x=data["x"].values,
        y=data["y"].values,
        loss=data["loss"].values,
        error=data["error"].values,
        examples=int(data["examples"]) if "examples" in data else 0,
        answer=answer,
    )


def keep_one_seed(surfaces: Sequence[Surface]) -> list[Surface]:
    """Keep the surfaces of the first one's seed, and the first of every method that lacks it."""
    seed = surfaces[0].run.seed
    there = {one.run.algorithm for one in surfaces if one.run.seed == seed}
    kept: list[Surface] = []
    for one in surfaces:
        missing = one.run.algorithm not in there and one.run.algorithm not in {other.run.algorithm for other in kept}
        kept += [one] * (one.run.seed == seed or missing)
    return kept


def find_comparison(runs: Sequence[Run], everything: Collection) -> tuple[Surface, list[Surface]] | None:
    """Find the baseline and the surfaces on the same grid and axes; None if there are none."""
    found = find_global_surfaces(runs, everything)
    if not found:
        return None
    base, *others = keep_one_seed(found)
    same = [one for one in others if _can_be_compared(base, one)]
    return (base, same) if same else None


def _can_be_compared(one: Surface, other: Surface) -> bool:
    made = [(surface.about.get("axes"), surface.about.get("seed")) for surface in (one, other)]
    return made[0] == made[1] and np.array_equal(one.x, other.x) and np.array_equal(one.y, other.y)


def name_surfaces(surfaces: Sequence[Surface], everything: Collection) -> list[str]:
    """Name surfaces by method and what they differ in, and by run where even that is not enough."""
    named = variants.make_titles(list({one.run.name: one.run for one in surfaces}.values()), everything)
    texts = [named[one.run.name] for one in surfaces]
    return [
        text if texts.count(text) == 1 else f"{text}, {one.run.name}" for text, one in zip(texts, surfaces, strict=True)
    ]


def add_minimum(name: str, surface: Surface, scale: Scale) -> str:
    """Add its lowest loss to the name of a surface where heights are logarithmic: a lower bowl looks steeper there."""
    known = surface.loss[np.isfinite(surface.loss)]
    return f"{name}, lowest loss {known.min():.2g}" if scale.log and len(known) else name


def _compare_minima(surfaces: Sequence[Surface]) -> str:
    """Say for a caption how low each surface goes: along a logarithmic axis a lower bowl looks steeper than it is."""
    lowest = {one.run.name: (one.run.method, np.nanmin(one.loss)) for one in surfaces if np.isfinite(one.loss).any()}
    if len(lowest) < 2:
        return ""
    said = ", ".join(f"{method} {value:.2g}" for method, value in lowest.values())
    return (
        f"lowest loss: {said} (along a logarithmic axis a lower bowl looks steeper than an equally curved higher one)"
    )


def belongs_to(surface: Surface) -> Json:
    """The entry of a plotly trace that tells the page whose surface it is: it is hidden with its run."""
    return {"meta": {"run": surface.run.name}}


def name_axes(surface: Surface) -> tuple[str, str]:
    """Name the two axes of a surface."""
    if surface.about.get("axes") == "eigen":
        return "along eigenvector 1 (weight distance)", "along eigenvector 2 (weight distance)"
    return "direction 1 (filter-normalised)", "direction 2 (filter-normalised)"


def describe(surfaces: Sequence[Surface], what: str, scale: Scale | None = None) -> list[str]:
    """Describe surfaces for a caption: what was measured, on how many examples, and how.

    what: the quantity that is drawn.
    scale: its scale; None where nothing is clipped.
    """
    first = surfaces[0]
    counts, rounds, seeds = (
        ", ".join(map(str, sorted(set(values))))
        for values in (
            [one.examples for one in surfaces if one.examples],
            [one.round for one in surfaces],
            [one.run.seed for one in surfaces],
        )
    )
    holes = any(np.isnan(one.loss).any() for one in surfaces)
    return [
        first.run.data_name,
        first.run.heterogeneity,
        f"{what}, n = {counts}" if counts else what,
        f"{first.answer.settings.get('model', 'server')} model of round {rounds}",
        ABOUT.get(str(first.about.get("axes")), "").format(seed=first.about.get("seed")),
        f"BatchNorm {first.about.get('batchnorm', 'frozen')}",
        f"seed {seeds}",
        scale.describe() if scale is not None else "",
        _compare_minima(surfaces) if scale is not None and scale.log else "",
        "holes or hatching: no loss could be computed" if holes else "",
    ]
