"""Any nesting of tensors as a batch, any answer of a model, losses that differentiate themselves; or one clear line."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.utils.data import TensorDataset

from landscape import Objective, eigenpairs, plane
from landscape.losses.nests import describe

COUNT, LENGTH, WORDS = 14, 5, 7
GENERATOR = torch.Generator().manual_seed(0)
IDS = torch.randint(0, WORDS, (COUNT, LENGTH), generator=GENERATOR)
MASK = torch.rand(COUNT, LENGTH, generator=GENERATOR) < 0.7
MASK[:, 0] = True
LABELS = torch.randint(0, 3, (COUNT,), generator=GENERATOR)
Pair = namedtuple("Pair", "ids mask")


class Reader(nn.Module):
    """Mean of the embeddings of unmasked words, and scores of three classes; `answer` shapes what it returns."""

    def __init__(self, answer: Callable[[Tensor], Any] = lambda scores: scores, sparse: bool = False):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(WORDS, 4, sparse=sparse)
        self.head = nn.Linear(4, 3)
        self.answer = answer
        self.double()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, scale: Tensor | float = 1.0) -> Any:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        weights = mask.double() / mask.double().sum(dim=1, keepdim=True)
        return self.answer(self.head((torch.tanh(self.embed(input_ids)) * scale * weights[..., None]).sum(dim=1)))


def scores(model: nn.Module) -> Tensor:
    return model(IDS, MASK)


def dense(model: nn.Module, objective: Objective) -> Callable[[Tensor], Tensor]:
    """The mean cross-entropy over all data as a function of the vector, by functional_call."""

    def value(theta: Tensor) -> Tensor:
        answer = functional_call(model, objective.layout.unflatten(theta), (IDS, MASK))
        return functional.cross_entropy(answer, LABELS)

    return value


DATA: dict[str, Any] = {
    "tuple of inputs": ((IDS, MASK), LABELS),
    "mapping of inputs": ({"attention_mask": MASK, "input_ids": IDS}, LABELS),
    "named tuple of inputs": (Pair(IDS, MASK), LABELS),
    "mapping with labels": {"input_ids": IDS, "attention_mask": MASK, "labels": LABELS},
    "list of mappings": [
        {"input_ids": IDS[:9], "attention_mask": MASK[:9], "labels": LABELS[:9]},
        {"input_ids": IDS[9:], "attention_mask": MASK[9:], "labels": LABELS[9:]},
    ],
    "pair with a number for all": ({"scale": torch.tensor(1.0), "input_ids": IDS, "attention_mask": MASK}, LABELS),
    "list of pairs of lists": [([IDS[:4], MASK[:4]], LABELS[:4]), ([IDS[4:], MASK[4:]], LABELS[4:])],
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("chunk_size", [None, 4])
def test_nested_batches_equal_one_pass_over_all_data(name: str, chunk_size: int | None) -> None:
    model = Reader()
    objective = Objective(model, DATA[name], chunk_size=chunk_size)
    theta, value = objective.theta, dense(model, objective)
    assert objective.count == COUNT
    if chunk_size:
        assert max(len(chunk["labels"] if isinstance(chunk, dict) else chunk[1]) for chunk in objective.chunks) == 4
    assert objective.loss(theta) == pytest.approx(value(theta).item(), abs=1e-13)
    assert objective.error(theta) == float((scores(model).argmax(1) != LABELS).double().mean())
    torch.testing.assert_close(objective.gradient(theta), torch.func.grad(value)(theta), rtol=0, atol=1e-13)
    H = torch.func.hessian(value)(theta)
    v = torch.linspace(-1, 1, objective.size, dtype=torch.float64)
    for engine in ("retained", "recompute", "forward"):
        torch.testing.assert_close(objective.hessian(theta, engine).matvec(v), H @ v, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", DATA)
def test_examples_of_nested_batches_stay_together(name: str) -> None:
    model = Reader()
    objective = Objective(model, DATA[name], chunk_size=4)
    each = functional.cross_entropy(scores(model), LABELS, reduction="none")
    theta = objective.theta
    parts = objective.split(5)
    assert [part.count for part in parts] == [5, 5, 4]
    assert [part.loss(theta) for part in parts] == pytest.approx([float(p.mean().detach()) for p in each.split(5)])
    chosen = torch.tensor([11, 0, 5])
    assert objective.take(chosen).loss(theta) == pytest.approx(float(each[chosen].mean().detach()), abs=1e-13)
    some = objective.subset(9, seed=1)
    assert some.count == 9
    assert some.population == COUNT
    assert some.drawn is not None
    assert some.loss(theta) == pytest.approx(float(each[some.drawn.index].mean().detach()), abs=1e-13)
    assert objective.on(DATA[name]).loss(theta) == pytest.approx(objective.loss(theta), abs=1e-13)


def test_on_takes_inputs_and_targets_of_any_nesting() -> None:
    model = Reader()
    objective = Objective(model, DATA["mapping of inputs"])
    other = objective.on({"input_ids": IDS[:3], "attention_mask": MASK[:3]}, LABELS[:3])
    expected = functional.cross_entropy(scores(model)[:3], LABELS[:3])
    assert other.loss(objective.theta) == pytest.approx(expected.item(), abs=1e-13)


def test_batches_of_unlike_lengths_are_chosen_from_too() -> None:
    model = Reader()
    short = [({"input_ids": IDS[:6, :3]}, LABELS[:6]), ({"input_ids": IDS[6:]}, LABELS[6:])]
    objective = Objective(model, short)
    each = torch.cat(
        [
            functional.cross_entropy(model(ids), y, reduction="none")
            for ids, y in ((IDS[:6, :3], LABELS[:6]), (IDS[6:], LABELS[6:]))
        ]
    )
    places = torch.tensor([2, 5, 6, 13])
    assert objective.take(places).loss(objective.theta) == pytest.approx(float(each[places].mean().detach()), abs=1e-13)
    assert [part.count for part in objective.split(4)] == [4, 4, 4, 2]


ANSWERS: dict[str, tuple[Callable[[Tensor], Any], Any]] = {
    "tuple": (lambda scores: (scores, scores * 0), 0),
    "mapping": (lambda scores: {"aux": scores * 0, "logits": scores}, "logits"),
    "attribute": (lambda scores: SimpleNamespace(logits=scores, loss=None), "logits"),
    "function": (lambda scores: [None, (scores,)], lambda answer: answer[1][0]),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_outputs_says_which_part_of_the_answer_is_meant(name: str) -> None:
    answer, choice = ANSWERS[name]
    plain, wrapped = Objective(Reader(), DATA["mapping with labels"]), Reader(answer)
    chosen = Objective(wrapped, DATA["mapping with labels"], outputs=choice, chunk_size=4)
    theta = chosen.theta
    assert chosen.loss(theta) == pytest.approx(plain.loss(theta), abs=1e-14)
    assert chosen.error(theta) == plain.error(theta)
    for matrix in ("hessian", "gauss_newton"):
        products = [getattr(one, matrix)(theta).matvec(theta) for one in (chosen, plain)]
        torch.testing.assert_close(*products, rtol=0, atol=1e-13)


def test_a_loss_may_take_the_whole_answer() -> None:
    def loss(answer: Any, targets: Tensor) -> Tensor:
        return functional.cross_entropy(answer[0], targets, reduction="none") + answer[1].square().sum(dim=1)

    model = Reader(lambda scores: (scores, 0.1 * scores))
    objective = Objective(model, DATA["tuple of inputs"], loss, chunk_size=4)
    assert objective.loss(objective.theta) == pytest.approx(
        float(loss(scores(model), LABELS).mean().detach()), abs=1e-13
    )
    assert objective.evaluate(objective.theta).error is None
    assert objective.subset(9).evaluate(objective.theta).standard_error is not None
    assert eigenpairs(objective.hessian(objective.theta), k=1).converged.all()
    with pytest.raises(ValueError, match=r"needs a tensor of outputs, .* tuple of 2.*outputs=0"):
        objective.gauss_newton(objective.theta)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            ANSWERS["tuple"][0],
            r"returns a tuple of 2: \(\(14, 3\), \(14, 3\)\), but this loss takes a tensor.*outputs=0",
        ),
        (ANSWERS["mapping"][0], r"returns a mapping with 'aux', 'logits'.*outputs='logits'"),
        (ANSWERS["attribute"][0], r"returns a SimpleNamespace with tensors logits.*outputs='logits'"),
    ],
)
def test_an_answer_that_is_no_tensor_is_explained(answer: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Objective(Reader(answer), DATA["mapping with labels"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outputs": "scores"}, r"outputs='scores': the model returns a tensor of shape \(14, 3\), which has none"),
        ({"outputs": 1.5}, "outputs must be a key or an attribute"),
        ({"data": ({"ids": IDS}, LABELS)}, r"does not take inputs of shape \{ids: \(14, 5\)\}"),
        ({"data": {"input_ids": IDS}}, r"mapping whose 'labels' are the targets.*Got \{input_ids: \(14, 5\)\}"),
        ({"data": (IDS, MASK[:3])}, "equal length, got 14 and 3"),
        ({"data": ((IDS, MASK[:3]), LABELS)}, "equal length, got 3, 14 and 14"),
        (
            {"data": (torch.tensor(3), LABELS)},
            r"inputs must be tensors with the examples on their first axis, got \(\)",
        ),
        (
            {"outputs": lambda scores: scores.logits},
            r"outputs= does not take what the model returns, a tensor of shape",
        ),
        ({"outputs": lambda scores: scores["logits"]}, "outputs= does not take what the model returns"),
        ({"data": [IDS, LABELS]}, "a tuple of two; a list is taken for a list of batches"),
        ({"data": (IDS.numpy(), LABELS.numpy())}, r"Got ndarray: write torch.from_numpy\(array\)"),
        ({"data": TensorDataset(IDS, LABELS)}, r"got TensorDataset: write DataLoader\(data, batch_size=256\)"),
        ({"loss": nn.CrossEntropyLoss}, r"the class CrossEntropyLoss, not a loss: write CrossEntropyLoss\(\)"),
        ({"loss": "mse"}, "loss must be a torch loss .* got 'mse'"),
        ({"dtype": torch.int32}, "dtype must be a floating-point one"),
        ({"data": (IDS + 3, LABELS)}, "index that is out of range.*integers from 3 to 9: is an Embedding too small"),
    ],
)
def test_bad_batches_and_answers_are_refused_in_words(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Objective(Reader(), **{"data": DATA["mapping with labels"], **arguments})


def test_an_index_out_of_range_that_no_probe_met_is_explained_too() -> None:
    ids = IDS.repeat(20, 1)
    ids[5, 0] = WORDS  # probes look at the first four and at some that are spread out
    objective = Objective(Reader(), (ids, LABELS.repeat(20)), chunk_size=40)
    with pytest.raises(ValueError, match="index that is out of range"):
        objective.loss(objective.theta)


def test_sparse_embeddings_have_derivatives() -> None:
    plain, sparse = (Objective(Reader(sparse=flag), DATA["tuple of inputs"]) for flag in (False, True))
    theta = plain.theta
    assert torch.equal(plain.gradient(theta), sparse.gradient(theta))
    assert torch.equal(plain.hessian(theta).matvec(theta), sparse.hessian(theta).matvec(theta))


def test_what_has_no_second_derivative_is_explained() -> None:
    model = nn.Sequential(nn.EmbeddingBag(WORDS, 4), nn.Linear(4, 3))
    objective = Objective(model, (IDS, LABELS))
    assert objective.gradient(objective.theta).norm() > 0
    for operator in (objective.hessian(objective.theta), objective.gauss_newton(objective.theta)):
        with pytest.raises(ValueError, match=r"no second derivative in torch.*EmbeddingBag"):
            operator.matvec(objective.theta)


def test_a_function_is_no_model() -> None:
    with pytest.raises(ValueError, match=r"model must be a torch.nn.Module, got function"):
        Objective(lambda x: x, (IDS, LABELS))  # type: ignore[arg-type]


def test_models_without_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'embed.weight' is on the meta device, so it has a shape but no numbers"):
        Objective(Reader().to("meta"), DATA["tuple of inputs"])
    with pytest.raises(ValueError, match="'weight' has no shape yet: pass one batch"):
        Objective(nn.LazyLinear(3), (torch.randn(4, 5), torch.zeros(4).long()))


def test_low_precision_is_measured_in_float32_by_advice() -> None:
    model = nn.Linear(4, 3).bfloat16()
    X, y = torch.randn(20, 4), torch.randint(0, 3, (20,))
    low = Objective(model, (X, y))
    assert low.loss(low.theta) > 0
    for matrix in (low.hessian, low.gauss_newton):
        with pytest.raises(ValueError, match=r"curvature in bfloat16 would be rounding noise.*dtype=torch.float32"):
            matrix(low.theta)
    full = Objective(model, (X, y), dtype=torch.float32)
    assert eigenpairs(full.hessian(full.theta), k=1).converged.all()


def test_instance_norm_needs_no_statistics() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.InstanceNorm2d(3, affine=True), nn.Flatten(), nn.Linear(48, 3)
    ).double()
    X, y = torch.randn(9, 2, 6, 6).double(), torch.randint(0, 3, (9,))
    for batchnorm in ("frozen", "recomputed", "interpolated", "batch"):
        objective = Objective(model, (X, y), batchnorm=batchnorm, chunk_size=4)
        expected = functional.cross_entropy(model(X), y).item()
        assert objective.loss(objective.theta) == pytest.approx(expected, abs=1e-13)


class Wave(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1)).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def residual(model: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Squared residual of u'' + 4 u = x at every point, by gradients inside the loss."""
    x.requires_grad_()
    u = model(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    return (bend + 4 * u - x).square()[:, 0]


POINTS = torch.linspace(-1, 1, 11, dtype=torch.float64)[:, None]


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("chunk_size", [None, 3])
def test_a_loss_with_gradients_inside(each: bool, chunk_size: int | None) -> None:
    """A physics-informed network: loss, gradient and Hessian against dense derivatives in float64."""
    model = Wave()

    def batch_loss(network: nn.Module, x: Tensor) -> tuple[Tensor, int]:
        values = residual(network, x)
        return (values if each else values.sum()), len(x)

    objective = Objective(model, POINTS, batch_loss=batch_loss, chunk_size=chunk_size)
    assert objective.chunk_loss.inner_gradients
    theta = objective.theta

    def value(vector: Tensor) -> Tensor:
        tensors = objective.layout.unflatten(vector)
        return residual(lambda x: functional_call(model, tensors, (x,)), POINTS.clone()).mean()

    leaf = theta.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf), leaf, create_graph=True)
    H = torch.stack([torch.autograd.grad(entry, leaf, retain_graph=True)[0] for entry in gradient])
    assert objective.loss(theta) == pytest.approx(value(theta).item(), rel=1e-12)
    torch.testing.assert_close(objective.gradient(theta), gradient.detach(), rtol=1e-10, atol=1e-12)
    for engine in ("auto", "retained", "recompute"):
        product = objective.hessian(theta, engine).matmat(torch.eye(len(theta), dtype=torch.float64))
        torch.testing.assert_close(product, H, rtol=1e-9, atol=1e-10)
    with torch.no_grad():  # whatever mode the caller is in
        assert objective.loss(theta) == pytest.approx(value_without(value, theta), rel=1e-12)
        torch.testing.assert_close(objective.gradient(theta), gradient, rtol=1e-10, atol=1e-12)
    directions = torch.eye(len(theta), dtype=torch.float64)[:2]
    surface = plane(objective, theta, *directions, steps=3)
    assert surface.loss[1, 1] == objective.loss(theta)
    assert not POINTS.requires_grad
    assert (objective.subset(5).evaluate(theta).standard_error is not None) == each


def value_without(value: Callable[[Tensor], Tensor], theta: Tensor) -> float:
    with torch.enable_grad():
        return value(theta).item()


def test_convolutions_below_an_inner_gradient() -> None:
    """The cheap second derivatives know no third: they must not be used here."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 2, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(8, 1)).double()
    X = torch.randn(6, 1, 4).double()

    def penalty(network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        x.requires_grad_()
        (slope,) = torch.autograd.grad(network(x).sum(), x, create_graph=True)
        return slope.square().sum()

    objective = Objective(model, X, batch_loss=lambda network, x: (penalty(network, x), len(x)))
    theta = objective.theta

    def value(vector: Tensor) -> Tensor:
        tensors = objective.layout.unflatten(vector)
        return penalty(lambda x: functional_call(model, tensors, (x,)), X.clone()) / len(X)

    leaf = theta.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf), leaf, create_graph=True)
    v = torch.linspace(-1, 1, len(theta), dtype=torch.float64)
    (product,) = torch.autograd.grad(gradient @ v, leaf)
    torch.testing.assert_close(objective.hessian(theta).matvec(v), product, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("layer", [nn.Tanh(), nn.ReLU()])
def test_inner_gradients_by_torch_func(layer: nn.Module) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Unflatten(-1, (1, 3)), nn.Conv1d(1, 2, 3, padding=1), layer, nn.Flatten(-2), nn.Linear(6, 1)
    )
    model = model.double()
    X = torch.randn(6, 3).double()

    def batch_loss(network: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, int]:
        slopes = torch.func.vmap(torch.func.grad(lambda point: network(point).sum()))(x)
        return (slopes.square().sum(dim=1) + network(x)[:, 0] ** 2).sum(), len(x)

    objective = Objective(model, X, batch_loss=batch_loss)
    theta = objective.theta

    def value(vector: Tensor) -> Tensor:
        tensors = objective.layout.unflatten(vector)
        return batch_loss(lambda x: functional_call(model, tensors, (x,)), X)[0] / len(X)

    assert objective.loss(theta) == pytest.approx(value(theta).item(), rel=1e-12)
    torch.testing.assert_close(objective.gradient(theta), torch.func.grad(value)(theta))
    H = torch.func.hessian(value)(theta)
    for engine in ("auto", "retained", "recompute"):
        torch.testing.assert_close(objective.hessian(theta, engine).dense(), H, rtol=1e-10, atol=1e-12)


def test_a_model_that_differentiates_itself_works_with_any_loss() -> None:
    class Force(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.energy = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()

        def forward(self, x: Tensor) -> Tensor:
            x.requires_grad_()
            return -torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]

    model = Force()
    X, y = torch.randn(9, 3).double(), torch.randn(9, 3).double()
    objective = Objective(model, (X, y), functional.mse_loss, chunk_size=4)
    expected = functional.mse_loss(model(X.clone()), y)
    assert objective.loss(objective.theta) == pytest.approx(expected.item(), abs=1e-13)
    parts = torch.autograd.grad(expected, list(model.parameters()), allow_unused=True, materialize_grads=True)
    torch.testing.assert_close(objective.gradient(objective.theta), torch.cat([p.reshape(-1) for p in parts]))


@pytest.mark.parametrize("stop", [Tensor.detach, Tensor.item])
def test_a_detached_loss_has_values_but_no_derivatives(stop: Callable[[Tensor], Any]) -> None:
    def batch_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Any, int]:
        answer = model(batch["input_ids"])
        return stop(functional.cross_entropy(answer, batch["labels"], reduction="sum")), len(answer)

    objective = Objective(Reader(), DATA["mapping with labels"], batch_loss=batch_loss)
    assert objective.loss(objective.theta) > 0
    for derive in (objective.gradient, objective.hessian, lambda theta: objective.hessian(theta, "forward")):
        with pytest.raises(ValueError, match=r"not depend on the parameters in a way that torch can differentiate"):
            derive(objective.theta)


def test_batches_whose_sums_do_not_add_up_stay_whole() -> None:
    def contrast(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
        features = model(*batch)
        return functional.cross_entropy(features @ features.T, torch.arange(len(features)), reduction="sum"), len(
            features
        )

    batches = [(IDS[:6], MASK[:6]), (IDS[6:], MASK[6:])]
    objective = Objective(Reader(), batches, batch_loss=contrast)
    assert [len(chunk[0]) for chunk in objective.chunks] == [6, 8]
    expected = sum(float(contrast(Reader(), batch)[0].detach()) for batch in batches) / COUNT
    assert objective.loss(objective.theta) == pytest.approx(expected, abs=1e-13)
    with pytest.raises(ValueError, match="its batches cannot be cut: leave chunk_size out"):
        Objective(Reader(), batches, batch_loss=contrast, chunk_size=4)
    with pytest.raises(ValueError, match="batches must stay whole"):
        objective.subset(5)


def test_batches_of_unlike_tensors_are_units() -> None:
    """Points inside and on the boundary, of different number: nothing to cut."""

    def batch_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
        return residual(model, batch["inside"]).sum() + model(batch["ends"]).square().sum(), 1

    objective = Objective(Wave(), {"inside": POINTS, "ends": POINTS[[0, -1]]}, batch_loss=batch_loss)
    model = Wave()
    expected = residual(model, POINTS.clone()).sum() + model(POINTS[[0, -1]]).square().sum()
    assert objective.loss(objective.theta) == pytest.approx(expected.item(), rel=1e-12)
    with pytest.raises(ValueError, match="do not share one leading length"):
        objective.split(3)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            lambda values: (values[:1], 14),
            r"the sum of losses must be one number or one per example, shape \(14,\); got",
        ),
        (lambda values: (values.sum(), torch.ones(14, 2)), r"the count must be one number or one per example"),
        (lambda values: (values.sum(), 14, torch.ones(3)), r"the errors must be one number or one per example"),
        (lambda values: values, r"must return \(sum of losses, count\) or \(sum, count, errors\), got Tensor"),
    ],
)
def test_bad_returns_of_batch_loss(result: Callable[[Tensor], Any], message: str) -> None:
    def batch_loss(model: nn.Module, batch: Any) -> Any:
        return result(functional.cross_entropy(model(batch[0]), batch[1], reduction="none"))

    with pytest.raises(ValueError, match=message):
        Objective(Reader(), (IDS, LABELS), batch_loss=batch_loss)


def test_shapes_in_words() -> None:
    assert describe({"ids": IDS, "more": (LABELS, None)}) == "{ids: (14, 5), more: ((14,), NoneType)}"
