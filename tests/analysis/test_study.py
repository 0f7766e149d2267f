"""Pieces, and how their Datasets are joined by coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import xarray as xr

from analysis.study import Piece, combine, expand, scalar, variable


@dataclass(frozen=True)
class Block(Piece):
    """Some rows of a grid, on one split."""

    dims: ClassVar[tuple[str, ...]] = ("round", "split")
    split: str = "train"
    first: int = 0


def test_a_piece_is_named_by_its_coordinates() -> None:
    piece = Block(4, split="test", first=2, passes=3.0, after=(Piece(2),))
    assert piece.coordinates == {"round": 4, "split": "test", "first": 2}
    assert piece.name == "round 4, split test, first 2"
    assert piece == Block(4, split="test", first=2)  # what it costs does not tell pieces apart
    assert piece != Block(4, split="test", first=3)


def test_coordinates_become_leading_dimensions_of_data_variables() -> None:
    found = xr.Dataset({"loss": variable("x", [1.0, 2.0], "loss"), "n": scalar(3, "count")}, {"x": [0.0, 0.5]})
    expanded = expand(Block(4, split="test", first=2), found)
    assert expanded["loss"].dims == ("round", "split", "x")
    assert expanded["n"].dims == ("round", "split")
    assert (expanded["round"].values.tolist(), expanded["split"].values.tolist()) == ([4], ["test"])
    assert expanded["x"].dims == ("x",)
    assert "first" not in expanded.variables


def test_pieces_are_joined_by_coordinates_whatever_their_order() -> None:
    def piece(round: int, split: str, rows: list[float]) -> xr.Dataset:
        values = [100 * round + 10 * (split == "test") + row for row in rows]
        return expand(Block(round, split=split), xr.Dataset({"loss": variable("x", values, "loss")}, {"x": rows}))

    pieces = [piece(2, "train", [2.0]), piece(0, "test", [0.0, 1.0]), piece(0, "train", [1.0, 0.0])]
    found = combine(pieces)
    assert found["round"].values.tolist() == [0, 2]
    assert found["split"].values.tolist() == ["train", "test"]  # texts as they come
    assert found["x"].values.tolist() == [0.0, 1.0, 2.0]
    nan = np.nan
    expected = [[[0.0, 1.0, nan], [10.0, 11.0, nan]], [[nan, nan, 202.0], [nan, nan, nan]]]
    np.testing.assert_array_equal(found["loss"].values, expected)
    assert found["loss"].attrs == {"long_name": "loss", "units": "1"}
    assert found["round"].attrs["long_name"] == "communication round"
    merged = xr.merge(pieces, join="outer", compat="no_conflicts")
    np.testing.assert_array_equal(merged["loss"].sel(found.coords).values, expected)


def test_types_stay_where_nothing_is_missing() -> None:
    def piece(round: int, **more: xr.Variable) -> xr.Dataset:
        flag = variable((), round > 0, "flag")
        return expand(Piece(round), xr.Dataset({"n": scalar(round, "count"), "flag": flag, **more}))

    found = combine([piece(0), piece(1, extra=scalar(7, "count"), word=variable((), "seven", "word"))])
    assert found["n"].dtype == np.int64
    assert found["flag"].dtype == bool
    np.testing.assert_array_equal(found["extra"].values, [np.nan, 7.0])
    assert found["word"].values.tolist() == ["", "seven"]


def test_axes_without_coordinates_are_filled_up() -> None:
    pieces = [expand(Piece(t), xr.Dataset({"x": variable("probe", np.ones(n), "x")})) for t, n in ((0, 3), (1, 1))]
    np.testing.assert_array_equal(combine(pieces)["x"].values, [[1, 1, 1], [1, np.nan, np.nan]])


def test_coordinates_of_a_dimension_stay_coordinates() -> None:
    data = xr.Dataset({"x": variable("layer", [1.0, 2.0], "x")}, {"layer": ["a", "b"], "size": ("layer", [3, 4])})
    found = combine([expand(Piece(0), data), expand(Piece(1), data)])
    assert set(found.coords) == {"round", "layer", "size"}
    assert found["size"].values.tolist() == [3, 4]
    assert found["x"].dims == ("round", "layer")


def test_a_variable_has_one_kind_of_dimensions() -> None:
    one, two = xr.Dataset({"x": variable("a", [1.0], "x")}), xr.Dataset({"x": variable("b", [1.0], "x")})
    with pytest.raises(AssertionError, match="expected one kind"):
        combine([one, two])


def test_a_piece_is_named_by_the_coordinates_that_it_has() -> None:
    assert Piece().coordinates == {}
    assert Piece(0, 0).coordinates == {"round": 0, "client": 0}
    assert Piece(3, passes=5.0).name == "round 3"
