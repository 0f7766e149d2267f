"""Every method of the catalog once more, in plain loops and the papers' words: what the engine is held against.

It shares nothing with the engine but the batches' keys, the cohorts and the settings. One function says how a client
steps, one what it remembers, one how the server moves; each knows methods by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from landscape.rng import numpy_generator
from tests.training import fedcr_paper
from tests.training.federations import (
    CLASSES,
    HIDDEN,
    PIXELS,
    batches,
    derivative,
    examples,
    gradient,
    hidden,
    loss,
    named_weight,
    scores,
)
from training.engine.federation import Federation
from training.methods import catalog

PERTURBED = {
    "fedsam": "sam",
    "mofedsam": "sam",
    "fedgamma": "sam",
    "fedgloss": "sam",
    "naivefedgloss": "sam",
    "fedsam-previous": "previous_sam",
    "fedasam": "asam",
    "fedspeed": "speed",
    "fedsmoo": "smoo",
    "fedlesam": "lesam",
    "fedlesam-s": "lesam",
    "fedlesam-d": "lesam",
    "fedgf": "gf",
    "fedwmsam": "wmsam",
    "fedfsa": "fsa",
    "fedvssam": "vssam",
    "fedsol": "sol",
    "fedsol-nova": "sol",
    "perfedavg": "meta",
}
BOUNDS = [0, PIXELS * HIDDEN, PIXELS * HIDDEN + HIDDEN, PIXELS * HIDDEN + HIDDEN + HIDDEN * CLASSES]  # W1 b1 W2 b2
DUALS = ("feddyn", "fedlesam-d", "fedsmoo", "fedspeed", "fedgmt", "fedgloss", "naivefedgloss")
CONTROLLED = ("scaffold", "fedgamma", "fedlesam-s", "fedwmsam")


def unit(v: Tensor) -> Tensor:
    return v / v.norm() if v.norm() > 0 else v


def kl(teacher: Tensor, student: Tensor, tau: float) -> Tensor:
    p, q = torch.softmax(teacher / tau, 1), torch.softmax(student / tau, 1)
    return (p * (p / q).log()).sum(1).mean()


def without(z: Tensor, y: Tensor) -> Tensor:
    """Logits of the classes that are not the label."""
    return torch.stack([torch.cat([row[:label], row[label + 1 :]]) for row, label in zip(z, y.tolist(), strict=True)])


class Paper:
    """One federation, played by hand."""

    def __init__(self, fed: Federation):
        self.fed, self.p = fed, catalog.read_settings(fed.method)
        self.name, _, other = fed.method.name.partition("+")
        self.perturbation = other or PERTURBED.get(self.name, "none")
        self.lr, self.r, self.wd = fed.recipe.local.lr, fed.recipe.local.momentum, fed.recipe.local.weight_decay
        self.N, self.t = len(fed.client_indices), 0
        self.w = fed.begin().w
        zero = self.zero = torch.zeros_like(self.w)
        self.c, self.G, self.m, self.P, self.h, self.s = zero, zero, zero, zero, zero, zero
        self.v = zero + self.p.get("tau", 0.0) ** 2
        self.memory: dict[int, dict[str, Any]] = {}
        self.theta, self.ema, self.w_g, self.exceeded = self.w, self.w, self.w, list[float]()
        self.a = self.p.get("a", 0.0)

    def remembered(self, k: int, sent: Tensor) -> dict[str, Any]:
        """What client k remembers; at first nothing, which is zeros, or the model it is sent now."""
        zero = self.zero
        fresh = {
            "c": zero,
            "l": zero,
            "mu": zero,
            "h": zero,
            "g": zero,
            "last": -1,
            "old": sent,
            "previous": sent,
            "top": (),
        }
        return dict(self.memory.get(k, {**fresh, "personal": sent, "M": torch.ones(CLASSES * (HIDDEN + 1)).double()}))

    @property
    def alpha(self) -> float:
        """The strength of the duals under whichever name."""
        inverse = {"fedsmoo": "beta", "fedspeed": "lam", "fedgmt": "beta", "fedgloss": "beta", "naivefedgloss": "beta"}
        return 1 / self.p[inverse[self.name]] if self.name in inverse else self.p["alpha"]

    @property
    def rho(self) -> float:
        """The radius of this round, which may grow at first; the paper counts rounds from one."""
        p, t = self.p, self.t + 1
        return p["rho_start"] + (p["rho"] - p["rho_start"]) / p["warmup"] * t if t <= p["warmup"] else p["rho"]

    def objective(self, x: Tensor, X: Tensor, y: Tensor, sent: Tensor, mine: dict[str, Any]) -> Tensor:
        """The local loss."""
        found, p = loss(x, X, y), self.p
        if self.name == "fedntd":
            z, z_g = without(scores(x, X), y), without(scores(sent, X), y).detach()
            found = found + p["beta"] * p["tau"] ** 2 * kl(z_g, z, p["tau"])
        elif self.name == "moon":
            found = found + p["mu"] * self.contrast(x, X, sent, mine["previous"], p["tau"])
        elif self.name == "fedgmt":
            e = p["ema"] * self.ema + (1 - p["ema"]) * self.w
            found = found + p["gamma"] * p["tau"] ** 2 * kl(scores(e, X), scores(x, X), p["tau"])
        return found

    def contrast(self, x: Tensor, X: Tensor, sent: Tensor, previous: Tensor, tau: float) -> Tensor:
        near, far = (
            torch.exp(torch.cosine_similarity(hidden(x, X), hidden(other, X), dim=1) / tau)
            for other in (sent, previous)
        )
        return -(near / (near + far)).log().mean()

    def descent(self, x: Tensor, X: Tensor, y: Tensor, sent: Tensor, mine: dict[str, Any], b: int) -> Tensor:
        """g~, after b local steps."""
        p, kind = self.p, self.perturbation

        def g(at: Tensor) -> Tensor:
            return derivative(lambda point: self.objective(point, X, y, sent, mine), at)

        if kind == "none":
            return g(x)
        if kind == "sam":
            return g(x + self.rho * unit(g(x)))
        if kind == "previous_sam":
            mine["g"] = g(x + self.rho * unit(mine["g"]))
            return mine["g"]
        if kind == "asam":
            T = torch.where(named_weight(len(x)), x.abs() + p["eta"], 1.0)
            gradient_at = g(x)
            return g(x + p["rho"] * T**2 * gradient_at / (T * gradient_at).norm())
        if kind == "speed":
            gradient_at = g(x)
            return g(x + p["rho"] * (unit(gradient_at) if p["normalised"] else gradient_at))
        if kind == "smoo":
            e = self.rho * unit(g(x) - mine["mu"] - self.s)
            mine["mu"], mine["e"] = mine["mu"] + e - self.s, e
            return g(x + e)
        if kind == "lesam":
            return g(x + p["rho"] * unit(mine["old"] - sent))
        if kind == "gf":
            c = sum(self.exceeded[-p["window"] :]) / max(len(self.exceeded[-p["window"] :]), 1)
            return g(c * self.w_g + (1 - c) * (x + p["rho"] * unit(g(x))))
        if kind == "wmsam":
            return g(x + p["sign"] * p["rho"] * unit(sent + b * self.personal(mine) - x))
        if kind == "fsa":
            gradient_at, radii = g(x), torch.full_like(x, p["rho"])
            for j in mine["top"]:
                radii[BOUNDS[j] : (*BOUNDS, len(x))[j + 1]] = p["rho_larger"]
            return g(x + radii * gradient_at / gradient_at.norm())
        if kind == "vssam":
            gradient_at = g(x)
            along = (1 - p["a"]) * self.G + p["a"] * gradient_at if p["lf"] else gradient_at
            return g(x + p["rho"] * unit(along))
        if kind == "sol":
            return self.sol(x, X, y, sent, mine, g)
        assert kind == "meta"
        half = (len(y) + 1) // 2
        (X1, y1), (X2, y2) = ((X[:half], y[:half]), (X[half:], y[half:])) if len(y) > 1 else ((X, y), (X, y))
        return gradient(x - p["adapt"] * gradient(x, X1, y1), X2, y2)

    def sol(self, x: Tensor, X: Tensor, y: Tensor, sent: Tensor, mine: dict[str, Any], g: Any) -> Tensor:
        p = self.p

        def g_p(at: Tensor) -> Tensor:
            if p["proximal"] == "local":
                return g(at)
            if p["proximal"] == "distance":
                return at - sent
            if p["proximal"] == "control":
                return self.c - mine["c"]
            if p["proximal"] == "dual":
                return p["alpha"] * (at - sent) - mine["l"]
            if p["proximal"] == "contrast":
                if torch.equal(mine["previous"], sent):
                    return self.zero
                return derivative(lambda point: self.contrast(point, X, sent, mine["previous"], p["tau"]), at)
            if torch.equal(at, sent):
                return self.zero
            return derivative(lambda point: kl(scores(sent, X), scores(point, X), p["tau"]), at)

        def climbed(along: Tensor) -> Tensor:
            along = along.clone()
            if p["part"] == "head":
                along[: BOUNDS[2]] = 0
            elif p["part"] == "body":
                along[BOUNDS[2] :] = 0
            e = p["rho"] * unit(along)
            if p["radius"] != "fixed":
                away = (x - sent).abs()
                if p["radius"] == "adaptive":  # a layer is its weight with its bias
                    pieces = [layer / layer.norm() for layer in away.split([25, 18])]
                else:
                    shapes = [(HIDDEN, PIXELS), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,)]
                    tensors = zip(away.split([20, 5, 15, 3]), shapes, strict=True)
                    pieces = [piece.view(shape) / piece.view(shape).norm(dim=0) for piece, shape in tensors]
                e = e * torch.cat([torch.nan_to_num(piece).reshape(-1) for piece in pieces])
            return x + e

        beta = p["beta"]
        if p["combine"] == "A0":
            return g(x)
        if p["combine"] == "A1":
            return g(climbed(g_p(x)))
        if p["combine"] == "A2":
            return g(x) + beta * g_p(climbed(g_p(x)))
        if p["combine"] == "A3":
            return g(climbed(g_p(x))) + beta * g_p(climbed(g_p(x)))
        if p["combine"] == "A4":
            both = climbed(g(x) + beta * g_p(x))
            return g(both) + beta * g_p(both)
        if p["combine"] == "A5":
            return g(x) + beta * g_p(x)
        return g(climbed(g_p(x))) + beta * g_p(x)

    def personal(self, mine: dict[str, Any]) -> Tensor:
        return self.G + self.a / (1 - self.a) * (self.c - mine["c"])

    def direction(self, g: Tensor, x: Tensor, sent: Tensor, mine: dict[str, Any]) -> Tensor:
        """u from g~."""
        p, name = self.p, self.name
        if name in ("fedprox", "fedacg"):
            return g + p["mu"] * (x - sent)
        if name == "fedwmsam":
            return self.a * g + (1 - self.a) * self.personal(mine)
        if name in CONTROLLED:
            return g - mine["c"] + self.c
        if name == "fedgmt":
            return g - mine["l"]
        if name in DUALS:
            return g - mine["l"] + self.alpha * (x - sent)
        if name in ("fedcm", "mofedsam", "fedfsa") or (name == "fedvssam" and p["lu"]):
            return p["a"] * g + (1 - p["a"]) * self.G
        if name == "adabest":
            return g - p["mu"] * mine["h"]
        return g

    def begin(self, k: int, sent: Tensor, mine: dict[str, Any]) -> Tensor:
        """Where the client starts."""
        if self.name != "fedala" or torch.equal(mine["personal"], sent):
            return sent
        p, fed = self.p, self.fed
        keep = BOUNDS[2] if p["tensors"] == 2 else BOUNDS[3]
        own, gap, losses, M = mine["personal"][keep:], (sent - mine["personal"])[keep:], list[float](), mine["M"]
        M = M[-len(gap) :]
        for again in range(50 if mine.get("passes", 0) == 0 else 1):
            order = numpy_generator(fed.recipe.seed, "enter", self.t, k, again).permutation(fed.client_indices[k])
            order = order[: -int(-p["share"] * len(order) // 1)]
            for start in range(0, len(order), fed.recipe.local.batch_size):
                X, y = examples(fed, order[start : start + fed.recipe.local.batch_size])
                x = torch.cat([sent[:keep], own + gap * M])
                M = (M - p["rate"] * gradient(x, X, y)[keep:] * gap).clamp(0, 1)
            losses.append(float(loss(x, X, y)))
            if len(losses) > 10 and torch.tensor(losses[-10:]).double().std(correction=0) < p["threshold"]:
                break
        mine["M"], mine["passes"] = M, mine.get("passes", 0) + len(losses)
        return torch.cat([sent[:keep], own + gap * M])

    def context(self, k: int, sent: Tensor) -> tuple[Tensor, float, dict[str, Any]]:
        """Where client k ends, how many gradients lie in its way, and what it remembers then."""
        mine = self.remembered(k, sent)
        x, velocity, pull, a = self.begin(k, sent, mine), self.zero, 0.0, 0.0
        for b, (X, y) in enumerate(batches(self.fed, k, self.t)):
            tilde = self.descent(x, X, y, sent, mine, b)
            if self.name == "fedspeed":
                tilde = (1 - self.p["a"]) * gradient(x, X, y) + self.p["a"] * tilde
            u = self.direction(tilde, x, sent, mine) + self.wd * x
            if self.name == "fedbabu":
                u[BOUNDS[2] :] = 0
            velocity = self.r * velocity + u
            x = x - self.lr * velocity
            pull = self.r * pull + 1  # were every u the same, so many of them would lie in this velocity
            a += pull
        D = x - sent
        after = {
            "c": mine["c"] - self.c - D / (self.lr * a),
            "l": mine["l"] - self.alpha * D if self.name in DUALS or self.p.get("proximal") == "dual" else self.zero,
            "h": mine["h"] / (self.t - mine["last"]) - D,
            "last": self.t,
            "old": sent,
            "previous": x,
            "personal": x,
            "top": self.top(k, sent, x) if self.perturbation == "fsa" else (),
        }
        return x, a, {**mine, **after}

    def top(self, k: int, sent: Tensor, x: Tensor) -> list[int]:
        """The tensors among W1 (0) and W2 (2) that get the larger radius next time."""
        p = self.p
        if p["select"] == "random":
            return [2 * int(i) for i in numpy_generator(3, "layers", self.t, k).permutation(2)][: p["layers"]]
        moved = {}
        for j in (0, 2):
            before, after = (v[BOUNDS[j] : BOUNDS[j + 1]] for v in (sent, x))
            if p["measure"] == "minmax":
                before, after = ((v - v.min()) / (v.max() - v.min()) for v in (before, after))
            squares = (after - before) ** 2
            moved[j] = float(squares.sum() if p["measure"] == "square" else squares.mean())
        return sorted(moved, key=lambda j: moved[j], reverse=p["select"] == "top")[: p["layers"]]

    def play(self) -> Tensor:
        """One round: the next global model."""
        fed, p, name, w, N = self.fed, self.p, self.name, self.w, self.N
        cohort = fed.draw_cohort(self.t)
        share = {k: len(fed.client_indices[k]) / sum(len(fed.client_indices[j]) for j in cohort) for k in cohort}
        sent = w
        if name == "fedacg":
            sent = w + p["lam"] * self.m
        elif name == "fedgloss":
            sent = w + p["rho_s"] * unit(self.P)
        elif name == "naivefedgloss":
            sent = w + p["rho_s"] * unit(-sum(share[k] * (self.context(k, w)[0] - w) for k in cohort))
        found = {k: self.context(k, sent) for k in cohort}
        D = {k: x - sent for k, (x, _, _) in found.items()}
        a = {k: steps for k, (_, steps, _) in found.items()}
        before = {k: self.remembered(k, sent) for k in cohort}
        after = {k: mine for k, (_, _, mine) in found.items()}
        self.memory.update(after)
        mean = sum(share[k] * D[k] for k in cohort)
        G = -sum(share[k] * D[k] / (self.lr * a[k]) for k in cohort)
        K = sum(share[k] * a[k] for k in cohort)
        if name in CONTROLLED or p.get("proximal") == "control":
            agreement = sum(share[k] * (1 + torch.dot(unit(D[k]), unit(self.G))) for k in cohort)
            self.c = self.c + sum(after[k]["c"] - before[k]["c"] for k in cohort) / N
            if name == "fedwmsam":
                self.a = (1 - p["pace"]) * self.a + p["pace"] * min(max(float(agreement), 0.1), 0.9)
        everyone = sum((mine["l"] for mine in self.memory.values()), self.zero) / N
        seen = sum(share[k] * after[k]["l"] for k in cohort)
        if name == "fedavgm":
            self.m = p["beta"] * self.m + mean
            w = w + p["eta_g"] * self.m
        elif name == "fedadam":
            self.m, self.v = p["b1"] * self.m + (1 - p["b1"]) * mean, p["b2"] * self.v + (1 - p["b2"]) * mean**2
            w = w + p["eta_g"] * self.m / (self.v.sqrt() + p["tau"])
        elif name == "fedadagrad":
            self.v = self.v + mean**2
            w = w + p["eta_g"] * mean / (self.v.sqrt() + p["tau"])
        elif name in ("fednova", "fedsol-nova"):
            w = w + K * sum(share[k] * D[k] / a[k] for k in cohort)
        elif name == "fedacg":
            self.m = p["lam"] * self.m + mean
            w = sent + mean
        elif name == "adabest":
            theta = sent + mean
            w, self.theta = theta + p["beta"] * (theta - self.theta), theta
        elif name == "fedvssam":
            gamma = p["gamma"] if p["gu"] else 1.0
            G = (1 - gamma) * self.G + gamma * G
            w = w - p["eta_g"] * self.lr * K * G
        elif name in ("fedgloss", "naivefedgloss"):
            self.P = -mean
            change = sum(D[k] + (sent - w if p["dual_from"] == "model" else 0.0) for k in cohort)
            self.h = self.h - change / (p["beta"] * N * (len(cohort) if p["dual_from"] == "code" else 1))
            w = w - p["eta_s"] * self.P - p["beta"] * self.h
        elif name in DUALS:
            participants = p.get("duals") == "participants"
            w = w + mean - (seen if participants else everyone) / self.alpha
        elif name == "fedgf":
            following = w + p["eta_g"] * mean
            self.w_g = following + p["rho_g"] * unit(w - following)
            self.exceeded.append(float(sum(D[k].norm() for k in cohort) / len(cohort) > p["threshold"]))
            w = following
        elif name in catalog.ALGORITHMS and "eta_g" in p:
            w = w + p["eta_g"] * mean
        else:
            raise NotImplementedError(f"write the formulas of {name} here: without them it is not tested")
        if self.perturbation == "smoo":
            votes = (
                share[k] * (after[k]["mu"] - (after[k]["e"] if p["exchange"] == "difference" else 0)) for k in cohort
            )
            self.s = self.rho * unit(sum(votes, self.zero))
        if name == "fedgmt":
            self.ema = p["ema"] * self.ema + (1 - p["ema"]) * self.w
        self.w, self.G, self.t = w, G, self.t + 1
        return w


def global_models(fed: Federation) -> Iterator[Tensor]:
    """The global model after each round."""
    if fed.method.name.startswith("fedcr"):
        yield from fedcr_paper.global_models(fed)
    paper = Paper(fed)
    while True:
        yield paper.play()
