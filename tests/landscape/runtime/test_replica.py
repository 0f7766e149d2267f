"""Where a replica computes: at copies of small vectors and at views of large ones, in any order."""

import pytest
import torch
from torch import Tensor, nn

from landscape.layout import Layout
from landscape.runtime import replica
from landscape.runtime.replica import ALIGNED, Replica


def shift(vector: Tensor) -> Tensor:
    """The same numbers at an address that torch would not choose."""
    room = torch.empty(len(vector) + 1, dtype=vector.dtype)[1:]
    assert room.data_ptr() % ALIGNED
    return room.copy_(vector)


@pytest.mark.parametrize("bound", [0, 10**9])
def test_vectors_of_all_kinds_can_follow_one_another(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "BOUND", bound)
    model = nn.Linear(3, 2)
    layout = Layout.of(model)
    own = Replica(model, layout, torch.float32, torch.device("cpu"))
    x = torch.randn(5, 3)
    plain = torch.randn(layout.size)
    viewed = []
    for vector in (plain, shift(torch.randn(layout.size)), plain, torch.randn(layout.size).double(), plain):
        own.place(vector)
        w, b = (layout.view(vector.float(), entry) for entry in layout.entries)
        assert torch.equal(own.module(x), nn.functional.linear(x, w, b))
        gradient = torch.autograd.grad(own.module(x).sum(), own.leaves)
        assert torch.equal(gradient[1], torch.full((2,), 5.0))
        viewed.append(own.leaves[0].data_ptr() == vector.data_ptr())
    assert viewed == [bound == 0, False, bound == 0, False, bound == 0]
