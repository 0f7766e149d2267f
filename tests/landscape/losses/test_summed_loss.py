"""What the user's loss means is kept: every torch loss and reduction against torch on all the data at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape import Objective

COUNT, OUTPUTS = 23, 4
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(COUNT, 3, generator=GENERATOR, dtype=torch.float64)
REAL = torch.randn(COUNT, OUTPUTS, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.randint(0, OUTPUTS, (COUNT,), generator=GENERATOR)
SOME = LABELS.clone()
SOME[[1, 4, 5, 20]] = -100
SIGNS = torch.where(REAL > 0, 1.0, -1.0).double()
BITS = (REAL > 0).double()
SHARES = torch.softmax(REAL, 1)
COUNTS = (5 * SHARES).round()
WEIGHT = torch.tensor([1.0, 2.0, 0.1, 5.0], dtype=torch.float64)
MANY = torch.stack([LABELS, (LABELS + 1) % OUTPUTS, torch.full_like(LABELS, -1), torch.full_like(LABELS, -1)], dim=1)


def network(*last: nn.Module) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(3, OUTPUTS), *last).double()


# name: (last layers, targets, loss for a reduction, reductions beyond mean, sum and none)
MODULES: dict[str, tuple[tuple[nn.Module, ...], Tensor, Callable[..., Any]]] = {
    "l1": ((), REAL, nn.L1Loss),
    "mse": ((), REAL, nn.MSELoss),
    "smooth l1": ((), REAL, nn.SmoothL1Loss),
    "huber": ((), REAL, nn.HuberLoss),
    "poisson": ((), COUNTS, nn.PoissonNLLLoss),
    "kl": ((nn.LogSoftmax(1),), SHARES, nn.KLDivLoss),
    "kl of logs": ((nn.LogSoftmax(1),), SHARES.log(), partial(nn.KLDivLoss, log_target=True)),
    "bce": ((nn.Sigmoid(),), BITS, nn.BCELoss),
    "bce with logits": ((), BITS, partial(nn.BCEWithLogitsLoss, pos_weight=WEIGHT)),
    "soft margin": ((), SIGNS, nn.SoftMarginLoss),
    "hinge embedding": ((), SIGNS, nn.HingeEmbeddingLoss),
    "multi-label margin": ((), MANY, nn.MultiLabelMarginLoss),
    "multi-label soft margin": ((), BITS, partial(nn.MultiLabelSoftMarginLoss, weight=WEIGHT)),
    "multi margin": ((), LABELS, partial(nn.MultiMarginLoss, weight=WEIGHT)),
    "nll": ((nn.LogSoftmax(1),), LABELS, nn.NLLLoss),
    "weighted nll": ((nn.LogSoftmax(1),), SOME, partial(nn.NLLLoss, weight=WEIGHT)),
    "cross-entropy": ((), LABELS, nn.CrossEntropyLoss),
    "ignoring cross-entropy": ((), SOME, nn.CrossEntropyLoss),
    "ignoring another": ((), LABELS, partial(nn.CrossEntropyLoss, ignore_index=2)),
    "weighted cross-entropy": ((), SOME, partial(nn.CrossEntropyLoss, weight=WEIGHT)),
    "smoothed cross-entropy": ((), SOME, partial(nn.CrossEntropyLoss, weight=WEIGHT, label_smoothing=0.2)),
    "cross-entropy of shares": ((), SHARES, partial(nn.CrossEntropyLoss, weight=WEIGHT)),
}
CASES = [(name, reduction) for name in MODULES for reduction in ("mean", "sum", "none")]
CASES += [("kl", "batchmean"), ("kl of logs", "batchmean")]


@pytest.mark.parametrize(("name", "reduction"), CASES)
@pytest.mark.parametrize("chunk_size", [1, 8])
def test_every_torch_loss_with_every_reduction(name: str, reduction: str, chunk_size: int) -> None:
    last, targets, make = MODULES[name]
    model, loss = network(*last), make(reduction=reduction)
    objective = Objective(model, (INPUTS, targets), loss, chunk_size=chunk_size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of KLDivLoss("mean")
        value = loss(model(INPUTS), targets)
    value = value / COUNT if reduction == "sum" else value.mean()
    gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(value, list(model.parameters()))])
    assert objective.loss(objective.theta) == pytest.approx(float(value.detach()), rel=1e-12)
    torch.testing.assert_close(objective.gradient(objective.theta), gradient, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean", "none"])
def test_functions_and_partials_keep_their_reduction(reduction: str) -> None:
    model = network(nn.LogSoftmax(1))
    objective = Objective(model, (INPUTS, SHARES), partial(functional.kl_div, reduction=reduction), chunk_size=5)
    whole = functional.kl_div(model(INPUTS), SHARES, reduction="sum").item()
    divisor = COUNT if reduction in ("sum", "batchmean") else COUNT * OUTPUTS
    assert objective.loss(objective.theta) == pytest.approx(whole / divisor, rel=1e-12)


def triplet(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """A loss of two inputs, each a part of the outputs."""
    return functional.cosine_embedding_loss(outputs[:, :2], outputs[:, 2:], targets, reduction=reduction)


def gaussian(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    return functional.gaussian_nll_loss(outputs[:, :2], targets, outputs[:, 2:].exp(), reduction=reduction)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("loss", "targets"), [(triplet, SIGNS[:, 0]), (gaussian, REAL[:, :2])])
def test_losses_of_one_s_own_with_a_reduction(loss: Callable[..., Tensor], targets: Tensor, reduction: str) -> None:
    model = network()
    objective = Objective(model, (INPUTS, targets), partial(loss, reduction=reduction), chunk_size=4)
    value = loss(model(INPUTS), targets, reduction=reduction)
    value = value / COUNT if reduction == "sum" else value.mean()
    assert objective.loss(objective.theta) == pytest.approx(float(value.detach()), rel=1e-12)


def test_weights_of_a_loss_go_where_the_model_is_measured() -> None:
    model = network().float()
    loss = nn.CrossEntropyLoss(weight=WEIGHT.float())
    double = Objective(model, (INPUTS, SOME), loss, dtype=torch.float64)
    part = partial(functional.cross_entropy, weight=WEIGHT.float())
    assert double.loss(double.theta) == Objective(model, (INPUTS, SOME), part, dtype=torch.float64).loss(double.theta)
    assert loss.weight is not None
    assert loss.weight.dtype == torch.float32


class Odd(nn.Module):
    """Says it has a reduction, but does not look at it."""

    reduction = "sum"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.mse_loss(outputs, targets)


@pytest.mark.parametrize(
    ("targets", "loss", "message"),
    [
        (REAL[:, 0], lambda o, t: functional.mse_loss(o[:, 0], t, reduction="sum"), "not the mean of its parts"),
        (SOME, lambda o, t: functional.cross_entropy(o, t), "not the mean of its parts"),
        (LABELS, lambda o, t: functional.cross_entropy(o, t, weight=WEIGHT), "not the mean of its parts"),
        (REAL[:, 0], lambda o, t: (o[:, :1] - t).square().mean(), "not the mean of its parts"),
        (
            REAL,
            lambda o, t: (o - t).square().mean().reshape(1),
            r"of shape \(23, ...\) for 23 examples, got shape \(1,\)",
        ),
        (REAL, lambda o, t: (o - t).square().flatten(), r"got shape \(92,\): .* end it with .reshape\(23, -1\)"),
        (REAL, lambda o, t: [o, t], "must return a tensor, got list"),
        (REAL, Odd(), "with reduction='none' adds up to"),
        (REAL, partial(functional.mse_loss, size_average=False), "write reduction='mean' or 'sum'"),
        (REAL, partial(functional.mse_loss, reduction="average"), "reduction='average', whose meaning is not known"),
        (REAL[:, 0], functional.mse_loss, r"shapes \(23, 4\) and \(23,\): give targets of the outputs' shape"),
    ],
)
def test_what_cannot_be_known_is_refused(targets: Tensor, loss: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Objective(network(), (INPUTS, targets), loss)


def overlap(outputs: Tensor, targets: Tensor) -> Tensor:
    shares = outputs.softmax(1)
    return 1 - 2 * (shares * targets).sum() / (shares.sum() + targets.sum())


@pytest.mark.parametrize("loss", [lambda o, t: (o - t).square().mean().sqrt(), overlap], ids=["root", "dice"])
def test_a_function_of_means_is_refused_though_halves_of_the_data_agree(loss: Any) -> None:
    model, halves = network(), slice(0, 11)
    inputs, targets = (torch.cat([values[halves], values[halves]]) for values in (INPUTS, BITS))
    outputs = model(inputs)
    first, second = (loss(outputs[part], targets[part]) for part in (slice(0, 11), slice(11, 22)))
    torch.testing.assert_close(loss(outputs, targets), (first + second) / 2)
    with pytest.raises(ValueError, match="not the mean of its parts"):
        Objective(model, (inputs, targets), loss)


@pytest.mark.parametrize("scale", [1e-5, 0.0])
def test_a_sum_is_refused_though_the_model_fits_its_data(scale: float) -> None:
    model = network()
    targets = model(INPUTS).detach() + scale * REAL
    with pytest.raises(ValueError, match="not the mean of its parts"):
        Objective(model, (INPUTS, targets), lambda o, t: functional.mse_loss(o, t, reduction="sum"))
    objective = Objective(model, (INPUTS, targets), lambda o, t: functional.mse_loss(o, t))
    assert objective.loss(objective.theta) == pytest.approx(scale**2 * float(REAL.square().mean()))


@pytest.mark.parametrize(
    ("last", "loss"),
    [
        (nn.Sigmoid(), lambda o, t: functional.binary_cross_entropy(o, t)),
        (nn.LogSoftmax(1), lambda o, t: functional.nll_loss(o, t.argmax(1))),
        (nn.Identity(), lambda o, t: functional.cross_entropy(o, t.argmax(1), reduction="none")),
    ],
)
def test_a_fitted_model_is_measured_with_losses_of_limited_range(last: nn.Module, loss: Any) -> None:
    inputs = torch.eye(OUTPUTS, dtype=torch.float64).repeat(5, 1)
    first = nn.Linear(OUTPUTS, OUTPUTS).double()
    with torch.no_grad():
        first.weight.copy_(30 * torch.eye(OUTPUTS) - 15)
        first.bias.zero_()
    objective = Objective(nn.Sequential(first, last), (inputs, inputs), loss)
    assert 0 < objective.loss(objective.theta) < 1e-6


@pytest.mark.parametrize("loss", [functional.mse_loss, nn.L1Loss(), nn.HuberLoss(), lambda o, t: (o - t) ** 2])
def test_columns_are_not_compared_with_rows(loss: Any) -> None:
    model = nn.Linear(3, 1).double()
    with pytest.raises(ValueError, match=r"reshape the targets to \(23, 1\)"):
        Objective(model, (INPUTS, REAL[:, 0]), loss)
    assert Objective(model, (INPUTS, REAL[:, :1]), loss).loss(torch.ones(4).double()) > 0


def test_a_model_that_mixes_examples_is_refused() -> None:
    class Centred(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(dim=0)

    model = network(Centred())
    with pytest.raises(ValueError, match="other outputs when the rest of its batch changes"):
        Objective(model, (INPUTS, LABELS))
    assert Objective(model, (INPUTS, LABELS), batchnorm="batch", chunk_size=COUNT).loss(torch.zeros(16).double())


BINARY = LABELS % 2


@pytest.mark.parametrize(
    ("shape", "loss"),
    [
        ((COUNT, 1), functional.binary_cross_entropy_with_logits),
        ((COUNT,), nn.BCEWithLogitsLoss()),
        ((COUNT,), lambda o, t: functional.binary_cross_entropy_with_logits(o, t)),
        ((COUNT,), lambda o, t: functional.soft_margin_loss(o, 2.0 * t - 1, reduction="none")),
    ],
)
def test_one_logit_is_held_against_zero(shape: tuple[int, ...], loss: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0) if len(shape) == 1 else nn.Identity()).double()
    objective = Objective(model, (INPUTS, BINARY.double().reshape(shape)), loss, chunk_size=7)
    wrong = ((model(INPUTS).reshape(-1) > 0).long() != BINARY).double().mean()
    assert objective.error(objective.theta) == pytest.approx(float(wrong), abs=1e-15)
    assert 0 < float(wrong) < 1


def test_integer_labels_and_probabilities_of_one_output() -> None:
    torch.manual_seed(3)
    linear = nn.Linear(3, 1).double()
    wrong = float(((linear(INPUTS)[:, 0] > 0).long() != BINARY).double().mean())
    share = float(BINARY.double().mean())
    assert wrong != share

    def logits(o: Tensor, t: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(o.squeeze(1), t.double())

    def shares(o: Tensor, t: Tensor) -> Tensor:
        return functional.binary_cross_entropy(o.squeeze(1), t.double(), reduction="none")

    for model, loss in ((linear, logits), (nn.Sequential(linear, nn.Sigmoid()), shares)):
        objective = Objective(model, (INPUTS, BINARY), loss)
        assert objective.error(objective.theta) == pytest.approx(wrong, abs=1e-15)
    regression = Objective(linear, (INPUTS, BINARY.double()[:, None]), nn.MSELoss())
    assert regression.evaluate(regression.theta).error is None


@pytest.mark.parametrize("length", [5, 6])  # the number of classes is 6
def test_the_class_axis_of_sequences_is_known_or_not_used(length: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6)).double()  # outputs (B, T, classes)
    tokens, targets = torch.randint(0, 6, (10, length)), torch.randint(0, 6, (10, length))
    targets[2, :3] = -100
    outputs = model(tokens)
    expected = functional.cross_entropy(outputs.transpose(1, 2), targets).item()
    wrong = float((outputs.argmax(-1) != targets)[targets != -100].double().mean())
    turned = Objective(model, (tokens, targets), outputs=lambda o: o.transpose(1, 2), chunk_size=3)
    assert turned.loss(turned.theta) == pytest.approx(expected, abs=1e-13)
    assert turned.error(turned.theta) == pytest.approx(wrong, abs=1e-15)

    def own(o: Tensor, t: Tensor) -> Tensor:
        return functional.cross_entropy(o.transpose(1, 2), t, reduction="none")

    mine = Objective(model, (tokens, targets), own)
    assert mine.evaluate(mine.theta).error is None
    with pytest.raises(ValueError, match=r"do not say which axis holds the classes.*batch_loss"):
        mine.error(mine.theta)
    if length != 6:
        with pytest.raises(ValueError, match=r"classes on axis 1: write outputs=lambda o: o.transpose\(1, -1\)"):
            Objective(model, (tokens, targets))


def test_labels_that_no_output_can_be_do_not_count_as_errors() -> None:
    def own(o: Tensor, t: Tensor) -> Tensor:
        return functional.cross_entropy(o, t, reduction="none")

    objective = Objective(network(), (INPUTS, SOME), own)
    assert objective.evaluate(objective.theta).error is None
    assert objective.on(INPUTS, LABELS).evaluate(objective.theta).error is not None
