"""What the study `interpolation` stores: one line for every pair of models, under every treatment of norm layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.store import Stored, Table, Variable

X = np.linspace(-1, 2, 7)
ROUNDS = (("round-round", "run_a round 5", "run_a round 10"),)


def stored(
    pairs: Sequence[tuple[str, str, str]] = ROUNDS,
    policies: Sequence[str] = ("interpolated", "recomputed"),
    barriers: Sequence[float] = (),
) -> Stored:
    """Line i has train loss 1 + i + x^2, test loss 2 + i + x^2 (the policy after the first: 100 more), barrier 0.25."""
    lines = [(*pair, policy, i, n) for i, pair in enumerate(pairs) for n, policy in enumerate(policies)]
    heights = [barriers[i] if barriers else 0.25 for *_, i, _ in lines]
    kinds, starts, ends, names, numbers, treatments = zip(*lines, strict=True)
    base = np.asarray(numbers)[:, None, None] + 100.0 * np.asarray(treatments)[:, None, None]
    loss = base + np.stack([1 + X**2, 2 + X**2])
    by_x, by_definition = ("row", "split", "x"), ("row", "split", "definition")
    height = np.asarray(heights)[:, None, None] * np.ones((1, 2, 3))
    nothing = np.full(loss.shape, np.nan)
    where, row = np.full(height.shape, 0.5), ("row",)
    refined = np.full((len(lines), 2, 4), np.nan)
    variables = {
        "kind": Variable(row, np.asarray(kinds), "kind of pair"),
        "start": Variable(row, np.asarray(starts), "model at gamma = 0"),
        "end": Variable(row, np.asarray(ends), "model at gamma = 1"),
        "batchnorm": Variable(row, np.asarray(names), "treatment of norm layers"),
        "distance": Variable(row, np.ones(len(lines)), "distance of the two models", "weight distance"),
        "split": Variable(("split",), np.array(["train", "test"]), "data of everyone, of the run at gamma = 0"),
        "examples": Variable(("row", "split"), np.full((len(lines), 2), [80, 20]), "number of examples"),
        "x": Variable(("x",), X, "gamma in (1 - gamma) start + gamma end"),
        "definition": Variable(
            ("definition",), np.array(["linear", "mean", "max"]), "max L minus: chord, mean, larger"
        ),
        "loss": Variable(by_x, loss, "mean loss"),
        "error": Variable(by_x, loss / 10, "fraction of wrong predictions"),
        "standard_error": Variable(by_x, nothing, "standard error of the loss; NaN: all data were used"),
        "loss_barrier": Variable(by_definition, height, "barrier of the loss"),
        "loss_where": Variable(by_definition, where, "gamma of the barrier"),
        "error_barrier": Variable(by_definition, np.full(height.shape, np.nan), "barrier of the error"),
        "error_where": Variable(by_definition, where, "gamma of the barrier"),
        "refined_x": Variable(("row", "split", "refinement"), refined, "gamma evaluated beyond the grid"),
        "refined_loss": Variable(("row", "split", "refinement"), refined, "loss there"),
        "refined_error": Variable(("row", "split", "refinement"), refined, "error there"),
    }
    settings = {"limit": None, "batchnorm": list(policies), "splits": ["train", "test"]}
    provenance = {"batchnorm": ["interpolated"], "seed": [0]}
    return Stored("interpolation", settings, provenance, {"lines": Table(variables)})
