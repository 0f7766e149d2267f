"""Work that is not timed: making the problem, finding the truth, and checking answers against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from tests.benchmarks import problem, reference


def create(folder: Path, *, count: int, network: str = "LeNet64") -> dict[str, Any]:
    """Train the network and save it with its images; says what it became."""
    problem.create(folder, count, network)
    made = problem.load(folder)
    wrong = (made.model(made.inputs).argmax(1) != made.targets).float().mean()
    truth = reference.Reference(made)
    return {"loss": truth.loss(), "error": float(wrong), "parameters": truth.size}


def spectrum(folder: Path, *, count: int, wanted: Sequence[int], residual: float) -> dict[str, Any]:
    """The largest eigenvalues in float64."""
    truth = reference.Reference(problem.load(folder).first(count))
    found = reference.lanczos(truth, 20 * max(wanted) + 100, wanted, residual)
    return asdict(found)


def check_pairs(
    folder: Path, *, count: int, values: Sequence[float], truth: Sequence[float], residual: float
) -> dict[str, Any]:
    """True residuals of the vectors a contender left, and errors of its values."""
    operator = reference.Reference(problem.load(folder).first(count))
    vectors = load_file(folder / "answer.safetensors")["vectors"]
    return asdict(reference.verify(operator, values, vectors, truth, residual))


def losses(folder: Path, *, count: int) -> dict[str, Any]:
    """Losses in float64 at the points a contender left, and at the model itself."""
    truth = reference.Reference(problem.load(folder).first(count))
    centre = truth.loss()
    tensors = load_file(folder / "answer.safetensors")
    points = list(tensors["points"]) if "points" in tensors else []
    return {"centre": centre, "points": [truth.loss(point) for point in points]}
