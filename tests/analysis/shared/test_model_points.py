"""Models seen on several data: which variables come of it, over which axes, and from whose data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike

from analysis.shared.model_points import describe_views
from analysis.study import Piece

ABOUT = {"value": "value of {model}", "loss": "loss"}


def measure_on(client: int | None) -> dict[str, ArrayLike]:
    start = 100 if client is None else client
    return {"value": np.asarray([start, start + 0.5]), "loss": float(start)}


def test_a_participant_is_seen_on_its_own_data_and_on_everyones() -> None:
    found = describe_views(Piece(4, 7), [1, 2], measure_on, "rank", ABOUT, everyone=True)
    assert list(found) == ["local_value", "local_loss", "global_value", "global_loss"]
    assert (found["local_value"].dims, found["local_loss"].dims) == (("rank",), ())
    assert found["local_value"].values.tolist() == [7, 7.5]
    assert found["global_loss"].values == 100
    assert found["global_value"].attrs["long_name"] == "value of the client's model on everyone's data"
    assert list(describe_views(Piece(4, 7), [], measure_on, "rank", ABOUT, everyone=False)) == list(found)[:2]


@pytest.mark.parametrize("clients", [[], [3, 5, 8]])
def test_the_global_model_is_seen_on_everyones_data_and_on_each_clients(clients: list[int]) -> None:
    found = describe_views(Piece(4), clients, measure_on, "rank", ABOUT, everyone=True)
    assert found["global_model_value"].values.tolist() == [100, 100.5]
    if not clients:
        assert list(found) == ["global_model_value", "global_model_loss"]
        return
    each = found["global_model_on_client_value"]
    assert each.dims == ("client", "rank")
    assert each.values.tolist() == [[3, 3.5], [5, 5.5], [8, 8.5]]
    assert found["global_model_on_client_loss"].dims == ("client",)
    assert found["global_model_on_client_loss"].values.tolist() == clients
