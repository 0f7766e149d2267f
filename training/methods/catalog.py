"""Every method by name: its rules with the paper's defaults. A new method is one line here, and is under test."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeVar

from training import plugins, settings
from training.methods.adabest import Extrapolated, Fading
from training.methods.fedala import AdaptiveStart
from training.methods.fedcr import EncodingBound, OwnHead
from training.methods.fedfsa import LayerRadii
from training.methods.fedgf import GlobalAscent, Interpolated
from training.methods.fedgloss import ServerSharpness, TrueServerSharpness
from training.methods.fedgmt import DualOnly, EmaDistillation
from training.methods.fedlesam import OldGlobal
from training.methods.fedsmoo import SharedSAM
from training.methods.fedsol import ProximalSAM
from training.methods.fedspeed import GradientStep, QuasiGradient
from training.methods.fedvssam import Direction, MixedDescent, MixedSAM
from training.methods.fedwmsam import PersonalMomentum, Predicted
from training.methods.method import Method
from training.rules.base import LocalLoss, LossTerm, Rule
from training.rules.corrections import (
    BodyOnly,
    ClientMomentum,
    ControlVariate,
    Correction,
    Dual,
    Lagrangian,
    OwnStatistics,
    Plain,
    Proximal,
)
from training.rules.loss_terms import Contrast, NotTrue
from training.rules.perturbations import (
    ASAM,
    PERTURBATIONS,
    SAM,
    MetaStep,
    NoPerturbation,
    Perturbation,
    PreviousSAM,
)
from training.rules.servers import Adagrad, Adam, LookAhead, Mean, Momentum, Normalised, Server, SubtractDual

NONE, PLAIN = NoPerturbation(), Plain()

ALGORITHMS: dict[str, Method] = {
    method.name: method
    for method in (
        # how the server moves
        Method("fedavg", NONE, PLAIN, Mean(), "McMahan et al. 2017"),
        Method("fedavgm", NONE, PLAIN, Momentum(beta=0.9), "Hsu et al. 2019"),
        Method("fedadam", NONE, PLAIN, Adam(), "Reddi et al. 2021"),
        Method("fedadagrad", NONE, PLAIN, Adagrad(), "Reddi et al. 2021"),
        Method("fednova", NONE, PLAIN, Normalised(), "Wang et al. 2020"),
        Method("fedacg", NONE, Proximal(mu=0.002), LookAhead(lam=0.85), "Kim et al. 2024"),
        # how clients are kept together
        Method("fedprox", NONE, Proximal(mu=0.1), Mean(), "Li et al. 2020"),
        Method("scaffold", NONE, ControlVariate(), Mean(), "Karimireddy et al. 2020"),
        Method("fedcm", NONE, ClientMomentum(a=0.1), Mean(), "Xu et al. 2021"),
        Method("feddyn", NONE, Dual(alpha=0.01), SubtractDual(), "Acar et al. 2021"),
        Method("adabest", NONE, Fading(mu=0.02), Extrapolated(beta=0.9), "Varno et al. 2022"),
        Method("fedntd", NONE, PLAIN, Mean(), "Lee et al. 2022", NotTrue(beta=1.0, tau=1.0)),
        Method("moon", NONE, PLAIN, Mean(), "Li et al. 2021", Contrast(mu=0.1, tau=0.5)),
        # what is flat for whom
        Method("fedsam", SAM(rho=0.05), PLAIN, Mean(), "Caldarola et al. 2022; Qu et al. 2022"),
        Method("fedsam-previous", PreviousSAM(rho=0.05), PLAIN, Mean(), "Caldarola et al. 2025"),
        Method("fedasam", ASAM(rho=0.5, eta=0.2), PLAIN, Mean(), "Caldarola et al. 2022"),
        Method("mofedsam", SAM(rho=0.1), ClientMomentum(a=0.1), Mean(), "Qu et al. 2022"),
        Method("fedgamma", SAM(rho=0.01), ControlVariate(), Mean(), "Dai et al. 2023"),
        Method("fedspeed", GradientStep(rho=0.1), QuasiGradient(a=0.95, lam=10.0), SubtractDual(), "Sun et al. 2023a"),
        Method("fedsmoo", SharedSAM(rho=0.1), Lagrangian(beta=10.0), SubtractDual(), "Sun et al. 2023b"),
        Method("fedlesam", OldGlobal(rho=0.01), PLAIN, Mean(), "Fan et al. 2024"),
        Method("fedlesam-s", OldGlobal(rho=0.01), ControlVariate(), Mean(), "Fan et al. 2024"),
        Method("fedlesam-d", OldGlobal(rho=0.01), Dual(alpha=0.1), SubtractDual(), "Fan et al. 2024"),
        Method("fedgf", Interpolated(rho=0.05), PLAIN, GlobalAscent(rho_g=0.05), "Lee & Yoon 2024"),
        Method("fedgmt", NONE, DualOnly(beta=10.0), SubtractDual(), "Li et al. 2025a", EmaDistillation()),
        Method("fedwmsam", Predicted(rho=0.01), PersonalMomentum(a=0.1), Mean(), "Li et al. 2025b"),
        # the seeds' own
        Method("fedgloss", SAM(rho=0.15), Lagrangian(beta=10.0), ServerSharpness(rho_s=0.15), "Caldarola et al. 2025"),
        Method(
            "naivefedgloss",
            SAM(rho=0.15),
            Lagrangian(beta=10.0),
            TrueServerSharpness(rho_s=0.15),
            "Caldarola et al. 2025",
        ),
        Method("fedfsa", LayerRadii(rho=0.05, rho_larger=0.9), ClientMomentum(a=0.1), Mean(), "Xing et al. 2025"),
        Method("fedvssam", MixedSAM(rho=0.05), MixedDescent(), Direction(), "FedVSSAM"),
        Method("fedsol", ProximalSAM(rho=2.0), PLAIN, Mean(), "Lee et al. 2024"),
        Method("fedsol-nova", ProximalSAM(rho=2.0), PLAIN, Normalised(), "Lee et al. 2024"),
        # made to be personalised afterwards
        Method("fedbabu", NONE, BodyOnly(), Mean(), "Oh et al. 2022"),
        Method("silobn", NONE, OwnStatistics(), Mean(), "Andreux et al. 2020"),
        Method("fedala", NONE, AdaptiveStart(), Mean(), "Zhang et al. 2023a"),
        Method("fedcr", NONE, OwnHead(), Mean(), "Zhang et al. 2023b", local_loss=EncodingBound()),
        Method("perfedavg", MetaStep(adapt=0.01), PLAIN, Mean(), "Fallah et al. 2020"),
    )
}


# what may stand after a plus: "feddyn+sam"
COMPOSABLE: dict[str, type[Perturbation]] = {**PERTURBATIONS, "fsa": LayerRadii}

SLOTS: dict[str, type[Rule]] = {  # of a method -> the rules that fill it
    "perturbation": Perturbation,
    "correction": Correction,
    "server": Server,
    "loss_term": LossTerm,
    "local_loss": LocalLoss,
}

Value = bool | int | float | str  # of a setting
AnyRule = TypeVar("AnyRule", bound=Rule)


def accept_method(name: str, found: object) -> Method:
    """Make a method of what a user's module holds: a `Method`, a function that returns one, or one rule.

    name: its 'module:name', for messages. A rule alone stands for FedAvg with that rule.
    """
    made = found() if callable(found) and not isinstance(found, Rule) else found
    if isinstance(made, Rule):
        slot = next((slot for slot, kind in SLOTS.items() if isinstance(made, kind)), None)
        if slot is not None:
            plain = dataclasses.replace(ALGORITHMS["fedavg"], name=name.partition(":")[2], paper="")
            return dataclasses.replace(plain, **{slot: made})  # type: ignore[arg-type]
    if not isinstance(made, Method):
        raise ValueError(
            f"algorithm '{name}' must be a Method, a function that returns one, or a rule; got {type(made).__name__}"
        )
    return made


def accept_perturbation(name: str, found: object) -> type[Perturbation]:
    """Return a user's own perturbation, for the place after a plus.

    name: its 'module:name', for messages.
    """
    if not (isinstance(found, type) and issubclass(found, Perturbation)):
        raise ValueError(f"perturbation '{name}' must be a class derived from Perturbation, got {found!r}")
    return found


METHODS = plugins.ExtensionPoint("algorithm", ALGORITHMS, accept_method)
RULES = plugins.ExtensionPoint("perturbation", COMPOSABLE, accept_perturbation)


def resolve(name: str) -> str:
    """Return a method's name with registered names written as 'module:name'; "feddyn+mine" has two parts."""
    base, plus, other = name.partition("+")
    return METHODS.resolve(base) + plus + (RULES.resolve(other) if plus else "")


def find_method(name: str, given: Mapping[str, object] | None = None) -> Method:
    """Find a method by name and change some of its settings.

    name: one of ALGORITHMS, or 'module:name' (see `accept_method`); "feddyn+sam" or "scaffold+asam" replace its
        perturbation by one of COMPOSABLE, or by a user's own.
    given: values by the names of the settings; the others keep the defaults of the method.

    >>> find_method("fedsam", {"rho": 0.1}).perturbation
    SAM(rho=0.1, warmup=0, rho_start=0.001)
    """
    base, plus, other = name.partition("+")
    chosen = METHODS.find(base)
    if plus:
        rule = RULES.find(other)()
        chosen = dataclasses.replace(chosen, name=name, perturbation=rule)
    if not given:
        return chosen
    settings.check_names(given, list_settings(chosen), name)
    return dataclasses.replace(
        chosen,
        perturbation=_change(chosen.perturbation, given, name),
        correction=_change(chosen.correction, given, name),
        server=_change(chosen.server, given, name),
        loss_term=None if chosen.loss_term is None else _change(chosen.loss_term, given, name),
        local_loss=None if chosen.local_loss is None else _change(chosen.local_loss, given, name),
    )


def _change(rule: AnyRule, given: Mapping[str, object], name: str) -> AnyRule:
    """Return the rule with those of the given settings that it has."""
    return settings.replace(rule, {key: given[key] for key in settings.fields(type(rule)) if key in given}, name)


def list_settings(chosen: Method) -> dict[str, tuple[str, ...]]:
    """List the settings of a method, each with the slots that use it; rules that share a name share the setting."""
    slots: dict[str, tuple[str, ...]] = {}
    for slot, rule in chosen.slots.items():
        for key in settings.fields(type(rule)):
            slots[key] = (*slots.get(key, ()), slot)
    return slots


def read_settings(chosen: Method) -> dict[str, Value]:
    """Read all settings of a method with their values."""
    return {key: getattr(chosen.slots[slots[0]], key) for key, slots in list_settings(chosen).items()}
