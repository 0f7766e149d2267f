"""The layout: round trips, tied and frozen tensors, filters, and refusals."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from landscape.layout import Layout
from tests.landscape.cases import CASES, Tied, make


@pytest.mark.parametrize("name", CASES)
def test_flatten_and_unflatten_round_trip(name):
    case = make(name)
    layout = Layout.of(case.model)
    theta = layout.flatten(case.model)
    assert torch.equal(theta, case.theta())
    parts = layout.unflatten(theta)
    assert torch.equal(layout.flatten(parts), theta)
    own = dict(case.model.named_parameters())
    for key, part in parts.items():
        assert torch.equal(part, own[key])
        part += 1  # views: writing there writes the vector
    assert torch.equal(theta, case.theta() + 1)


def test_stacks_keep_their_leading_axes():
    layout = Layout.of(nn.Linear(3, 2))
    stack = torch.arange(16.0).reshape(2, 8)
    assert layout.segment(stack, "weight").shape == (2, 2, 3)
    assert torch.equal(layout.segment(stack, "weight")[1], layout.segment(stack[1], "weight"))


def test_tied_frozen_and_unused():
    layout = Layout.of(Tied())
    assert layout.names == ("unused", "embed.weight")
    assert layout.entry("out.weight") is layout.entry("embed.weight")
    assert layout.size == 3 + 20


def test_kinds_layers_and_masks():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Linear(3, 4))
    layout = Layout.of(model, statistics=True)
    kinds = [entry.kind for entry in layout.entries]
    assert kinds == ["weight", "bias", "norm", "norm", "weight", "bias", "statistic", "statistic"]
    assert list(layout.layers) == ["0", "1", "2"]
    assert int(layout.mask("weight").sum()) == 54 + 12
    assert int(layout.mask("statistic").sum()) == 6
    assert [entry.name for entry in Layout.of(model, ["0.*", "2.bias"]).entries] == ["0.weight", "0.bias", "2.bias"]


@pytest.mark.parametrize(
    ("module", "filters"),
    [
        (nn.Conv2d(4, 6, 3), lambda w: [w[j] for j in range(6)]),
        (nn.Conv2d(4, 6, 3, groups=2), lambda w: [w[j] for j in range(6)]),
        (nn.Linear(5, 3), lambda w: [w[j] for j in range(3)]),
        (nn.Embedding(5, 3), lambda w: [w[j] for j in range(5)]),
        (nn.ConvTranspose2d(4, 6, 3), lambda w: [w[:, j] for j in range(6)]),
        (
            nn.ConvTranspose2d(4, 6, 3, groups=2),
            lambda w: [w[2 * g : 2 * g + 2, j] for g in range(2) for j in range(3)],
        ),
    ],
)
def test_filter_norms_against_a_loop(module, filters):
    layout = Layout.of(module)
    theta = layout.flatten(module)
    norms = layout.filter_norms(theta)
    weight = layout.segment(theta, "weight")
    for values, places in zip(filters(weight), filters(layout.segment(norms, "weight")), strict=True):
        torch.testing.assert_close(places, values.norm().expand_as(places))
    if "bias" in layout.names:
        assert layout.segment(norms, "bias").abs().max() == 0


def test_refusals():
    layout = Layout.of(nn.Linear(3, 2))
    with pytest.raises(ValueError, match="8 entries on its last axis, got shape"):
        layout.check(torch.zeros(7))
    with pytest.raises(ValueError, match="did you mean 'weight'"):
        layout.entry("wieght")
    with pytest.raises(ValueError, match="no tensor named 'weight'"):
        layout.flatten(nn.Sequential(nn.Linear(3, 2)))
    with pytest.raises(ValueError, match=r"'weight' must have shape \(2, 3\), got \(3, 3\)"):
        layout.flatten(nn.Linear(3, 3))
