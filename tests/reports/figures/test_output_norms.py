"""Norms of outputs on clients' data: clients by rounds, all partitions in the same colours."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reports.figures.output_norms import FIGURE
from reports.inputs.runs import read_runs
from tests.reports.conftest import make_run
from tests.reports.results.seeds_and_settings import varied


def test_cells_are_norms_of_outputs_by_client_and_round(tmp_path: Path) -> None:
    runs = [
        varied(
            make_run(tmp_path / f"alpha{alpha}", "fedavg", scale=scale, studies=("forgetting",)), partition_alpha=alpha
        )
        for alpha, scale in ((0.0, 1.0), (1000.0, 0.5))
    ]
    found = read_runs(runs)
    assert FIGURE.across
    (drawn,) = FIGURE.draw(found.runs, found)
    first, second, bar = drawn.canvas.axes
    np.testing.assert_allclose(first.get_images()[0].get_array().filled(-1), [[1.0, 6.0, 4.0], [2.0, 3.0, -1]])
    assert {axes.get_images()[0].get_clim() for axes in (first, second)} == {(0.5, 6.0)}
    assert [axes.get_title() for axes in (first, second)] == [
        "FedAvg\nDirichlet α = 0",
        "FedAvg\nDirichlet α = 1000",
    ]
    assert (first.get_xlabel(), first.get_ylabel()) == ("communication round", "client")
    assert r"||f_\theta(x)||" in bar.get_ylabel()
    assert "outputs (logits) of the server global model on each client's training data" in drawn.caption
    (row,) = (row for row in drawn.rows if (row["run"], row["round"], row["client"]) == ("alpha0.0", 5, 0))
    assert row["output_norm"] == 6.0
