"""Stochastic weight averaging (SWA) on the server: Algorithm 1 of the FedSAM paper (Caldarola et al. 2022).

In the last rounds the local rate is cyclic, and the global model is captured once a cycle; the SWA model is
the average of the captured ones. Rounds count from 0 here.
"""

from __future__ import annotations

import math
from dataclasses import replace

from training.config import Recipe
from training.engine.state import State


def find_start(recipe: Recipe) -> int:
    """The first round of SWA; the number of all rounds where a recipe has none."""
    count = recipe.rounds.count
    return math.floor(recipe.swa.start * count + 1e-9) if recipe.swa else count  # 0.29 * 100 is 28.99...


def compute_lr(recipe: Recipe, round: int) -> float:
    """The local rate of a round: it decays until SWA starts, then it is cyclic (constant for cycles of one round).

    (1 - s) lr + s lr_end, s = (round mod c + 1) / c (eq. 7), where lr is the rate that the decay had reached.
    """
    local, swa, start = recipe.local, recipe.swa, find_start(recipe)
    if swa is None or round < start:
        return local.lr * local.lr_decay**round
    reached = local.lr * local.lr_decay**start
    share = (round % swa.cycle + 1) / swa.cycle if swa.cycle > 1 else 0.0
    return (1 - share) * reached + share * swa.lr_end


def start_average(state: State, recipe: Recipe) -> State:
    """Before the first round of SWA, start the average from the server's model (lines 2 and 3)."""
    if recipe.swa is None or state.round != find_start(recipe):
        return state
    return replace(state, swa=state.w, swa_statistics=state.statistics)


def capture(state: State, recipe: Recipe) -> State:
    """After a round, add the server's model to the average if its cycle ended (or where the published code does so).

    state: after the round.
    """
    swa, round, start = recipe.swa, state.round - 1, find_start(recipe)
    if swa is None or state.swa is None or state.swa_statistics is None:
        return state
    at_end = (round + 1) % swa.cycle == 0
    as_code = round > start and (round - start) % swa.cycle == 0
    if not (at_end if swa.capture == "cycle_end" else as_code):
        return state
    n = state.captured if swa.count_from == "zero" else (round + 1) // swa.cycle
    return replace(
        state,
        swa=(n * state.swa + state.w) / (n + 1),
        swa_statistics=(n * state.swa_statistics + state.statistics) / (n + 1),
        captured=state.captured + 1,
    )
