"""The baseline is solid, the compared method a net of its stored losses over it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from reports.figures.overlay import FIGURE
from reports.inputs.runs import Collection, read_runs
from reports.palette import assign_looks
from tests.reports.conftest import make_run
from tests.reports.results import surface
from tests.reports.results.answers import write_answer

SHAPES = {"base": (1.0, 1.0), "tilted": (1.0, -1.0), "higher": (2.0, 1.0)}


@pytest.fixture
def three(tmp_path: Path) -> Collection:
    methods = {"base": "fedavg", "tilted": "fedgloss", "higher": "fedsam"}
    paths = [make_run(tmp_path / name, method) for name, method in methods.items()]
    write_answer(tmp_path, surface.stored(list(SHAPES), shapes=SHAPES))
    return read_runs(paths)


def test_one_drawing_for_each_method_against_the_baseline(three: Collection) -> None:
    drawn = FIGURE.draw(three.runs, three)
    assert [one.suffix for one in drawn] == ["_higher", "_tilted"]
    limits = {one.canvas.axes[0].get_zlim() for one in drawn}
    assert len(limits) == 1  # drawings can be compared with each other
    for one, method in zip(drawn, ("FedSAM", "FedGloSS"), strict=True):
        (legend,) = one.canvas.legends
        assert [text.get_text() for text in legend.get_texts()] == ["FedAvg (solid)", f"{method} (net)"]
        assert legend.get_texts()[0].get_gid() == "runs:base"
        assert {row["run"] for row in one.rows} == {"base", one.suffix[1:]}


def test_the_net_holds_the_losses_and_goes_under_the_surface_where_it_is_lower(three: Collection) -> None:
    _, drawn = FIGURE.draw(three.runs, three)
    axes = drawn.canvas.axes[0]
    solid, below, above = axes.collections
    assert below.get_zorder() < solid.get_zorder() < above.get_zorder()
    assert solid.get_alpha() < 1
    assert [one.get_gid() for one in (solid, below, above)] == ["runs:base", "runs:tilted", "runs:tilted"]
    for lines, sign in ((below, -1), (above, 1)):  # the method's minus the baseline's loss is -2x
        points = np.asarray(lines._segments3d)
        x, y, z = points.reshape(-1, 3).T
        np.testing.assert_allclose(z, 4 - x + 3 * y)
        assert (sign * points[..., 0].mean(axis=1) <= 0).all()
    assert len(below._segments3d) + len(above._segments3d) == 2 * 5 * 4  # five lines of four pieces each way
    color = assign_looks(run.algorithm for run in three.runs)["fedgloss"].color
    assert drawn.interactive is not None
    assert drawn.interactive["data"][1]["line"]["color"] == color


def test_the_page_gets_a_surface_and_one_broken_line(three: Collection) -> None:
    _, drawn = FIGURE.draw(three.runs, three)
    assert drawn.interactive is not None
    json.dumps(drawn.interactive, allow_nan=False)
    solid, net = drawn.interactive["data"]
    assert (solid["type"], net["type"]) == ("surface", "scatter3d")
    assert (solid["meta"]["run"], net["meta"]["run"]) == ("base", "tilted")
    x, y, z = (np.array(net[key], dtype=float) for key in "xyz")
    assert np.isnan(z).sum() == 10  # a gap after each of the lines
    np.testing.assert_allclose(z, 4 - x + 3 * y)
    assert (np.array(net["x"][:5]) == -1).all()
    assert net["connectgaps"] is False


def test_surfaces_in_other_directions_or_ranges_are_not_laid_over(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / name, name) for name in ("fedavg", "fedsam")]
    write_answer(paths[0], surface.stored(["fedavg"]))
    write_answer(paths[1], surface.stored(["fedsam"], axes="eigen"))
    found = read_runs(paths)
    assert FIGURE.draw(found.runs, found) == []
    write_answer(paths[1], surface.stored(["fedsam"]))
    again = read_runs(paths)
    assert len(FIGURE.draw(again.runs, again)) == 1
    assert FIGURE.draw(again.runs[:1], again) == []  # nothing to compare with


def test_seeds_are_compared_with_their_like(tmp_path: Path) -> None:
    names = ("fedavg_1", "fedavg_2", "fedsam_1", "fedsam_2", "fedsol_3")
    paths = [make_run(tmp_path / name, name.partition("_")[0], seed=int(name[-1])) for name in names]
    write_answer(tmp_path, surface.stored(names))
    found = read_runs(paths)
    drawn = FIGURE.draw(found.runs, found)
    assert [one.suffix for one in drawn] == ["_fedsam_1", "_fedsol_3"]
    assert all(one.rows[0]["run"] == "fedavg_1" for one in drawn)
