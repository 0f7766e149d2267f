"""A gradient of a part of the network is the whole gradient with zeros elsewhere, for less work."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.training.federations import federation
from training.clients.local_training import StepGradient
from training.executors.stacked import Batch, StackedGradient
from training.executors.stacked_layers import stack_network
from training.rules.base import LossTerm
from training.rules.context import ClientContext
from training.rules.loss_terms import Contrast, Distillation, NotTrue

HEAD = slice(25, 43)  # of the perceptron 4-5-3
WAYS = [(None, False), (3, False), (3, True)]  # one client, three by vmap, three layer by layer
TERMS = [None, Distillation(), NotTrue(), Contrast()]


def deep(classes: int, channels: int, size: int) -> nn.Module:
    """A network with a BatchNorm and a convolution, whose head is small."""
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * size * size, 16),
        nn.ReLU(),
        nn.Linear(16, classes),
    )


def make_step(
    clients: int | None, model: dict | None = None, by_layers: bool = False, **tables: object
) -> StepGradient | StackedGradient:
    """The gradients of one step: of one client, or of a stack of clients, by vmap or layer by layer."""
    fed = federation(**({} if model is None else {"model": model}), **tables)
    trainer, start = fed.trainer, fed.begin().w
    shape = (clients or 1, 6, 1, 2, 2)
    X = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(trainer.dtype)
    y = torch.arange(shape[0] * 6).view(shape[:2]) % 3
    state = {"previous": start + 0.3}
    if clients is not None:
        state = {"previous": (start + 0.3).expand(clients, -1)}
    context = ClientContext(trainer.layout, start, {}, state, lr=0.1, momentum=0.0, steps=1, round=0)
    if clients is None:
        return StepGradient(trainer, context, X[0], y[0])
    network = stack_network(trainer.replica.module, trainer.layout) if by_layers else None
    assert by_layers == (network is not None)
    return StackedGradient(trainer, context, Batch(X, y, [6, 4, 1][:clients]), network)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("half", [None, 0])
@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize(("clients", "by_layers"), WAYS)
def test_a_part_is_the_whole_without_the_rest(
    clients: int | None, by_layers: bool, term: LossTerm | None, half: int | None, dtype: str
) -> None:
    take = make_step(clients, by_layers=by_layers, dtype=dtype)
    noise = torch.randn(clients or 1, 43, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    point = take.context.start + 0.5 * (noise if clients else noise[0]).to(take.context.start.dtype)
    whole = take(point, term, half)
    for part in ("head", "body"):
        expected = torch.zeros_like(whole)
        inside = HEAD if part == "head" else slice(0, HEAD.start)
        expected[..., inside] = whole[..., inside]
        assert torch.equal(take(point, term, half, part), expected)
        assert not torch.equal(expected, torch.zeros_like(whole)) or (part, type(term)) == ("head", Contrast)


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_part_leaves_losses_and_norm_layers_as_the_whole_does(part: str) -> None:
    model = {"name": "tests.training.engine.test_partial_gradients:deep"}
    left, right = make_step(None, model), make_step(None, model)
    point = left.context.start + 0.1
    whole, some = left(point), right(point, part=part)
    inside = some != 0
    assert torch.equal(some[inside], whole[inside])
    assert left.loss == right.loss
    assert torch.equal(left.trainer.read_statistics(), right.trainer.read_statistics())
    assert left.evaluations == right.evaluations == 1


@pytest.mark.parametrize(("clients", "by_layers"), WAYS)
def test_a_head_costs_one_forward_pass_and_its_own_backward(clients: int | None, by_layers: bool) -> None:
    """The perceptron 4-5-3 on B examples: 2 B (20 + 15) forward, 2 B 15 each for the head's weights and inputs."""
    take, found = make_step(clients, by_layers=by_layers), {}
    point = take.context.start if clients is None else take.context.start.expand(clients, -1)
    for part in ("all", "body", "head"):
        with FlopCounterMode(display=False) as counter:
            take(point, part=part)
        found[part] = counter.get_total_flops()
    B = 6 * (clients or 1)
    forward, inputs, head_weights, body_weights = 2 * B * 35, 2 * B * 15, 2 * B * 15, 2 * B * 20
    assert found == {
        "all": forward + inputs + head_weights + body_weights,
        "body": forward + inputs + body_weights,
        "head": forward + head_weights,
    }
