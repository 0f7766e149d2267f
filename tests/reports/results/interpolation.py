"""What the study `interpolation` stores: one line for every pair of models, under every treatment of norm layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from analysis import store
from analysis.store import Answer
from analysis.study import variable

X = np.linspace(-1, 2, 7)
End = tuple[str, int, int]  # run, round, client; -1: the global model
Pair = tuple[str, End, End]  # kind, and the models at both ends
ROUNDS: tuple[Pair, ...] = (("round-round", ("run_a", 5, -1), ("run_a", 10, -1)),)


def stored(
    pairs: Sequence[Pair] = ROUNDS,
    policies: Sequence[str] = ("interpolated", "recomputed"),
    barriers: Sequence[float] = (),
) -> Answer:
    """Pair i has train loss 1 + i + x^2, test loss 2 + i + x^2 (the policy after the first: 100 more), barrier 0.25."""
    count, treatments = len(pairs), len(policies)
    base = np.arange(count)[:, None, None, None] + 100.0 * np.arange(treatments)[:, None, None]
    loss = base + np.stack([1 + X**2, 2 + X**2])
    lines = ("pair", "batchnorm", "split")
    by_x, by_definition, refinement = ((*lines, last) for last in ("x", "definition", "refinement"))
    shape = (count, treatments, 2, 3)
    heights = np.broadcast_to(np.asarray(barriers or [0.25] * count)[:, None, None, None], shape)
    where, refined = np.full(shape, 0.5), np.full((count, treatments, 2, 4), np.nan)
    variables = {
        "distance": variable("pair", np.ones(count), "distance of the two models", "weight distance"),
        "examples": variable(lines, np.full((count, treatments, 2), [80, 20]), "number of examples"),
        "loss": variable(by_x, loss, "mean loss"),
        "error": variable(by_x, loss / 10, "fraction of wrong predictions"),
        "standard_error": variable(by_x, np.full(loss.shape, np.nan), "standard error of the loss"),
        "loss_barrier": variable(by_definition, heights, "barrier of the loss"),
        "loss_where": variable(by_definition, where, "gamma of the barrier"),
        "error_barrier": variable(by_definition, np.full(shape, np.nan), "barrier of the error"),
        "error_where": variable(by_definition, where, "gamma of the barrier"),
        "refined_x": variable(refinement, refined, "gamma evaluated beyond the grid"),
        "refined_loss": variable(refinement, refined, "loss there"),
        "refined_error": variable(refinement, refined, "error there"),
    }
    coords = {
        "pair": range(count),
        "kind": variable("pair", [kind for kind, _, _ in pairs], "kind of pair"),
        "batchnorm": list(policies),
        "split": ["train", "test"],
        "x": variable("x", X, "gamma in (1 - gamma) start + gamma end"),
        "definition": ["linear", "mean", "max"],
    }
    for place, end in enumerate(("start", "end"), start=1):
        run, round, client = zip(*(pair[place] for pair in pairs), strict=True)
        coords[f"{end}_run"] = variable("pair", run, "run")
        coords[f"{end}_round"] = variable("pair", round, "communication round")
        coords[f"{end}_client"] = variable("pair", client, "client; -1: the global model")
    settings = {"limit": None, "batchnorm": list(policies), "splits": ["train", "test"]}
    provenance = {"batchnorm": ["interpolated"], "seed": [0]}
    return Answer("interpolation", store.DEFAULT, settings, provenance, xr.Dataset(variables, coords))
