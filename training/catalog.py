"""Every method by name: three rules and the paper's defaults. A new method is one line here, and is under test."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from landscape.errors import choose
from training.correction import ClientMomentum, ControlVariate, Dual, Plain, Proximal
from training.parts import Method
from training.perturbation import ASAM, PERTURBATIONS, SAM, NoPerturbation
from training.server import Adagrad, Adam, Mean, Momentum, Normalised, SubtractDual

NONE, PLAIN = NoPerturbation(), Plain()

ALGORITHMS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("fedavg", NONE, PLAIN, Mean(), "McMahan et al. 2017"),
        Method("fedprox", NONE, Proximal(mu=0.1), Mean(), "Li et al. 2020"),
        Method("fedavgm", NONE, PLAIN, Momentum(beta=0.9), "Hsu et al. 2019"),
        Method("fedadam", NONE, PLAIN, Adam(), "Reddi et al. 2021"),
        Method("fedadagrad", NONE, PLAIN, Adagrad(), "Reddi et al. 2021"),
        Method("fednova", NONE, PLAIN, Normalised(), "Wang et al. 2020"),
        Method("scaffold", NONE, ControlVariate(), Mean(), "Karimireddy et al. 2020"),
        Method("feddyn", NONE, Dual(alpha=0.01), SubtractDual(), "Acar et al. 2021"),
        Method("fedcm", NONE, ClientMomentum(a=0.1), Mean(), "Xu et al. 2021"),
        Method("fedsam", SAM(rho=0.05), PLAIN, Mean(), "Caldarola et al. 2022; Qu et al. 2022"),
        Method("fedasam", ASAM(rho=0.5, eta=0.2), PLAIN, Mean(), "Caldarola et al. 2022"),
        Method("mofedsam", SAM(rho=0.1), ClientMomentum(a=0.1), Mean(), "Qu et al. 2022"),
    )
}


def method(name: str, settings: Mapping[str, Any] | None = None) -> Method:
    """A method by name with some settings changed; "feddyn+sam" or "scaffold+asam" swap the perturbation.

    >>> method("fedsam", {"rho": 0.1}).perturbation
    SAM(rho=0.1)
    """
    base, plus, other = name.partition("+")
    chosen = ALGORITHMS[choose("algorithm", base, ALGORITHMS)]
    if plus:
        rule = PERTURBATIONS[choose(f"perturbation after '{base}+'", other, PERTURBATIONS)]()
        chosen = dataclasses.replace(chosen, name=name, perturbation=rule)
    known = options(chosen)
    changes: dict[str, dict[str, Any]] = {}
    for key, value in (settings or {}).items():
        if not known:
            raise ValueError(f"{name} takes no settings, got '{key}'; leave it out")
        place = known[choose(f"setting of {name}", key, known)]
        default = getattr(getattr(chosen, place), key)
        changes.setdefault(place, {})[key] = _like(f"{name}: {key}", value, default)
    try:
        rules = {place: dataclasses.replace(getattr(chosen, place), **values) for place, values in changes.items()}
    except ValueError as error:  # a rule knows its ranges, not the method that it serves
        raise ValueError(f"{name}: {error}") from None
    return dataclasses.replace(chosen, **rules)


def options(chosen: Method) -> dict[str, str]:
    """Every setting of a method and the rule that owns it; no two rules of one method share a name."""
    return {
        field.name: place
        for place in ("perturbation", "correction", "server")
        for field in dataclasses.fields(getattr(chosen, place))
    }


def values(chosen: Method) -> dict[str, Any]:
    """All settings of a method with their values."""
    return {key: getattr(getattr(chosen, place), key) for key, place in options(chosen).items()}


def _like(what: str, value: Any, default: Any) -> Any:
    """The value in the type of the default; its range is the rule's own affair."""
    if type(value) is type(default):
        return value
    if type(default) is float and type(value) is int:
        return float(value)
    kinds = {bool: "true or false", str: "a word", float: "a number", int: "a whole number"}
    raise ValueError(f"{what} must be {kinds[type(default)]}, got {value!r}")
