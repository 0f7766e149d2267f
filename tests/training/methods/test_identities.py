"""What one method must have in common with another, and what it must keep true of itself."""

import math

import pytest
import torch

from tests.training.federations import NAMES, close, play, setup
from training.rules.vectors import norm

EXACT, ROUNDING = 0.0, 1e-11
STEPS = {"local": {"steps": 3}}  # as many for everyone: FedVSSAM's papers know nothing else

IDENTITIES = [
    ("fedprox", {"mu": 0}, "fedavg", {}, EXACT),
    ("fedavgm", {"beta": 0}, "fedavg", {}, ROUNDING),
    ("fedcm", {"a": 1}, "fedavg", {}, EXACT),
    ("fedsam", {"rho": 0}, "fedavg", {}, EXACT),
    ("fedasam", {"rho": 0}, "fedavg", {}, EXACT),
    ("fedsam-previous", {"rho": 0}, "fedavg", {}, EXACT),
    ("fedavg+previous_sam", {}, "fedsam-previous", {}, EXACT),
    ("fedcm+previous_sam", {"rho": 0}, "fedcm", {}, EXACT),
    ("mofedsam", {"a": 1}, "fedsam", {"rho": 0.1}, EXACT),
    ("mofedsam", {"rho": 0}, "fedcm", {}, EXACT),
    ("fedavg+sam", {}, "fedsam", {}, EXACT),
    ("fedsam+asam", {}, "fedasam", {}, EXACT),
    ("fedasam+none", {}, "fedavg", {}, EXACT),
    ("fedcm+sam", {"rho": 0.1}, "mofedsam", {}, EXACT),
    ("fedacg", {"lam": 0}, "fedprox", {"mu": 0.002}, ROUNDING),
    ("fedacg", {"lam": 0, "mu": 0}, "fedavg", {}, ROUNDING),
    ("adabest", {"mu": 0, "beta": 0}, "fedavg", {}, ROUNDING),
    ("fedntd", {"beta": 0}, "fedavg", {}, ROUNDING),
    ("moon", {"mu": 0}, "fedavg", {}, ROUNDING),
    ("fedgamma", {"rho": 0}, "scaffold", {}, EXACT),
    ("fedgamma", {"rho": 0.1}, "scaffold+sam", {"rho": 0.1}, EXACT),
    ("fedspeed", {"rho": 0, "lam": 100, "duals": "all"}, "feddyn", {}, ROUNDING),
    ("fedspeed", {"a": 0, "lam": 100, "duals": "all"}, "feddyn", {}, ROUNDING),
    ("fedspeed", {"normalised": True, "a": 1, "lam": 100, "duals": "all"}, "feddyn+sam", {"rho": 0.1}, ROUNDING),
    ("fedsmoo", {"rho": 0, "beta": 100}, "feddyn", {}, ROUNDING),
    ("fedsmoo", {"warmup": 1, "rho_start": 7.0}, "fedsmoo", {}, EXACT),  # rho itself from the first round on
    ("fedlesam", {"rho": 0}, "fedavg", {}, EXACT),
    ("fedlesam-s", {"rho": 0}, "scaffold", {}, EXACT),
    ("fedlesam-d", {"rho": 0}, "feddyn", {"alpha": 0.1}, EXACT),
    ("fedgf", {"threshold": math.inf}, "fedsam", {}, ROUNDING),
    ("fedgf", {"threshold": math.inf, "rho": 0}, "fedavg", {}, EXACT),
    ("fedgloss", {"rho_s": 0, "rho": 0, "beta": 100}, "feddyn", {}, ROUNDING),
    ("fedgloss", {"rho_s": 0, "rho": 0.1, "beta": 100}, "feddyn+sam", {"rho": 0.1}, ROUNDING),
    ("fedgloss", {"rho_s": 0, "rho": 0.1, "beta": math.inf}, "fedsam", {"rho": 0.1}, ROUNDING),
    ("naivefedgloss", {"rho_s": 0}, "fedgloss", {"rho_s": 0}, EXACT),
    ("naivefedgloss", {"rho_s": 0, "rho": 0, "beta": math.inf}, "fedavg", {}, ROUNDING),
    ("fedfsa", {"rho_larger": 0.05}, "mofedsam", {"rho": 0.05}, ROUNDING),
    ("fedfsa", {"layers": 0}, "mofedsam", {"rho": 0.05}, ROUNDING),
    ("fedfsa", {"layers": 0, "a": 1}, "fedsam", {}, ROUNDING),
    ("fedfsa", {"rho": 0, "rho_larger": 0}, "fedcm", {}, EXACT),
    ("fedfsa", {"layers": 2, "select": "reverse"}, "fedfsa", {"layers": 2}, EXACT),  # all the weights there are
    ("fedfsa", {"layers": 2, "select": "random"}, "fedfsa", {"layers": 2}, EXACT),
    ("fedcm+fsa", {}, "fedfsa", {}, EXACT),
    ("fedsol", {"rho": 0}, "fedavg", {}, EXACT),
    ("fedsol", {"combine": "A0"}, "fedavg", {}, EXACT),
    ("fedsol", {"proximal": "local", "rho": 0.05}, "fedsam", {}, EXACT),
    ("fedsol", {"proximal": "distance", "combine": "A5", "beta": 0.1}, "fedprox", {"mu": 0.1}, ROUNDING),
    ("fedsol", {"proximal": "control", "combine": "A5"}, "scaffold", {}, ROUNDING),
    ("fedsol-nova", {"rho": 0}, "fednova", {}, EXACT),
    ("fedsol-nova", {"proximal": "local", "rho": 0.05}, "fednova+sam", {"rho": 0.05}, EXACT),
    ("fedala", {"rate": 0}, "fedavg", {}, EXACT),
    *((f"{name}+{other}", {"rho": 0}, f"{name}+none", {}, EXACT) for name in NAMES for other in ("sam", "asam")),
]
WITH_EQUAL_STEPS = [
    ("fedvssam", {"a": 1, "gamma": 1}, "fedsam", {}, ROUNDING),
    ("fedvssam", {"lf": False, "lu": False, "gu": False}, "fedsam", {}, ROUNDING),
    ("fedvssam", {"lf": False, "gu": False, "a": 0.3}, "mofedsam", {"a": 0.3, "rho": 0.05}, ROUNDING),
    ("fedvssam", {"lf": False, "gamma": 1, "a": 0.3}, "mofedsam", {"a": 0.3, "rho": 0.05}, ROUNDING),
    ("fedvssam", {"rho": 0, "gamma": 1, "a": 0.3}, "fedcm", {"a": 0.3}, ROUNDING),
    ("fedsol-nova", {"rho": 0.5}, "fedsol", {"rho": 0.5}, ROUNDING),
    (
        "fedvssam",
        {"lf": False, "lu": False, "gamma": 0.25},
        "fedavgm+sam",
        {"beta": 0.75, "damped": True, "rho": 0.05},
        ROUNDING,
    ),
]


@pytest.mark.parametrize(("name", "settings", "other", "others", "tolerance"), IDENTITIES)
def test_limits_are_other_methods(name: str, settings: dict, other: str, others: dict, tolerance: float) -> None:
    left, right = play(setup(name, settings), 3), play(setup(other, others), 3)
    for (one, _, _), (two, _, _) in zip(left, right, strict=True):
        assert close(one.w, two.w, tolerance)


@pytest.mark.parametrize(("name", "settings", "other", "others", "tolerance"), WITH_EQUAL_STEPS)
def test_limits_where_everyone_takes_as_many_steps(
    name: str, settings: dict, other: str, others: dict, tolerance: float
) -> None:
    left, right = play(setup(name, settings, **STEPS), 4), play(setup(other, others, **STEPS), 4)
    for (one, _, _), (two, _, _) in zip(left, right, strict=True):
        assert close(one.w, two.w, tolerance)
    assert not close(play(setup(name, **STEPS), 4)[-1][0].w, right[-1][0].w, 1e-4)  # the settings do matter


def test_fedspeed_as_published_is_feddyn_with_everyone() -> None:
    everyone = {"rounds": {"participants": 7, "aggregation": "uniform"}}
    left = play(setup("fedspeed", {"rho": 0, "lam": 100}, **everyone), 3)
    right = play(setup("feddyn", **everyone), 3)
    assert close(left[-1][0].w, right[-1][0].w, ROUNDING)
    some = play(setup("fedspeed", {"rho": 0, "lam": 100}), 3)
    assert not close(some[-1][0].w, play(setup("feddyn"), 3)[-1][0].w, 1e-4)  # but not with some of them


FIRST_ROUND = [  # (method, its settings, method, its settings, factor between the rates)
    ("scaffold", {}, "fedavg", {}, 1.0),
    ("fedcm", {"a": 0.25}, "fedavg", {}, 0.25),
    ("mofedsam", {"a": 0.25}, "fedsam", {"rho": 0.1}, 0.25),
    ("fedgamma", {"rho": 0.1}, "fedsam", {"rho": 0.1}, 1.0),
    ("fedlesam", {"rho": 0.5}, "fedavg", {}, 1.0),
    ("fedlesam-s", {"rho": 0.5}, "fedavg", {}, 1.0),
    ("moon", {"mu": 5}, "fedavg", {}, 1.0),
    ("fedgf", {"threshold": 0}, "fedsam", {}, 1.0),
    ("fedfsa", {"a": 0.25}, "fedsam", {}, 0.25),
    ("fedgloss", {}, "feddyn+sam", {"alpha": 0.1, "rho": 0.15}, 1.0),
    ("fedala", {}, "fedavg", {}, 1.0),
]


@pytest.mark.parametrize(("name", "settings", "other", "others", "factor"), FIRST_ROUND)
def test_the_first_round_has_nothing_to_remember(
    name: str, settings: dict, other: str, others: dict, factor: float
) -> None:
    everyone = {"rounds": {"participants": 7}}  # so that all remember something in the second
    left = play(setup(name, settings, local={"lr": 0.2}, **everyone), 2)
    right = play(setup(other, others, local={"lr": 0.2 * factor}, **everyone), 2)
    assert close(left[0][0].w, right[0][0].w)
    assert not close(left[1][0].w, right[1][0].w, 1e-4)


@pytest.mark.parametrize(
    ("name", "settings", "other", "others"),
    [
        ("fedsol", {}, "fedavg", {}),
        ("fedsol", {"radius": "adaptive"}, "fedavg", {}),
        ("fedntd", {}, "fedavg", {}),
        ("fedsmoo", {}, "fedsam", {"rho": 0.1}),
        ("fedvssam", {"a": 1.0}, "fedsam", {}),
    ],
)
def test_the_first_step_of_all(name: str, settings: dict, other: str, others: dict) -> None:
    """At the model that was sent, proximal losses are flat, and nothing has been shared yet."""
    one, two = setup(name, settings, local={"steps": 1}), setup(other, others, local={"steps": 1})
    _, _, left = play(one, 1)[0]
    _, _, right = play(two, 1)[0]
    assert all(close(left[k], right[k], ROUNDING) for k in left)
    later = setup(name, settings, local={"steps": 3}), setup(other, others, local={"steps": 3})
    (_, _, left), (_, _, right) = (play(fed, 2)[1] for fed in later)
    assert not all(close(left[k], right[k], 1e-5) for k in left)


@pytest.mark.parametrize("name", ["scaffold", "scaffold+asam", "fedgamma", "fedlesam-s", "fedwmsam"])
def test_the_server_keeps_the_mean_of_all_control_variates(name: str) -> None:
    fed = setup(name, local={"momentum": 0.5})
    for state, _, _ in play(fed, 5):
        every = sum(vectors["control"] for vectors in state.clients.values()) / 7
        assert close(state.server["global_control"], every)
        assert every.norm() > 1e-3
    assert len(state.clients) > 3


@pytest.mark.parametrize(
    ("name", "settings", "alpha"),
    [
        ("feddyn", {"alpha": 0.3}, 0.3),
        ("feddyn+sam", {"alpha": 0.3}, 0.3),
        ("fedlesam-d", {"alpha": 0.3}, 0.3),
        ("fedsmoo", {"beta": 4}, 0.25),
        ("fedspeed", {"lam": 4, "duals": "all"}, 0.25),
        ("fedgmt", {"beta": 4, "duals": "all"}, 0.25),
    ],
)
def test_the_mean_of_all_duals_is_subtracted(name: str, settings: dict, alpha: float) -> None:
    fed = setup(name, settings, rounds={"aggregation": "uniform"})
    for state, _, ends in play(fed, 5):
        every = sum(vectors["dual"] for vectors in state.clients.values()) / 7
        assert close(alpha * state.server["sigma"], every)
        assert close(state.w - sum(ends.values()) / 3, -every / alpha, 1e-11)


@pytest.mark.parametrize("name", ["fedgloss", "naivefedgloss"])
def test_fedgloss_from_what_was_sent_keeps_the_mean_of_all_duals(name: str) -> None:
    for state, _, _ in play(setup(name, {"beta": 4, "dual_from": "sent"}), 5):
        every = sum(vectors["dual"] for vectors in state.clients.values()) / 7
        assert close(state.server["sigma"] / 4, every)


@pytest.mark.parametrize("dual_from", ["model", "code"])
def test_fedgloss_as_written_and_as_coded_do_not(dual_from: str) -> None:
    state = play(setup("fedgloss", {"beta": 4, "dual_from": dual_from}), 5)[-1][0]
    every = sum(vectors["dual"] for vectors in state.clients.values()) / 7
    assert not close(state.server["sigma"] / 4, every, 1e-3)


def test_fedgloss_moves_its_dual_from_the_model_itself_as_in_line_22() -> None:
    """sigma^{t+1} = sigma^t - sum_k (w_k - w^t) / (beta N), and w^{t+1} = w^t - P - beta sigma^{t+1}."""
    fed = setup("fedgloss", {"beta": 4.0, "rho_s": 0.3})
    w, sigma = fed.begin().w, torch.zeros(43).double()
    for state, _, ends in play(fed, 5):
        sigma = sigma - sum(end - w for end in ends.values()) / (4 * 7)
        assert close(state.server["sigma"] / 4, sigma)
        assert close(state.w, w - state.server["ascent"] - 4 * sigma)
        w = state.w


def test_sam_with_the_previous_gradient_goes_on_across_rounds() -> None:
    """One client with one step per round: e of a round is along the gradient of the round before, taken at w + e."""
    fed = setup("fedsam-previous", {"rho": 0.3}, sizes=[11], local={"steps": 1, "batch_size": 100})
    from tests.training.federations import examples, gradient

    w, before = fed.begin().w, torch.zeros(43).double()
    for state, record, _ in play(fed, 4):
        before = gradient(w + 0.3 * before / before.norm().clamp(min=1e-300), *examples(fed))
        w = w - 0.2 * before
        assert close(state.w, w)
        assert close(state.clients[0]["previous_gradient"], before)
        assert record["gradients"] == 1


def test_fedsmoo_agrees_on_a_growing_perturbation() -> None:
    fed = setup("fedsmoo", {"rho": 0.4, "warmup": 4, "rho_start": 0.0})
    lengths = [float(norm(state.server["shared_perturbation"])) for state, _, _ in play(fed, 5)]
    assert lengths == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4], rel=1e-12)


def test_fedsmoo_agrees_on_a_perturbation_of_the_right_length() -> None:
    for state, _, _ in play(setup("fedsmoo", {"rho": 0.3}), 3):
        assert float(norm(state.server["shared_perturbation"])) == pytest.approx(0.3, rel=1e-12)


def test_fedvssam_averages_over_rounds_with_both_coefficients() -> None:
    """G = (1 - a) d + a mean(g~), so that d forgets at the rate a gamma."""
    fed = setup("fedvssam", {"a": 0.4, "gamma": 0.3, "rho": 0}, local={"steps": 1})
    before, (state, _, _) = fed.begin(), play(fed, 1)[0]
    second = play(fed, 1, state=state)[0]
    d = state.server["direction"]
    weights = {k: len(fed.client_indices[k]) for k in second[2]}
    slopes = {k: ((state.w - w) / 0.2 - 0.6 * d) / 0.4 for k, w in second[2].items()}
    mean = sum(weights[k] * slopes[k] for k in slopes) / sum(weights.values())
    assert close(second[0].server["direction"], (1 - 0.12) * d + 0.12 * mean, 1e-10)
    assert not bool(before.server["direction"].any())


def test_fedlesam_climbs_back_along_the_last_round_with_everyone() -> None:
    fed = setup("fedlesam", {"rho": 0.2}, rounds={"participants": 7})
    first, second = (state for state, _, _ in play(fed, 2))
    assert all(torch.equal(vectors["last_sent"], first.w) for vectors in second.clients.values())


def test_fedbabu_trains_the_body_alone() -> None:
    fed = setup("fedbabu", local={"weight_decay": 0.1, "momentum": 0.5})
    start, end = fed.begin().w, play(fed, 2)[-1][0].w
    head = 3 * 5 + 3
    assert torch.equal(start[-head:], end[-head:])
    assert not close(start[:-head], end[:-head], 1e-2)


def test_perfedavg_without_adaptation_learns_from_the_second_halves() -> None:
    fed = setup("perfedavg", {"adapt": 0}, local={"steps": 1})
    _, _, ends = play(fed, 1)[0]
    from tests.training.federations import batches, gradient

    for client, w in ends.items():
        X, y = next(batches(fed, client, 0))
        half = (len(y) + 1) // 2
        start = fed.begin().w
        assert close(
            w, start - 0.2 * gradient(start, X[half:] if half < len(y) else X, y[half:] if half < len(y) else y)
        )


def test_fedgf_trusts_the_server_once_clients_drift() -> None:
    fed = setup("fedgf", {"threshold": 0, "window": 2})
    for round, (state, _, _) in enumerate(play(fed, 4), start=1):
        sent = fed.method.make_message(state.w, state.server)
        assert float(sent["trust"]) == 1.0
        assert float(state.server["looked"]) == round


def test_the_ramp_of_a_radius() -> None:
    fed = setup("fedsam", {"rho": 0.5, "warmup": 4, "rho_start": 0.1})
    from training.rules.context import ClientContext

    def radius(round: int) -> float:
        context = ClientContext(fed.trainer.layout, fed.begin().w, {}, {}, lr=0.1, momentum=0.0, steps=1, round=round)
        return fed.method.perturbation.radius(context)

    # the paper's rho(t) = rho_0 + (rho - rho_0) t / T_s for its rounds t = 1, 2, 3, 4, 5, 10
    assert [radius(t - 1) for t in (1, 2, 3, 4, 5, 10)] == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.5, 0.5])
