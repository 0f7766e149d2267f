"""Coverage of standard errors: how often the truth lies within two of them, over many seeds.

For a Gaussian estimate with a well-known error it is .954; with an error from n independent values it is that of
Student's t, .952 for n = 100, .946 for 30 and .923 for 10: coverage is promised for 30 values or more.
Over 300 seeds the number itself has a standard deviation of .012, over 2,000 of .005. What is averaged must not be too
skewed for its number: the error of a mean of 300 squared Gaussians holds .94.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape import Objective

POPULATION = 2000
Setting = Callable[[], Objective]


def coverage(found: Iterable[tuple[float, float | None]], truth: float) -> float:
    """The share of (value, standard error) pairs whose value lies within two errors of the truth."""
    inside = [error is not None and abs(value - truth) <= 2 * error for value, error in found]
    return float(np.mean(inside))


def subset_coverage(objective: Objective, size: int, seeds: Iterable[int]) -> dict[str, float]:
    """Coverage of a subset's loss, and of its error where there is one, against all the data."""
    theta = objective.theta
    whole = objective.evaluate(theta)
    found = [objective.subset(size, seed=seed).evaluate(theta) for seed in seeds]
    shares = {"loss": coverage([(one.loss, one.standard_error) for one in found], whole.loss)}
    if whole.error is not None:
        shares["error"] = coverage([(one.error or 0.0, one.error_standard_error) for one in found], whole.error)
    return shares


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labels(classes: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.randint(0, classes, shape, generator=torch.Generator().manual_seed(seed))


class Scores(nn.Module):
    """The data are the outputs, times one weight: a setting then costs nothing but its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


def _objective(x: Tensor, y: Tensor, loss: Callable[..., Tensor], **more: object) -> Objective:
    return Objective(Scores(), (x, y), loss, chunk_size=POPULATION, workers=1, **more)  # type: ignore[arg-type]


def one_value() -> Objective:
    return _objective(numbers(POPULATION, 5), labels(5, POPULATION), functional.cross_entropy)


def regression() -> Objective:
    x = numbers(POPULATION, 1)
    noise = torch.rand(POPULATION, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return _objective(x, 0.5 * x + 4 * noise, nn.MSELoss())


def correlated_outputs() -> Objective:
    """Twenty outputs whose residuals are nearly one number."""
    x = numbers(POPULATION, 1) + 0.2 * numbers(POPULATION, 20, seed=2)
    return _objective(x, torch.zeros_like(x), nn.MSELoss())


def outputs_in_sum() -> Objective:
    x = numbers(POPULATION, 1) + 0.2 * numbers(POPULATION, 20, seed=2)
    return _objective(x, torch.zeros_like(x), nn.MSELoss(reduction="sum"))


def tokens() -> Objective:
    """Twelve tokens an example, some examples hard throughout."""
    hard = (0.5 * numbers(POPULATION, 1, 1)).exp()
    return _objective(hard * numbers(POPULATION, 6, 12, seed=2), labels(6, POPULATION, 12), functional.cross_entropy)


def ignored_tokens() -> Objective:
    """Sequences of 2 to 12 tokens; the longer, the harder."""
    length = labels(11, POPULATION, 1, seed=5) + 2
    y = torch.where(torch.arange(12) < length, labels(6, POPULATION, 12), -100)
    x = (length[:, None] / 6) * numbers(POPULATION, 6, 12, seed=2)
    return _objective(x, y, functional.cross_entropy)


def ignored_labels() -> Objective:
    y = labels(5, POPULATION)
    y[numbers(POPULATION, seed=6) > 0.5] = -100
    return _objective(numbers(POPULATION, 5), y, functional.cross_entropy)


def _weighted(weight: float) -> Objective:
    """Pixels of a weighted class, whose share differs between images: labels do not stratify those."""
    share = torch.rand(POPULATION, 1, generator=torch.Generator().manual_seed(3))
    y = (torch.rand(POPULATION, 8, generator=torch.Generator().manual_seed(4)) < share).long()
    x = numbers(POPULATION, 2, 8, seed=2) + share.double()[:, None] * torch.tensor([1.0, -1.0]).double()[:, None]
    return _objective(x, y, nn.CrossEntropyLoss(weight=torch.tensor([1.0, weight], dtype=torch.float64)))


def weighted_classes(weight: float) -> Objective:
    y = (numbers(POPULATION, seed=3) > 0.3).long()
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, weight], dtype=torch.float64))
    return _objective(numbers(POPULATION, 2, seed=2) * (1 + 2 * y[:, None]), y, loss)


def weights_and_ignored() -> Objective:
    y = torch.where(numbers(POPULATION, 12, seed=5) > 1, -100, labels(3, POPULATION, 12))
    loss = partial(functional.cross_entropy, weight=torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64))
    return _objective(numbers(POPULATION, 3, 12, seed=2) * (0.5 * numbers(POPULATION, 1, 1)).exp(), y, loss)


def class_dependent() -> Objective:
    """Ten classes of unequal size whose losses hardly overlap: without the strata errors are far too large."""
    y = labels(10, POPULATION) * labels(10, POPULATION, seed=9) // 9
    x = functional.one_hot(y, 10) * (4.0 - y[:, None]) + 0.6 * numbers(POPULATION, 10)
    return _objective(x, y, functional.cross_entropy)


def many_classes() -> Objective:
    """A hundred classes, most of them too rare for a stratum of their own."""
    y = (labels(10, POPULATION) * labels(11, POPULATION, seed=9)).clamp(max=99)
    x = numbers(POPULATION, 100) * (1 + y[:, None] / 50) + 3 * functional.one_hot(y, 100)
    return _objective(x, y, functional.cross_entropy)


def pixels() -> Objective:
    hard = (0.5 * numbers(POPULATION, 1, 1, 1)).exp()
    return _objective(
        hard * numbers(POPULATION, 3, 4, 5, seed=2), labels(3, POPULATION, 4, 5), functional.cross_entropy
    )


def logits() -> Objective:
    y = (numbers(POPULATION, seed=3) > 0.5).double()
    return _objective(numbers(POPULATION, seed=2) + y, y, nn.BCEWithLogitsLoss())


def divergence() -> Objective:
    x, y = (torch.softmax(numbers(POPULATION, 7, seed=seed), 1) for seed in (2, 3))
    return _objective(x.log(), y, nn.KLDivLoss(reduction="batchmean"))


def general() -> Objective:
    """A batch_loss that gives sums, counts and errors of every example."""
    y = torch.where(numbers(POPULATION, 12, seed=5) > 0.5, -100, labels(3, POPULATION, 12))

    def batch_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        scores, targets = model(batch["x"]), batch["y"]
        losses = functional.cross_entropy(scores, targets, reduction="none")
        wrong = (scores.argmax(1) != targets) & (targets != -100)
        return losses.sum(1), (targets != -100).sum(1), wrong.sum(1)

    x = numbers(POPULATION, 3, 12, seed=2) * (0.5 * numbers(POPULATION, 1, 1)).exp()
    return Objective(Scores(), {"x": x, "y": y}, batch_loss=batch_loss, chunk_size=POPULATION, workers=1)


SETTINGS: dict[str, Setting] = {
    function.__name__: function
    for function in (
        one_value,
        regression,
        correlated_outputs,
        outputs_in_sum,
        tokens,
        ignored_tokens,
        ignored_labels,
        weights_and_ignored,
        class_dependent,
        many_classes,
        pixels,
        logits,
        divergence,
        general,
    )
}
SETTINGS |= {f"class weight {weight}": partial(weighted_classes, weight) for weight in (0.1, 10.0)}
SETTINGS |= {f"pixel weight {weight}": partial(_weighted, weight) for weight in (0.1, 10.0)}
