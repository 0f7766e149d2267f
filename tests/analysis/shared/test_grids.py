"""Grids are cut into blocks of rows without a gap, and cost what their points cost."""

from __future__ import annotations

import pytest

from analysis.shared import grids
from analysis.shared.grids import GridPiece


@pytest.mark.parametrize(
    ("steps", "cost", "sizes"), [(7, 10, [3, 3, 1]), (4, 10**9, [1] * 4), (5, 1, [5]), (3, 0, [3])]
)
def test_blocks_cover_every_row_once(steps: int, cost: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "AT_ONCE", 210)
    whole = GridPiece(4, passes=1.0)
    blocks = list(whole.cut("train", steps, cost, after=(whole,)))
    rows = [row for block in blocks for row in range(block.first or 0, block.stop or 0)]
    assert rows == list(range(steps))
    assert [(block.stop or 0) - (block.first or 0) for block in blocks] == sizes
    assert sum(block.passes for block in blocks) == pytest.approx(steps**2 * cost / 3)
    assert all(block.after == (whole,) and block.split == "train" and block.round == 4 for block in blocks)
    assert len({block.name for block in [whole, *blocks]}) == len(blocks) + 1
