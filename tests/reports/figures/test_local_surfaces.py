"""Participants' models on their own data and on everyone's, side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reports.figures.local_surfaces import FIGURE
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.figures.test_surface import faces
from tests.reports.results import surface
from tests.reports.results.answers import write_answer


def read(tmp_path: Path, clients: int) -> Collection:
    paths = [make_run(tmp_path / "run_a", "fedavg"), make_run(tmp_path / "run_c", "fedsam")]
    for path in paths:
        (path / "analysis" / "surface" / "default.h5").unlink()  # measured together instead
    write_answer(tmp_path, surface.stored(["run_a", "run_c"], rounds=(5, 10), clients=clients))
    return read_runs(paths)


def test_own_data_on_the_left_everyones_on_the_right(tmp_path: Path) -> None:
    found = read(tmp_path, clients=2)
    first, second = FIGURE.draw(found.runs, found)
    assert [one.suffix for one in (first, second)] == ["_run_a", "_run_c"]
    panels = first.canvas.axes[:4]
    assert [axes.get_title() for axes in panels] == [
        "client 0 on its own data (n = 20)",
        "client 0 on everyone's data (n = 100)",
        "client 1 on its own data (n = 20)",
        "client 1 on everyone's data (n = 100)",
    ]
    loss = surface.loss_of("run_a")
    for axes, factor in zip(panels, (0.01, 1.0, 0.02, 2.0), strict=True):
        np.testing.assert_allclose(axes.collections[0].get_array().ravel(), faces(np.log10(factor * loss)).ravel())
        assert axes.get_gid() == "runs:run_a"
    assert panels[0].get_zlim() == second.canvas.axes[0].get_zlim()  # methods can be compared
    assert {row["round"] for row in first.rows} == {10}


def test_the_page_lays_everyones_net_over_the_clients_surface(tmp_path: Path) -> None:
    found = read(tmp_path, clients=2)
    first, _ = FIGURE.draw(found.runs, found)
    assert first.interactive is not None
    traces = first.interactive["data"]
    assert [trace["type"] for trace in traces] == ["surface", "scatter3d"] * 2
    assert [trace["visible"] for trace in traces] == [True, True, "legendonly", "legendonly"]
    assert {trace["meta"]["run"] for trace in traces} == {"run_a"}
    x, y, z = (np.array(traces[1][key], dtype=float) for key in "xyz")
    np.testing.assert_allclose(z, 4 + x + 3 * y)


def test_without_participants_there_is_nothing_to_draw(tmp_path: Path) -> None:
    found = read(tmp_path, clients=0)
    assert FIGURE.draw(found.runs, found) == []
