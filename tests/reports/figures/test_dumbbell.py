"""Dumbbells: clients of the last round, residuals, a panel for each run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from analysis.store import Stored, Table, Variable
from reports.figures.dumbbell import FIGURE, MOST
from tests.reports.results import local_global
from tests.reports.results.three import three_runs


def test_a_panel_for_each_run_is_hidden_with_it(tmp_path: Path) -> None:
    found = three_runs(tmp_path, "local_global", local_global.stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    assert [axes.get_gid() for axes in drawn.canvas.axes] == ["runs:run_a", "runs:run_b", "runs:run_c"]
    assert [axes.get_title() for axes in drawn.canvas.axes] == ["fedavg, seed 0", "fedavg, seed 1", "fedasam + SWA"]
    own, everyone, whole = drawn.canvas.axes[2].get_lines()[:3]
    np.testing.assert_allclose(own.get_xdata(), [9.0, 6.0])
    np.testing.assert_allclose(everyone.get_xdata(), [90.0, 120.0])
    assert whole.get_xdata()[0] == 36.0
    residuals = drawn.canvas.axes[0].collections[2].get_segments()  # those on everyone's data
    np.testing.assert_allclose(residuals[1][:, 0], [39.96, 40.04])
    assert {axes.get_xlim() for axes in drawn.canvas.axes} == {(1.6, 150.0)}  # shared


def test_many_clients_get_room_and_not_all_of_them_a_name(tmp_path: Path) -> None:
    def many(scale: float) -> Stored:
        few = local_global.stored(scale)
        count, table = 100, few.tables["local_models"]
        variables = {"round_of": Variable(("row",), np.full(count, 10), "round"), "rank": table.variables["rank"]}
        variables["client"] = Variable(("row",), np.arange(count), "client")
        for name in ("local_eigenvalue", "local_residual", "global_eigenvalue", "global_residual"):
            variables[name] = Variable(("row", "rank"), np.arange(1.0, count + 1)[:, None], name)
        return Stored(few.study, few.settings, few.provenance, few.tables | {"local_models": Table(variables)})

    found = three_runs(tmp_path, "local_global", many)
    (drawn,) = FIGURE.draw(found.runs, found)
    assert len(drawn.rows) == 300
    assert len(drawn.canvas.axes[0].get_yticks()) <= MOST
    assert 5 < drawn.canvas.get_figheight() <= 10
