"""Pictures and tables of results: what is drawn is what was measured, onto given axes or new ones."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

import landscape
from landscape.geometry import directions
from landscape.results import Barrier, Eigenpairs, Height, Line, Outcome, Plane

matplotlib.use("Agg")
KINDS = ["eigenpairs", "density", "trace", "sharpness", "line", "plane", "barrier", "frame", "trajectory", "curve"]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def results():
    """One result of every kind that draws itself."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    data = (torch.randn(7, 3).double(), torch.randint(0, 2, (7,)))
    objective = landscape.Objective(model, data, loss=torch.nn.functional.cross_entropy, dtype=torch.float64)
    theta = objective.theta
    hessian = objective.hessian(theta)
    d1, d2 = directions.filter_normalized(objective.layout, theta, seed=0)
    steps = [theta + t * d1 + t**2 * d2 for t in (0.0, 0.4, 1.0)]
    return {
        "eigenpairs": landscape.eigenpairs(hessian, k=3),
        "density": landscape.spectral_density(hessian, steps=8, probes=3),
        "trace": landscape.trace(hessian, probes=12),
        "sharpness": landscape.sharpness(objective, theta, radius=0.1, kind="sam"),
        "line": landscape.line(objective, theta, d1, steps=5),
        "plane": landscape.plane(objective, theta, d1, d2, steps=(4, 5), extent=2.0),
        "barrier": landscape.barrier(objective, theta, steps[2], steps=5),
        "frame": directions.through_models(*steps),
        "trajectory": directions.trajectory(torch.stack(steps)),
        "curve": landscape.curve(objective, theta, steps[2], iterations=2, points=5),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_draws_itself_and_is_a_table(results, kind):
    result = results[kind]
    figure = Figure()
    given = figure.add_subplot()
    drawn = result.plot("contour", given) if kind == "plane" else result.plot(given)
    assert drawn is given
    assert given.has_data()
    assert result.plot().get_figure() is not figure
    assert len(result.to_pandas()) > 0
    assert result.to_pandas().notna().to_numpy().any()
    assert f"<caption>{type(result).__name__}</caption>" in result._repr_html_()


@pytest.mark.parametrize("kind", [*KINDS, "small plane"])
def test_a_picture_of_its_own_cuts_nothing_off(results, kind):
    small = np.linspace(-1, 1, 11)  # ticks at halves are wide
    heights = 1.1 + 0.1 * (small[:, None] ** 2 + small**2)
    result = results[kind] if kind in results else replace(results["plane"], x=small, y=small, loss=heights)
    drawn = result.plot("contour") if "plane" in kind else result.plot()
    file = io.BytesIO()
    drawn.get_figure().savefig(file, format="png")
    file.seek(0)
    ink = pyplot.imread(file)[..., :3].min(axis=2) < 0.9
    assert not any(edge.any() for edge in (ink[0], ink[-1], ink[:, 0], ink[:, -1]))


def test_a_table_holds_every_number_beside_its_coordinates(results):
    plane = results["plane"]
    table = plane.to_pandas()
    assert table.index.names == ["x", "y"]
    assert table.loc[(plane.x[1], plane.y[3]), "loss"] == plane.loss[1, 3]
    top = results["eigenpairs"]
    assert top.to_pandas()["values"].tolist() == top.values.tolist()
    assert "vectors" not in top.to_pandas()
    barrier = results["barrier"]
    assert len(barrier.to_pandas()) == len(barrier.path.x) + len(barrier.refined)
    assert barrier.to_pandas().index.is_monotonic_increasing
    assert results["trace"].to_pandas().loc["all", "trace"] == results["trace"].value


def test_signs_and_convergence_of_eigenvalues_can_be_told_apart():
    values = np.array([3.0, 1.0, -0.5])
    found = Eigenpairs(
        values,
        torch.eye(3),
        np.array([0.1, 0.2, 0.3]),
        np.array([True, False, True]),
        9,
        np.array([1, 2, 3]),
        Outcome.MAX_ITERATIONS,
    )
    axes = found.plot()
    markers = {float(line.get_ydata()[0]): line for line in axes.lines if line.get_marker() in ("o", "v")}
    assert [markers[value].get_marker() for value in values] == ["o", "o", "v"]
    assert markers[1.0].get_markerfacecolor() == "white"
    assert markers[3.0].get_markerfacecolor() != "white"


def test_a_barrier_is_drawn_from_the_chord_to_the_path():
    x = np.linspace(0, 1, 5)
    path = Line(x, np.array([1.0, 2.0, 3.5, 3.0, 2.0]), None, None, np.ones(5, dtype=bool))
    height = Height(2.0, 2.0, 1.5, 0.5, 0.5)
    axes = Barrier(path, height, None, np.empty((0, 3))).plot()
    (arrow,) = axes.texts
    assert arrow.xy == (0.5, 3.5)
    assert arrow.get_position() == (0.5, 1.5)
    assert "barrier 2 at x = 0.5" in axes.get_title()


def test_surfaces_in_three_dimensions_and_of_plotly(results):
    plane = results["plane"]
    axes = plane.plot("3d")
    assert axes.name == "3d"
    with pytest.raises(ValueError, match="needs axes in three dimensions"):
        plane.plot("3d", Figure().add_subplot())
    scene = plane.plot("plotly")
    heights = np.array(scene.data[0].z)
    np.testing.assert_allclose(heights, plane.loss.T, rtol=1e-4)
    assert plane.plot("plotly", scene, quantity="error") is scene
    assert len(scene.data) == 2
    with pytest.raises(ValueError, match="did you mean 'contour'"):
        plane.plot("contours")


def test_a_result_without_errors_says_so():
    grid = np.arange(2.0)
    plane = Plane(grid, grid, np.ones((2, 2)), None, None, np.ones((2, 2), dtype=bool), 0.0)
    with pytest.raises(ValueError, match="has no errors"):
        plane.plot(quantity="error")
    with pytest.raises(ValueError, match="quantity: unknown 'los'"):
        plane.plot(quantity="los")


def test_matplotlib_is_imported_only_for_pictures():
    code = "import sys, landscape, landscape.results; print('matplotlib' in sys.modules, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.split() == ["False", "False"]
