"""Every method of the catalog once more, in plain loops and the papers' words: what the engine is held against.

It shares nothing with the engine but the batches' keys, the cohorts and the settings.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tests.training.federations import batches, gradient, named_weight
from training import catalog
from training.rounds import Federation

PERTURBED = {"fedsam": "sam", "mofedsam": "sam", "fedasam": "asam"}


def global_models(fed: Federation) -> Iterator[Tensor]:
    """The global model after each round."""
    name, _, other = fed.method.name.partition("+")
    perturbation = other or PERTURBED.get(name, "none")
    p = catalog.values(fed.method)
    lr, r, wd = fed.recipe.local.lr, fed.recipe.local.momentum, fed.recipe.local.weight_decay
    w, N, t = fed.begin().w, len(fed.parts), 0
    zero = torch.zeros_like(w)
    c, c_k, l_k, G, m, v = zero, [zero] * N, [zero] * N, zero, zero, zero + p.get("tau", 0.0) ** 2
    while True:
        D, a = {}, {}
        for k in fed.cohort(t):
            x, velocity, pull, a[k] = w, zero, 0.0, 0.0
            for X, y in batches(fed, k, t):
                g = gradient(x, X, y)
                if perturbation == "sam":
                    g = gradient(x + p["rho"] * g / g.norm(), X, y)
                elif perturbation == "asam":
                    T = torch.where(named_weight(len(x)), x.abs() + p["eta"], 1.0)
                    g = gradient(x + p["rho"] * T**2 * g / (T * g).norm(), X, y)
                if name == "fedprox":
                    u = g + p["mu"] * (x - w)
                elif name == "scaffold":
                    u = g - c_k[k] + c
                elif name == "feddyn":
                    u = g - l_k[k] + p["alpha"] * (x - w)
                elif name in ("fedcm", "mofedsam"):
                    u = p["a"] * g + (1 - p["a"]) * G
                else:
                    u = g
                velocity = r * velocity + u + wd * x
                x = x - lr * velocity
                pull = r * pull + 1  # were every u the same, so many of them would lie in this velocity
                a[k] += pull
            D[k] = x - w
        share = {k: len(fed.parts[k]) / sum(len(fed.parts[j]) for j in D) for k in D}
        mean = sum(share[k] * D[k] for k in D)
        G = -sum(share[k] * D[k] / (lr * a[k]) for k in D)
        if name in ("fedavg", "fedprox", "fedcm", "fedsam", "fedasam", "mofedsam"):
            w = w + p["eta_g"] * mean
        elif name == "fedavgm":
            m = p["beta"] * m + mean
            w = w + p["eta_g"] * m
        elif name == "fedadam":
            m, v = p["b1"] * m + (1 - p["b1"]) * mean, p["b2"] * v + (1 - p["b2"]) * mean**2
            w = w + p["eta_g"] * m / (v.sqrt() + p["tau"])
        elif name == "fedadagrad":
            v = v + mean**2
            w = w + p["eta_g"] * mean / (v.sqrt() + p["tau"])
        elif name == "fednova":
            w = w + sum(share[k] * a[k] for k in D) * sum(share[k] * D[k] / a[k] for k in D)
        elif name == "scaffold":
            new = {k: c_k[k] - c - D[k] / (lr * a[k]) for k in D}
            c = c + sum(new[k] - c_k[k] for k in D) / N
            c_k = [new.get(k, c_k[k]) for k in range(N)]
            w = w + p["eta_g"] * mean
        elif name == "feddyn":
            l_k = [l_k[k] - p["alpha"] * D[k] if k in D else l_k[k] for k in range(N)]
            w = w + mean - sum(l_k) / N / p["alpha"]
        else:
            raise NotImplementedError(f"write the formulas of {name} here: without them it is not tested")
        t += 1
        yield w
