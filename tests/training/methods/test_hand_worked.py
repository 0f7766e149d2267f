"""One step of every seed's method on L = w'Aw / 2 with A = diag(1, 4), worked out by hand.

At w = (3, 1) the gradient is (3, 4), of length 5. The rate is 0.1, K = 1, and there is one client.
"""

import pytest
import torch
from torch import Tensor, nn

from landscape.layout import Layout
from tests.training.federations import federation
from training.clients.local_training import local_step
from training.methods import catalog
from training.methods.fedfsa import list_comparable
from training.models import networks
from training.rules.context import ClientContext, RoundReport
from training.rules.vectors import Vectors

A = torch.tensor([1.0, 4.0], dtype=torch.float64)
W = torch.tensor([3.0, 1.0], dtype=torch.float64)
LAYOUT = Layout.of(nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)))  # two weights, two tensors


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def visit_of(method: catalog.Method, start: Tensor, server: Vectors | None = None, **state: Tensor) -> ClientContext:
    server = {**method.init_server(start), **(server or {})}
    remembered = {**method.init_client(LAYOUT, start), **state}
    return ClientContext(
        LAYOUT, start, method.make_message(start, server), remembered, lr=0.1, momentum=0.0, steps=1, round=0
    )


def step(method: catalog.Method, context: ClientContext, w: Tensor, hessian: Tensor = A) -> Tensor:
    moved, _ = local_step(method, lambda point, loss_term=None, half=None: hessian * point, w, None, context, RECIPE)
    return moved


RECIPE = federation().recipe


def report_of(start: Tensor, end: Tensor, model: Tensor, changes: Vectors | None = None) -> RoundReport:
    D = end - start
    return RoundReport(
        model=model,
        start=start,
        displacement=D,
        pseudo_gradient=-D / 0.1,
        effective_steps=1.0,
        uploads={},
        changes=changes or {},
        states={},
        drift=float(D.norm()),
        participants=1,
        clients=1,
        lr=0.1,
        round=0,
    )


def test_fedfsas_code_compares_18_tensors_of_resnet18() -> None:
    """The shortcuts' convolutions move most here: the paper's measure chooses them, the code's does not know them."""
    layout = Layout.of(networks.build("resnet18_bn", classes=10, channels=3, size=32, seed=0))
    shortcuts = [place for place, entry in enumerate(layout.entries) if "downsample.0" in entry.name]
    start = torch.randn(layout.size, generator=torch.Generator().manual_seed(0))
    w = start.clone()
    for place in shortcuts:
        layout.view(w, layout.entries[place]).copy_(torch.randn(layout.entries[place].shape))
    for measure, count in (("square", 21), ("mean", 21), ("minmax", 18)):
        places = list_comparable(layout, measure)
        assert len(places) == count
        assert {layout.entries[place].name for place in places} >= {
            "conv1.weight",
            "layer4.1.conv2.weight",
            "fc.weight",
        }
        for select in ("top", "random"):
            method = catalog.find_method("fedfsa", {"measure": measure, "layers": 18, "select": select})
            context = ClientContext(layout, start, {}, {}, lr=0.1, momentum=0.0, steps=1, round=0)
            chosen = method.perturbation.update_client(context, w)["chosen"].nonzero().flatten().tolist()
            assert len(chosen) == 18
            assert bool(set(chosen) & set(shortcuts)) == (measure != "minmax")


def test_fedsam() -> None:
    method = catalog.find_method("fedsam", {"rho": 0.5})  # e = (0.3, 0.4), g~ = (3.3, 5.6)
    assert step(method, visit_of(method, W), W).tolist() == pytest.approx([2.67, 0.44])


def test_fedasam() -> None:
    method = catalog.find_method("fedasam", {"rho": 0.5, "eta": 0.0})
    w, hessian = vector(2.0, 1.0), vector(0.75, 4.0)  # g = (1.5, 4), T g = (3, 4), e = 0.5 (6, 4) / 5
    assert step(method, visit_of(method, w), w, hessian).tolist() == pytest.approx([2 - 0.195, 1 - 0.56])


def test_fedfsa() -> None:
    method = catalog.find_method("fedfsa", {"rho": 0.5, "rho_larger": 1.0, "a": 0.5, "layers": 1})
    context = visit_of(method, W, {"momentum": vector(1.0, 1.0)}, chosen=vector(0.0, 1.0))
    moved = step(method, context, W)  # e = (0.3, 0.8), g~ = (3.3, 7.2), u = (2.15, 4.1)
    assert moved.tolist() == pytest.approx([2.785, 0.59])
    # squares of what moved: 0.046 and 0.168
    assert method.update_client(context, moved)["chosen"].tolist() == [0.0, 1.0]
    reverse = catalog.find_method("fedfsa", {"layers": 1, "select": "reverse"})
    assert reverse.update_client(context, moved)["chosen"].tolist() == [1.0, 0.0]


def test_fedvssam() -> None:
    method = catalog.find_method("fedvssam", {"rho": 0.5, "a": 0.5, "gamma": 0.5})
    d = vector(9.0, 12.0)  # v = (6, 8), e = (0.3, 0.4), g~ = (3.3, 5.6), u = (6.15, 8.8)
    moved = step(method, visit_of(method, W, {"direction": d}), W)
    assert moved.tolist() == pytest.approx([2.385, 0.12])
    w, server = method.advance(W, {"direction": d}, report_of(W, moved, W))
    assert server["direction"].tolist() == pytest.approx([7.575, 10.4])
    assert w.tolist() == pytest.approx([2.2425, -0.04])


@pytest.mark.parametrize(
    ("switches", "end", "following"),
    [
        # only (14): v = (6, 8) as above, u = g~ = (3.3, 5.6), d = u
        ({"lu": False, "gu": False}, [2.67, 0.44], [2.67, 0.44]),
        # only (15): e = 0.5 (0.6, 0.8), the same by chance of the numbers; u = (6.15, 8.8), d = u
        ({"lf": False, "gu": False}, [2.385, 0.12], [2.385, 0.12]),
        # only (16): FedSAM's step, d = 0.5 (9, 12) + 0.5 (3.3, 5.6) = (6.15, 8.8)
        ({"lf": False, "lu": False}, [2.67, 0.44], [2.385, 0.12]),
    ],
)
def test_fedvssam_one_switch_at_a_time(switches: dict, end: list[float], following: list[float]) -> None:
    method = catalog.find_method("fedvssam", {"rho": 0.5, "a": 0.5, "gamma": 0.5, **switches})
    d = vector(9.0, 12.0)
    moved = step(method, visit_of(method, W, {"direction": d}), W)
    assert moved.tolist() == pytest.approx(end)
    assert method.advance(W, {"direction": d}, report_of(W, moved, W))[0].tolist() == pytest.approx(following)


def test_fedvssam_climbs_along_the_mixed_direction() -> None:
    method = catalog.find_method("fedvssam", {"rho": 0.5, "a": 0.5, "lu": False})
    d = vector(5.0, -4.0)  # v = 0.5 (5, -4) + 0.5 (3, 4) = (4, 0), e = (0.5, 0), g~ = (3.5, 4)
    assert step(method, visit_of(method, W, {"direction": d}), W).tolist() == pytest.approx([2.65, 0.6])


def test_fedgloss() -> None:
    method = catalog.find_method("fedgloss", {"rho": 0.65, "rho_s": 0.5, "beta": 10.0})
    server = {"ascent": vector(3.0, 4.0), "sigma": vector(6.3, 8.4)}  # sigma = beta l, as there is one client
    start = method.server.choose_sent_point(W, server)
    assert start.tolist() == pytest.approx([3.3, 1.4])
    context = visit_of(method, start, server, dual=vector(0.63, 0.84))
    moved = step(method, context, start)  # g = (3.3, 5.6), length 6.5; e = (0.33, 0.56); g~ = (3.63, 7.84); u = (3, 7)
    assert moved.tolist() == pytest.approx([3.0, 0.7])
    dual = method.update_client(context, moved)["dual"]
    assert dual.tolist() == pytest.approx([0.66, 0.91])
    report = report_of(start, moved, W, {"dual": dual - context.state["dual"]})
    w, after = method.advance(W, server, report)  # P = (0.3, 0.7) is taken off w, not off the point that was sent
    assert after["ascent"].tolist() == pytest.approx([0.3, 0.7])
    assert after["sigma"].tolist() == pytest.approx([6.3, 8.7])  # less w_k - w = (0, -0.3), line 22
    assert w.tolist() == pytest.approx([3 - 0.3 - 6.3, 1 - 0.7 - 8.7])


@pytest.mark.parametrize(
    ("dual_from", "sigma"),
    # the paper's line 22 measures from w: e = (0.3, 0.4) more; with one participant the code's extra 1 / S is 1
    [("sent", [6.6, 9.1]), ("model", [6.3, 8.7]), ("code", [0.3, 0.7])],
)
def test_fedgloss_where_paper_and_code_differ(dual_from: str, sigma: list[float]) -> None:
    method = catalog.find_method("fedgloss", {"rho_s": 0.5, "beta": 10.0, "dual_from": dual_from})
    server = {**method.init_server(W), "ascent": vector(3.0, 4.0)}
    server["sigma"] = vector(6.3, 8.4) if dual_from != "code" else vector(0.0, 0.0)
    start = method.server.choose_sent_point(W, server)
    report = report_of(start, vector(3.0, 0.7), W, {"dual": vector(0.03, 0.07)})
    assert method.advance(W, server, report)[1]["sigma"].tolist() == pytest.approx(sigma)


def test_naivefedgloss() -> None:
    method = catalog.find_method("naivefedgloss", {"rho_s": 0.5})
    probe = report_of(W, W - vector(0.3, 0.4), W)  # the cohort went downhill by (0.3, 0.4) from w
    assert method.server.choose_sent_point_after(W, {}, probe).tolist() == pytest.approx([3.3, 1.4])


SENT = vector(0.0, -3.0)  # w - w^t = (3, 4): L_p = ||w - w^t||^2 / 2 climbs as the loss itself does


@pytest.mark.parametrize(
    ("combine", "end"),
    [
        ("A0", [3 - 0.3, 1 - 0.4]),  # g(w) = (3, 4)
        ("A1", [3 - 0.33, 1 - 0.56]),  # e = (0.3, 0.4), g(w + e) = (3.3, 5.6)
        ("A2", [3 - 0.465, 1 - 0.62]),  # g(w) + 0.5 (3.3, 4.4)
        ("A3", [3 - 0.495, 1 - 0.78]),  # g(w + e) + 0.5 (3.3, 4.4)
        ("A4", [3 - 0.495, 1 - 0.78]),  # g + 0.5 g_p = (4.5, 6), the same e
        ("A5", [3 - 0.45, 1 - 0.6]),  # g(w) + 0.5 (3, 4)
        ("A6", [3 - 0.48, 1 - 0.76]),  # g(w + e) + 0.5 (3, 4)
    ],
)
def test_fedsol(combine: str, end: list[float]) -> None:
    settings = {"rho": 0.5, "proximal": "distance", "combine": combine, "beta": 0.5}
    method = catalog.find_method("fedsol", settings)
    assert step(method, visit_of(method, SENT), W).tolist() == pytest.approx(end)


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        ({"part": "head"}, [3 - 0.3, 1 - 0.1 * 4 * 1.5]),  # e = (0, 0.5)
        ({"part": "body"}, [3 - 0.35, 1 - 0.4]),  # e = (0.5, 0)
        ({"radius": "adaptive"}, [3 - 0.33, 1 - 0.56]),  # every layer is one number: its share is 1
        ({"proximal": "local"}, [3 - 0.33, 1 - 0.56]),
    ],
)
def test_fedsol_in_parts(settings: dict, end: list[float]) -> None:
    method = catalog.find_method("fedsol", {"rho": 0.5, "proximal": "distance", **settings})
    assert step(method, visit_of(method, SENT), W).tolist() == pytest.approx(end)


@pytest.mark.parametrize(
    ("radius", "end"),
    [
        # eq. 11: weight and bias are one layer, which moved by (3, 4): e = 0.5 (0.6, 0.8) times (0.6, 0.8)
        ("adaptive", [3 - 0.1 * 3.18, 1 - 0.1 * 4 * 1.32]),
        ("adaptive_code", [3 - 0.33, 1 - 0.56]),  # each tensor by itself
    ],
)
def test_fedsol_takes_weight_and_bias_for_one_layer(radius: str, end: list[float]) -> None:
    method = catalog.find_method("fedsol", {"rho": 0.5, "proximal": "distance", "radius": radius})
    context = visit_of(method, SENT)
    context.layout = Layout.of(nn.Linear(1, 1))
    assert step(method, context, W).tolist() == pytest.approx(end)


def test_fedsol_does_not_climb_where_it_was_sent() -> None:
    method = catalog.find_method("fedsol", {"rho": 0.5})
    assert step(method, visit_of(method, W), W).tolist() == pytest.approx([2.7, 0.6])
