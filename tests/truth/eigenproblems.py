"""Random eigenproblems of every kind, each a function of its number, and what a result may not say of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from landscape import Objective, eigenpairs
from landscape.operators import MatrixOperator, Operator
from landscape.results import Eigenpairs, Outcome
from landscape.rng import numpy_generator, torch_generator

Array = NDArray[np.float64]
Generator = np.random.Generator
NETWORKS = 6  # one problem of so many is the Hessian of a network


@dataclass(frozen=True)
class Problem:
    """An operator, the same matrix in float64 divided by `unit` so that float64 computes safely, and the options."""

    name: str
    operator: Operator
    matrix: Array
    unit: float
    options: dict[str, Any]


def decaying(random: Generator, size: int) -> Array:
    return np.arange(1, size + 1) ** -random.uniform(0.3, 3.0)


def clustered(random: Generator, size: int) -> Array:
    centres = random.normal(size=random.integers(1, 6))
    return random.choice(centres, size) + 10.0 ** random.uniform(-14, -2) * random.normal(size=size)


def repeated(random: Generator, size: int) -> Array:
    return random.choice(random.normal(size=random.integers(1, 8)).round(2), size)


def indefinite(random: Generator, size: int) -> Array:
    return random.normal(size=size) * 10.0 ** random.uniform(-3, 0, size)


def low_rank(random: Generator, size: int) -> Array:
    values = np.zeros(size)
    rank = random.integers(0, max(size // 3, 1) + 1)
    values[:rank] = random.normal(size=rank)
    return values


def flat(random: Generator, size: int) -> Array:
    """Weight decay: a few outliers, and a large cluster with or without a little around it."""
    decay = 10.0 ** random.uniform(-5, 0)
    values = np.full(size, decay)
    outliers = random.integers(0, min(size, 7))
    values[:outliers] += random.uniform(0.1, 3.0, outliers)
    around = random.integers(0, size - outliers + 1)
    values[size - around :] += 10.0 ** random.uniform(-9, -2) * random.normal(size=around)
    return values


def bulk(random: Generator, size: int) -> Array:
    """Outliers, some of them equal, and a dense bulk."""
    values = np.sort(random.uniform(-0.3, 1.0, size))[::-1].copy()
    outliers = random.integers(1, min(size, 6) + 1)
    values[:outliers] = random.choice([1.01, 1.1, 2.0, 5.0, 5.0, 30.0], outliers)
    return values


def mirrored(random: Generator, size: int) -> Array:
    half = random.uniform(0, 1, size // 2 + 1)
    return np.concatenate([half, -half])[:size]


KINDS: tuple[Callable[[Generator, int], Array], ...] = (
    decaying,
    clustered,
    repeated,
    indefinite,
    low_rank,
    flat,
    bulk,
    mirrored,
)


def problem(number: int) -> Problem:
    """The problem of this number: always the same one."""
    random = numpy_generator(number, "eigenproblem")
    dtype = torch.float32 if random.random() < 0.5 else torch.float64
    network = number % NETWORKS == 0
    name, operator, matrix, unit = (_network if network else _matrix)(random, dtype, number)
    size = len(matrix)
    k = int(random.integers(1, min(10, size) + 1))
    block = int(random.integers(1, min(4, size) + 1)) if random.random() < 0.3 else 1
    fine = dtype == torch.float64
    options: dict[str, Any] = {
        "k": k,
        "which": str(random.choice(["largest", "largest", "smallest", "both", "magnitude"])),
        "block": block,
        "tol": float(10.0 ** random.uniform(-8 if fine else -4, -2)) if random.random() < 0.5 else 1e-3,
        "seed": number,
        "verify": [None, None, None, True, False][random.integers(5)],
    }
    if random.random() < 0.3:
        options["max_basis"] = int(2 * k + 2 * block + 2 + random.integers(0, 12))
    if random.random() < 0.2:
        options["max_products"] = int(random.integers(k, 200))
    if random.random() < 0.35:
        options["start"] = _start(random, matrix, k).to(dtype)
    return Problem(f"{number}: {name}, {size}, {dtype}, {options}", operator, matrix, unit, options)


def _matrix(random: Generator, dtype: torch.dtype, number: int) -> tuple[str, Operator, Array, float]:
    kind = KINDS[random.integers(len(KINDS))]
    size = int(random.choice([random.integers(1, 12), random.integers(12, 60), random.integers(60, 300)]))
    values = kind(random, size)
    Q = np.linalg.qr(random.normal(size=(size, size)))[0] if random.random() < 0.8 else np.eye(size)
    A = (Q * values) @ Q.T
    most = 36 if dtype == torch.float32 else 300
    unit = float(10.0 ** random.integers(-most, most)) if random.random() < 0.4 else 1.0
    stored = torch.from_numpy((A + A.T) / 2 * unit).to(dtype)
    return kind.__name__, MatrixOperator(stored), (stored.double() / unit).numpy(), unit


def _network(random: Generator, dtype: torch.dtype, number: int) -> tuple[str, Operator, Array, float]:
    """A small network, untrained or fitting its data with a margin, with dead units and weight decay or without."""
    features, hidden, classes = (int(random.integers(2, most)) for most in (6, 8, 5))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number)
        activation = nn.ReLU() if random.random() < 0.5 else nn.Tanh()
        model = nn.Sequential(nn.Linear(features, hidden), activation, nn.Linear(hidden, classes))
    x = torch.randn(30, features, generator=torch_generator(number, "inputs"))
    with torch.no_grad():
        if random.random() < 0.5:
            model[2].weight *= 10.0 ** random.uniform(0, 2)  # fits what it predicts itself
        y = model(x).argmax(dim=1)
        if random.random() < 0.5:
            y = torch.from_numpy(random.integers(0, classes, 30))
    decay = float(10.0 ** random.uniform(-5, 0)) if random.random() < 0.5 else 0.0
    objective = Objective(model, (x, y), dtype=dtype, weight_decay=decay)
    exact = Objective(model, (x, y), dtype=torch.float64, weight_decay=decay)
    dense = exact.hessian(exact.theta).dense().numpy()
    unit = float(np.abs(dense).max()) or 1.0
    return "network", objective.hessian(objective.theta), (dense + dense.T) / 2 / unit, unit


def _start(random: Generator, matrix: Array, k: int) -> Tensor:
    """Exact eigenvectors (wanted or not), some that are nearly so, or anything."""
    vectors = np.linalg.eigh(matrix)[1].T
    count = int(random.integers(1, k + 1))
    rows = vectors[random.choice(len(vectors), count, replace=False)]
    if random.random() < 0.5:
        rows = rows + 10.0 ** random.uniform(-6, 0) * random.normal(size=rows.shape) / len(matrix) ** 0.5
    return torch.from_numpy(rows * 10.0 ** random.uniform(-3, 3))


def solve(one: Problem) -> Eigenpairs:
    return eigenpairs(one.operator, **one.options)


def violations(one: Problem, result: Eigenpairs) -> list[str]:
    """What the result states and is not so."""
    k, tol = one.options["k"], one.options["tol"]
    if result.values.shape != (k,) or result.vectors.shape != (k, len(one.matrix)):
        return ["number of values"]
    values, stated = result.values / one.unit, result.residuals / one.unit
    V = result.vectors.double().numpy()
    size = float(np.abs(np.linalg.eigvalsh(one.matrix)).max())
    rounding = 4 * float(np.finfo(np.float64).eps) * size
    true = np.linalg.norm(V @ one.matrix - values[:, None] * V, axis=1)
    allowed = tol * np.abs(values)
    checks = {
        "order": bool((np.diff(values) <= 0).all()),
        "orthonormal vectors": bool(np.abs(V @ V.T - np.eye(k)).max() < 1e-4),
        "stated residual": bool((true <= 1.001 * stated + rounding).all()),
        "converged flag": bool((stated <= allowed)[result.converged].all()) or result.outcome is Outcome.EXACT,
        "converged outcome": result.outcome is not Outcome.CONVERGED or bool(result.converged.all()),
        "exact outcome": result.outcome is not Outcome.EXACT or bool((result.converged & result.verified).all()),
        "index": not result.verified or _in_place(one, values, stated, size),
        "budget": result.products <= one.options.get("max_products", 100 + 20 * k) + 8,
    }
    return [name for name, held in checks.items() if not held]


def wanted(one: Problem) -> Array:
    """The true eigenvalues in the places of the returned ones."""
    truth, k = np.linalg.eigvalsh(one.matrix)[::-1], one.options["k"]
    top = (k + 1) // 2
    return {
        "largest": truth[:k],
        "smallest": truth[len(truth) - k :],
        "both": np.r_[truth[:top], truth[len(truth) - k + top :]],
        "magnitude": np.sort(truth[np.argsort(-np.abs(truth), kind="stable")[:k]])[::-1],
    }[one.options["which"]]


def _in_place(one: Problem, values: Array, stated: Array, size: float) -> bool:
    """Whether every value is the eigenvalue that its place says, to what `verified` promises."""
    truth, which, tol = wanted(one), one.options["which"], one.options["tol"]
    if which == "magnitude":  # of two with opposite signs and one magnitude either may be returned
        values, truth = (np.sort(np.abs(array))[::-1] for array in (values, truth))
    eps = float(torch.finfo(one.operator.dtype).eps)
    beyond = tol * np.abs(truth).max() if which == "both" else tol * np.abs(values[[0, -1]]).max()
    return bool((np.abs(values - truth) <= max(beyond, 80 * eps * size, 1e-10 * size) + np.linalg.norm(stated)).all())
