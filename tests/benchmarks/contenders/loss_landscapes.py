"""loss-landscapes 3.0.6: a plane of random directions around a model."""

from __future__ import annotations

import loss_landscapes  # type: ignore[import-not-found]
import numpy as np
import torch
from loss_landscapes.metrics import Loss  # type: ignore[import-not-found]
from torch import nn

from tests.benchmarks.problem import FORMATS, Problem
from tests.benchmarks.worker import Answer, Work


def surface(problem: Problem, *, steps: int, layout: str) -> Work:
    """All images in one tensor, the only form its metric takes; `layout` is the memory format they come in."""
    inputs = problem.inputs.contiguous(memory_format=FORMATS[layout])

    def work() -> Answer:
        np.random.seed(0)
        torch.manual_seed(0)
        metric = Loss(nn.CrossEntropyLoss(), inputs, problem.targets)
        found = loss_landscapes.random_plane(
            problem.model, metric, distance=1, steps=steps, normalization="filter", deepcopy_model=True
        )
        # its grid is displaced (every second column by a step), so only the centre can be compared
        return Answer({"centre": float(found[steps // 2, steps // 2]), "points": []}, {})

    return work
