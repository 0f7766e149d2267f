"""Every method of the catalog against its paper: formulas in plain loops, limits, invariants."""

import math

import pytest
import torch
from torch import Tensor

from tests.training.federations import (
    COMPOSED,
    NAMES,
    close,
    examples,
    federation,
    gradient,
    named_weight,
    play,
    setup,
)
from tests.training.papers import global_models
from training import testing
from training.clients.local_training import local_step
from training.config import Recipe
from training.engine.federation import Federation
from training.methods import catalog
from training.methods.method import Method
from training.rules.context import ClientContext
from training.rules.corrections import Plain, Proximal
from training.rules.perturbations import ASAM, SAM
from training.rules.servers import Mean


@pytest.mark.parametrize("local", [{}, {"momentum": 0.7, "weight_decay": 0.02}], ids=["plain", "momentum"])
@pytest.mark.parametrize("name", NAMES + COMPOSED)
def test_every_method_follows_its_paper(name: str, local: dict[str, float]) -> None:
    fed = federation(name, local=local)
    models = [state.w for state, _, _ in play(fed, 4)]
    for ours, theirs in zip(models, global_models(fed), strict=False):
        assert close(ours, theirs, 1e-10)
    assert not close(models[3], models[2], 1e-4), "nothing moves, so nothing was compared"


VARIANTS = [
    *(("fedgloss", {"dual_from": kind, "beta": 3}) for kind in ("sent", "model", "code")),
    *(("naivefedgloss", {"dual_from": kind, "beta": 3}) for kind in ("sent", "model", "code")),
    ("fedgloss", {"rho": 0, "eta_s": 0.7}),
    ("fedgloss", {"warmup": 3, "rho_start": 0.01, "rho": 0.3}),
    *(
        ("fedfsa", {"select": select, "measure": measure, "layers": 1})
        for select in ("top", "reverse", "random")
        for measure in ("square", "mean", "minmax")
    ),
    *(("fedvssam", {switch: False, "a": 0.4, "gamma": 0.3, "rho": 0.3}) for switch in ("lf", "lu", "gu")),
    *(("fedsol", {"combine": f"A{i}", "beta": 0.3}) for i in (0, 2, 3, 4, 5, 6)),
    *(("fedsol", {"combine": f"A{i}", "proximal": "contrast", "tau": 0.5}) for i in (2, 4)),
    *(("fedsol", {"proximal": kind}) for kind in ("kl", "distance", "control", "dual", "local")),
    *(("fedsol", {"part": part, "radius": radius}) for part in ("head", "body") for radius in ("fixed", "adaptive")),
    ("fedsol", {"radius": "adaptive_code"}),
    ("fedspeed", {"normalised": True, "duals": "all", "a": 0.6, "lam": 3}),
    ("fedsmoo", {"exchange": "dual", "beta": 3}),
    ("fedsmoo", {"warmup": 3, "rho_start": 0.01, "rho": 0.3}),
    ("fedsam-previous", {"warmup": 3, "rho_start": 0.01, "rho": 0.3}),
    *(("fedsol-nova", {"proximal": kind, "part": "head"}) for kind in ("kl", "distance")),
    ("fedgmt", {"duals": "all", "beta": 3, "gamma": 2, "ema": 0.5}),
    ("fedwmsam", {"sign": -1, "pace": 0.5, "rho": 0.3, "a": 0.4}),
    ("fedgf", {"threshold": 0.01, "window": 2, "rho_g": 0.3}),
    ("fedgf", {"threshold": 0.5, "window": 3}),
    ("adabest", {"mu": 0.5}),
    ("moon", {"mu": 5}),
    ("fedntd", {"beta": 3, "tau": 2}),
    ("perfedavg", {"adapt": 0.5}),
    ("fedala", {"tensors": 1, "share": 0.5, "rate": 5, "threshold": 1e-3}),
    ("fedlesam", {"rho": 0.5}),
    *(
        ("fedcr", {"samples": 3, "beta": 0.01, **more})
        for more in ({}, {"prior": "standard"}, {"direction": "prior_encoder"}, {"eta_g": 0.5})
    ),
]


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_every_variant_follows_its_paper_or_code(name: str, settings: dict) -> None:
    fed = setup(name, settings, local={"momentum": 0.5})
    models = [state.w for state, _, _ in play(fed, 5)]
    for ours, theirs in zip(models, global_models(fed), strict=False):
        assert close(ours, theirs, 1e-9)
    plain = play(setup(name, local={"momentum": 0.5}), 5)[-1][0].w
    changed = settings.items() - catalog.read_settings(catalog.ALGORITHMS[name]).items()
    assert not changed or not close(models[-1], plain, 1e-6), "the settings make no difference"


def test_fedsol_along_the_contrast() -> None:
    """In batches of many examples: the cosine of one active feature is 1, and its gradient nothing but rounding."""
    fed = setup("fedsol", {"proximal": "contrast", "rho": 0.5}, sizes=(20,) * 7, local={"batch_size": 20})
    models = [state.w for state, _, _ in play(fed, 5)]
    for ours, theirs in zip(models, global_models(fed), strict=False):
        assert close(ours, theirs, 1e-9)


@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_fednova_with_equal_steps_is_fedavg(momentum: float) -> None:
    local = {"steps": 3, "momentum": momentum}
    left, right = play(setup("fednova", local=local), 3), play(setup("fedavg", local=local), 3)
    assert close(left[-1][0].w, right[-1][0].w)
    assert not close(left[-1][0].w, play(setup("fednova"), 3)[-1][0].w, 1e-3)  # with unequal steps it is not


def test_fednova_divides_by_what_the_steps_add_up_to() -> None:
    fed = setup("fednova", local={"momentum": 0.7})
    start = fed.begin().w
    state, _, ends = play(fed, 1)[0]
    steps = {k: fed.trainer.count_steps(k) for k in ends}
    assert len(set(steps.values())) > 1
    a = {k: sum(sum(0.7**j for j in range(i)) for i in range(1, K + 1)) for k, K in steps.items()}  # 1, 1 + r, ...
    p = {k: len(fed.client_indices[k]) / sum(len(fed.client_indices[j]) for j in ends) for k in ends}
    tau = sum(p[k] * a[k] for k in ends)
    assert close(state.w, start + tau * sum(p[k] * (ends[k] - start) / a[k] for k in ends))


def test_fedprox_starts_without_a_pull() -> None:
    far, plain = setup("fedprox", {"mu": 50}, local={"steps": 1}), setup("fedavg", local={"steps": 1})
    assert torch.equal(play(far, 1)[0][0].w, play(plain, 1)[0][0].w)
    far, plain = setup("fedprox", {"mu": 1}, local={"steps": 2}), setup("fedavg", local={"steps": 2})
    assert not close(play(far, 1)[0][0].w, play(plain, 1)[0][0].w, 1e-4)


def test_fedadam_without_memory_is_elementwise() -> None:
    fed = setup("fedadam", {"b1": 0, "b2": 0, "tau": 0.01, "eta_g": 0.3})
    start, state = fed.begin().w, play(fed, 1)[0][0]
    D = state.mean - start
    assert close(state.w, start + 0.3 * D / (D.abs() + 0.01))
    slow = setup("fedadam", {"b1": 0, "b2": 0, "tau": 1e6, "eta_g": 7e5})
    state = play(slow, 1)[0][0]
    assert close(state.w - start, 0.7 * (state.mean - start), 1e-5)


def test_damped_momentum_takes_a_share_of_every_step() -> None:
    fed = setup("fedavgm", {"beta": 0.75, "damped": True})
    start, state = fed.begin().w, play(fed, 1)[0][0]
    assert close(state.w - start, 0.25 * (state.mean - start))


def test_scaffold_with_everyone_and_one_step_moves_as_fedavg() -> None:
    tables = {"local": {"steps": 1}, "rounds": {"participants": 7, "aggregation": "uniform"}}
    left, right = play(setup("scaffold", **tables), 4), play(setup("fedavg", **tables), 4)
    assert all(close(one.w, two.w) for (one, _, _), (two, _, _) in zip(left, right, strict=True))


def test_feddyn_does_not_become_fedavg_as_alpha_vanishes() -> None:
    states = [play(setup("feddyn", {"alpha": alpha}), 2)[-1][0] for alpha in (1e-6, 1e-9)]
    plain = play(setup("fedavg"), 2)[-1][0]
    assert close(states[0].w, states[1].w, 1e-5)
    assert not close(states[1].w, plain.w, 0.05)


def make_context(start: Tensor, fed: Federation) -> ClientContext:
    return ClientContext(fed.trainer.layout, start, {}, {}, lr=0.1, momentum=0.0, steps=1, round=0)


def recipe_with(**local: float) -> Recipe:
    return federation(local=local).recipe


def test_sam_on_a_quadratic() -> None:
    """L = w'Aw / 2: the step is A (w + rho Aw / ||Aw||)."""
    fed = federation()
    d = fed.trainer.layout.size
    random = torch.Generator().manual_seed(0)
    root = torch.randn(d, d, generator=random, dtype=torch.float64)
    A, w = root @ root.T, torch.randn(d, generator=random, dtype=torch.float64)
    method = Method("sam", SAM(rho=0.3), Plain(), Mean(), "")
    moved, _ = local_step(
        method, lambda point, loss_term=None, half=None: A @ point, w, None, make_context(w, fed), recipe_with()
    )
    g = A @ w
    assert close(moved, w - 0.1 * A @ (w + 0.3 * g / g.norm()))


def ascent(rule: SAM | ASAM, w: Tensor, g: Tensor) -> Tensor:
    e = rule(w, g, make_context(w, federation()))
    assert e is not None
    return e


def test_asam_scales_by_the_weights() -> None:
    fed = federation()
    w = fed.begin().w
    g = gradient(w, *examples(fed))
    weights = named_weight(len(w))
    everywhere = w.abs() + 0.2
    assert close(ascent(ASAM(rho=0.7, eta=0.2, scope="all"), w, g), 0.7 * everywhere**2 * g / (everywhere * g).norm())
    only = torch.where(weights, g, 0.0)  # eta large with rho eta fixed: SAM on the weights alone
    assert close(ascent(ASAM(rho=0.7e-8, eta=1e8), w, g), 0.7 * only / only.norm(), 1e-7)
    zero = torch.zeros_like(w)
    for scope in ("weights", "all"):  # T = 1
        assert close(ascent(ASAM(rho=0.7, eta=1, scope=scope), zero, g), ascent(SAM(rho=0.7), zero, g))


@pytest.mark.parametrize("rule", [SAM(), ASAM(), ASAM(eta=0.0)])
def test_no_gradient_no_perturbation(rule: SAM | ASAM) -> None:
    w = federation().begin().w
    assert torch.equal(ascent(rule, w, torch.zeros_like(w)), torch.zeros_like(w))
    assert torch.equal(ascent(rule, torch.zeros_like(w), torch.zeros_like(w)), torch.zeros_like(w))


@pytest.mark.parametrize("name", NAMES + COMPOSED)
def test_settings_and_vectors_have_names_of_their_own(name: str) -> None:
    method = catalog.find_method(name)
    testing.check_names(method)
    testing.check_settings(method)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("fedagv", {}, "algorithm: unknown 'fedagv'; did you mean 'fedavg'"),
        ("fedavg+sm", {}, "perturbation: unknown 'sm'; did you mean 'sam'"),
        ("fedavg+sam+asam", {}, "unknown 'sam.asam'"),
        ("fedsam", {"roh": 0.1}, "setting of fedsam: unknown 'roh'; did you mean 'rho'"),
        ("fednova", {"rho": 0.1}, "fednova takes no settings, got 'rho'"),
        ("fedsam", {"rho": "big"}, 'fedsam: rho must be a number, got "big"'),
        ("fedsam", {"rho": True}, "fedsam: rho must be a number, got true"),
        ("fedavgm", {"damped": 1}, "fedavgm: damped must be true or false, got 1"),
        ("fedasam", {"scope": 3}, "fedasam: scope must be 'weights' or 'all', got 3"),
        ("fedasam", {"scope": "al"}, "fedasam: scope must be 'weights' or 'all', got \"al\""),
        ("fedasam", {"eta": -1.0}, "fedasam: eta must be at least 0, got -1"),
        ("fedsam", {"rho": -0.1}, "fedsam: rho must be at least 0, got -0.1"),
        ("fedsam", {"rho": float("nan")}, "fedsam: rho must be finite, got nan"),
        ("fedprox", {"mu": float("inf")}, "fedprox: mu must be finite, got inf"),
        ("feddyn", {"alpha": 0.0}, "feddyn: alpha must be above 0, got 0.0"),
        ("fedcm", {"a": 0.0}, "fedcm: a must be above 0, got 0.0"),
        ("fedcm", {"a": 1.5}, "fedcm: a must be at most 1, got 1.5"),
        ("fedavgm", {"beta": 1.0}, "fedavgm: beta must be below 1, got 1.0"),
        ("fedadam", {"b2": 1.0}, "fedadam: b2 must be below 1, got 1.0"),
        ("fedadam", {"tau": 0.0}, "fedadam: tau must be above 0, got 0.0"),
        ("fedgloss", {"beta": float("nan")}, "fedgloss: beta must be above 0, got nan"),
        ("fedwmsam", {"sign": 2}, "fedwmsam: sign must be 1 or -1, got 2"),
        ("fedfsa", {"layers": 1.5}, "fedfsa: layers must be a whole number, got 1.5"),
        ("fedadagrad", {"eta_g": -1.0}, "fedadagrad: eta_g must be above 0, got -1"),
    ],
)
def test_mistakes_are_named(name: str, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        catalog.find_method(name, settings)


def test_settings_reach_their_rule() -> None:
    chosen = catalog.find_method("mofedsam", {"rho": 1, "a": 0.5, "eta_g": 2})
    changed = {"rho": 1.0, "a": 0.5, "eta_g": 2.0}
    assert catalog.read_settings(chosen) == {**catalog.read_settings(catalog.ALGORITHMS["mofedsam"]), **changed}
    assert chosen.perturbation == SAM(rho=1.0)
    assert catalog.find_method("fedprox", {"mu": 3}).correction == Proximal(mu=3.0)
    assert catalog.read_settings(catalog.ALGORITHMS["mofedsam"]).items() >= {"rho": 0.1, "a": 0.1, "eta_g": 1.0}.items()
    shared = catalog.find_method("fedvssam", {"a": 0.7})  # a setting that two rules use reaches both
    assert (shared.perturbation.a, shared.correction.a) == (0.7, 0.7)


@pytest.mark.parametrize("name", NAMES)
def test_rules_are_values(name: str) -> None:
    method = catalog.find_method(name, catalog.read_settings(catalog.find_method(name)))
    assert method == catalog.ALGORITHMS[name]
    testing.check_values(method)


def test_without_duals_beta_is_infinite() -> None:
    assert catalog.find_method("fedgloss", {"beta": math.inf}).correction.strength == 0
