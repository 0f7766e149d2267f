"""What a cell of a paper's table shows: a number of each run, some against a reference run of the same seed.

A new quantity is one line in QUANTITIES; one with a parameter is a function that returns a Quantity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr

from reports.inputs.personal import Personal
from reports.inputs.runs import Run
from reports.inputs.subsets import find_subset
from reports.inputs.summary import ERROR
from reports.names import name_strategy
from reports.quantities.curves import (
    PERSONAL,
    count_planned,
    count_rounds_to,
    count_rounds_to_reference,
    divide,
    find_accuracy_at,
    find_best,
    find_cost,
    find_speed_up,
)
from reports.quantities.measures import (
    MEASURES,
    Measure,
    count_bytes_per_round,
    count_classes,
    count_gradients_per_round,
    find_final_accuracy,
    find_final_metric,
    find_flops,
    find_last_participants,
)
from reports.quantities.quantity import Quantity

__all__ = ["QUANTITIES", "Quantity"]

TIMES = "\N{MULTIPLICATION SIGN}"


def _make_score(
    name: str, label: str, find: Callable[[Run], float], decimals: int, *, guessing: bool = True
) -> Quantity:
    """Make a quantity of single runs, in per cent: the higher, the better."""
    return Quantity(name, label, lambda run, _: find(run), "higher", decimals, guessing=guessing)


ACCURACY = _make_score("accuracy", "test accuracy (%)", find_final_accuracy, 2)


def make_accuracy(model: str, *, decimals: int = 2) -> Quantity:
    """Make the final accuracy of a global model: the mean of its last rounds, as many as the recipe says.

    model: "server", "swa" or "mean".
    """
    whose = {"server": "the server's model", "swa": "the SWA model", "mean": "the participants' mean"}[model]
    label = f"test accuracy of {whose} (%)"
    return _make_score(f"accuracy_{model}", label, lambda run: find_final_accuracy(run, model), decimals)


def make_accuracy_at_share(share: float, *, decimals: int = 2) -> Quantity:
    """Make the accuracy of the server's model after a share of the planned rounds, such as 0.5 for Acc@50%."""

    def find(run: Run) -> float:
        return find_accuracy_at(run, math.floor(share * count_planned(run)))

    percent = f"{100 * share:g}"
    return _make_score(f"accuracy_at_{percent}%", f"test accuracy after {percent} % of the rounds (%)", find, decimals)


def make_accuracy_at_round(end: int, *, decimals: int = 2) -> Quantity:
    """Make the accuracy of the server's model after a number of rounds."""
    label = f"test accuracy after {end} rounds (%)"
    return _make_score(f"accuracy_at_{end}", label, lambda run: find_accuracy_at(run, end), decimals)


def make_miou(domain: str = "", *, decimals: int = 2) -> Quantity:
    """Make the final mean IoU: the mean of the last rounds, of the SWA model where there is one.

    domain: a named test set, such as "unseen"; empty: all test examples.
    """
    name, where = (f"miou_{domain}", f" on {domain} domains") if domain else ("miou", "")
    label = f"test mIoU{where} (%)"
    return _make_score(name, label, lambda run: find_final_metric(run, name), decimals, guessing=False)


def make_best(name: str, label: str, metric: str, *, decimals: int = 2) -> Quantity:
    """Make the highest accuracy of any round.

    name, label: of the quantity. metric: as metrics.jsonl names it.
    """
    return _make_score(name, label, lambda run: find_best(run, metric), decimals)


def make_rounds_to(target: float, *, decimals: int = 0) -> Quantity:
    """Make the number of rounds until the server's model first has an accuracy.

    target: in per cent.
    """
    return Quantity(
        f"rounds_to_{target:g}",
        f"first evaluated round with {target:g} % accuracy",
        lambda run, _: count_rounds_to(run, target),
        "lower",
        decimals,
    )


def make_personal(strategy: str | None, *, spread: str = "clients", decimals: int = 1, **options: object) -> Quantity:
    """Make the mean over clients of the accuracy of their own models on their own test data.

    strategy: that makes the clients' models; None: the global model as it is.
    spread: what ± is over, "clients" or "seeds".
    options: of the strategy, such as epochs=5, where it was measured with several.
    """
    told = "".join(f", {key} {value}" for key, value in options.items())
    return Quantity(
        f"personal_{strategy or 'global'}{told}",
        f"accuracy on clients' own data, {name_strategy(strategy or 'global model')}{told} (%)",
        lambda run, _: _summarise_clients(run, strategy, options, np.mean),
        "higher",
        decimals,
        spread=spread,
        study="personal",
        deviation=lambda run: _summarise_clients(run, strategy, options, np.std),
        guessing=True,
    )


def _summarise_clients(
    run: Run, strategy: str | None, options: dict[str, object], summarise: Callable[..., np.floating]
) -> float:
    """Summarise the scores of the clients that were tested, in per cent."""

    def fits(one: Personal) -> bool:
        return strategy in (None, one.strategy) and all(one.about.get(key) == value for key, value in options.items())

    found = next((one for one in run.personal if fits(one)), None)
    if found is None:
        return math.nan
    scores = found.before if strategy is None else found.after
    scores = scores[np.isfinite(scores)]
    return 100.0 * float(summarise(scores)) if len(scores) else math.nan


def make_client_lambda(place: int, *, everyone: bool, decimals: int = 1) -> Quantity:
    """Make the largest eigenvalue of the local model of one participant of the last cohort that was looked at.

    place: of the participant, counted from 0, clients in the order of their numbers.
    everyone: on everyone's data, not on the client's own.
    """
    prefix, whose = ("global", "everyone's data") if everyone else ("local", "own data")
    return Quantity(
        f"lambda_1_{'everyone' if everyone else 'own'}_{place}",
        f"λ₁ of local models, {whose}",
        lambda run, _: _find_of_participant(run, place, f"{prefix}_eigenvalue"),
        "lower" if everyone else "",
        decimals,
        study="local_global",
        error=lambda run: _find_of_participant(run, place, f"{prefix}{ERROR}"),
        examples=lambda run: find_subset(run.answer("local_global"), each=not everyone),
    )


def _find_of_participant(run: Run, place: int, name: str) -> float:
    """Find a number of a participant of the last round with local models; NaN where there are fewer."""
    data = run.measured("local_global")
    if data is None or name not in data or "distance" not in data:
        return math.nan
    last: xr.Dataset = find_last_participants(data, "distance")
    if place >= last.sizes["client"]:
        return math.nan
    value = last[name].isel(client=place)
    return float(value.isel(rank=0) if "rank" in value.dims else value)


def find_improvement(run: Run, reference: Run | None) -> float:
    """Find by how many points the final accuracy is above the reference's."""
    return math.nan if reference is None else find_final_accuracy(run) - find_final_accuracy(reference)


def find_relative_improvement(run: Run, reference: Run | None) -> float:
    """Find by how many per cent of the reference's final accuracy a run is above it."""
    if reference is None:
        return math.nan
    return 100.0 * divide(find_improvement(run, reference), find_final_accuracy(reference))


def _compare(find: Callable[[Run], float]) -> Callable[[Run, Run | None], float]:
    """Make a function that divides the number of a run by that of the reference."""
    return lambda run, reference: math.nan if reference is None else divide(find(run), find(reference))


def _sign(name: str, label: str, find: Callable[[Run, Run | None], float]) -> Quantity:
    """Make a gain over the reference, written with its sign."""
    return Quantity(name, label, find, "higher", 2, signed=True, relative=True)


def _fix(name: str, label: str, find: Callable[[Run, Run | None], float], decimals: int) -> Quantity:
    """Make a quantity that is known from the first round on, relative to the reference."""
    return Quantity(name, label, find, "", decimals, TIMES, spread="", relative=True, fixed=True)


def _relate(
    name: str, label: str, find: Callable[[Run, Run | None], float], better: str, decimals: int, unit: str
) -> Quantity:
    """Make a quantity relative to the reference, without a spread, as the papers print it."""
    return Quantity(name, label, find, better, decimals, unit, spread="", relative=True)


def _convert(one: Measure, decimals: int | None = None) -> Quantity:
    """Make a quantity of a measure."""
    return Quantity(
        one.name,
        one.label,
        lambda run, _: one.find(run),
        one.better,
        one.decimals if decimals is None else decimals,
        study=one.study,
        error=one.error,
        examples=one.examples,
    )


BEST_PERSONAL = "accuracy of clients' own models on their own data, mean over all clients, in the best round (%)"

QUANTITIES: dict[str, Quantity] = {
    one.name: one
    for one in (
        ACCURACY,
        make_accuracy("server"),
        make_accuracy("swa"),
        make_accuracy_at_share(0.5),
        make_best("best_accuracy", "test accuracy in the best round (%)", "accuracy"),
        make_best("best_personal_accuracy", BEST_PERSONAL, PERSONAL),
        _sign("improvement", "gain over the reference (points)", find_improvement),
        _sign("relative_improvement", "gain relative to the reference (%)", find_relative_improvement),
        replace(
            _relate("rounds", "rounds to the reference's final accuracy", count_rounds_to_reference, "lower", 1, "k"),
            divisor=1000.0,
        ),
        _relate(
            "speed_up", "rounds of the reference / rounds to its final accuracy", find_speed_up, "higher", 1, TIMES
        ),
        _relate(
            "cost",
            "bytes to the reference's final accuracy (B: all that the reference sends)",
            find_cost,
            "lower",
            1,
            "B",
        ),
        _fix("communication", "bytes a round, relative to the reference", _compare(count_bytes_per_round), 1),
        _fix(
            "gradients",
            "gradient evaluations a step, relative to the reference",
            _compare(count_gradients_per_round),
            1,
        ),
        replace(
            _fix("flops", "operations of a local step, relative to FedAvg", lambda run, _: find_flops(run), 2),
            relative=False,
        ),
        replace(
            _fix("classes", "classes per client, mean", lambda run, _: count_classes(run), 1), unit="", relative=False
        ),
        _convert(MEASURES["lambda_1"], 2),
        _convert(MEASURES["ratio"], 2),
        _convert(MEASURES["lambda_1_published"], 2),
        *(_convert(MEASURES[name]) for name in ("trace", "local", "everyone", "sam", "incompatibility")),
        *(_convert(MEASURES[name]) for name in ("robust", "forgetting")),
    )
}
