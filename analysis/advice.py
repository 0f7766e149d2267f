"""Which setting would shorten a long study, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from analysis.runner import Plan
from training import settings as settings_of

LONG = 3600.0  # seconds from which on advice is given
SOON = 900.0  # seconds to aim at
LIMITS = (20_000, 10_000, 5_000, 2_000, 1_000, 500, 200)
CLIENTS = (50, 20, 10, 5)
WORTH = 2.0  # times faster, or it is not worth a line


@dataclass(frozen=True)
class Advice:
    """One setting to change."""

    setting: str  # as it is written after --set
    seconds: float  # that are left then, roughly
    cost: str  # what is lost


def advise(planned: Plan, rate: float) -> list[Advice]:
    """List settings that would shorten a plan that takes longer than LONG.

    planned: the plan.
    rate: gradient evaluations of one example per second, as `runner.measure_rate` finds it.
    """
    now = planned.passes / rate
    if now < LONG:
        return []
    return [one for one in _list_advice(planned, rate) if one.seconds * WORTH <= now]


def _list_advice(planned: Plan, rate: float) -> Iterator[Advice]:
    known, name = settings_of.values(planned.settings), planned.study.name
    if "limit" in known:
        limit, seconds = _choose_value(planned, rate, "limit", LIMITS)
        yield Advice(f"{name}.limit={limit}", seconds, _describe_cost(planned, limit))
    if "rounds" in known and known["rounds"] != "last":
        seconds = _estimate_seconds(planned, rate, rounds="last")
        yield Advice(f"{name}.rounds=last", seconds, "no error, but only the last round")
    if "clients" in known and isinstance(known["clients"], int | None):
        clients, seconds = _choose_value(planned, rate, "clients", CLIENTS)
        cost = f"{clients} clients at most; errors of means over clients fall as 1/sqrt(clients)"
        yield Advice(f"{name}.clients={clients}", seconds, cost)


def _choose_value(planned: Plan, rate: float, name: str, values: tuple[int, ...]) -> tuple[int, float]:
    """Choose the largest value of a setting with which the study takes at most SOON seconds, or else the smallest."""
    now = getattr(planned.settings, name)
    smaller = [value for value in values if now is None or value < now] or [values[-1]]
    found = [(value, _estimate_seconds(planned, rate, **{name: value})) for value in smaller]
    return next(((value, seconds) for value, seconds in found if seconds <= SOON), found[-1])


def _estimate_seconds(planned: Plan, rate: float, **changes: int | str) -> float:
    settings = settings_of.replace(planned.settings, changes, planned.study.name)
    return sum(piece.passes for piece in planned.study.pieces(planned.whom, settings)) / rate


def _describe_cost(planned: Plan, limit: int) -> str:
    """Describe what a limit of examples costs: the error of a mean, and rare classes."""
    everyone = planned.subjects[0].count("train")
    part = min(limit / everyone, 1.0)
    error = 100 * math.sqrt((1 - part) / limit)
    return (
        f"numbers from {limit} of {everyone} training examples have a standard error of {error:.1f} % of how much "
        "single examples differ, half as much with four times as many; a class with less than one example in "
        f"{limit} may be missing"
    )
