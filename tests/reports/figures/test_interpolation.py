"""Lines between models: by kind and by run, each pair once, few enough to be told apart."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from analysis.store import Answer
from reports.figures.interpolation import DRAWING, FIGURE, _find_free
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.results import interpolation
from tests.reports.results.answers import write_answer

X = interpolation.X
SPLITS = ("training data", "test data")  # their line styles end the legend


def _compared(folder: Path, stored: Answer) -> Collection:
    """Two runs whose results lie beside them, none in them."""
    paths = [make_run(folder / "run_a", "fedavg"), make_run(folder / "run_c", "fedasam", swa=True)]
    for path in paths:
        (path / "analysis" / "interpolation" / "default.h5").unlink()
    write_answer(folder, stored)
    return read_runs(paths)


A, C = ("run_a", 10, -1), ("run_c", 10, -1)
PAIRS = (
    ("run-run", A, C),
    ("run-run", A, ("run_z", 10, -1)),  # of another section
    ("round-round", ("run_a", 5, -1), A),
    ("client-client", ("run_a", 10, 0), ("run_a", 10, 12)),
    ("client-global", ("run_a", 10, 0), A),
    ("round-round", ("run_c", 5, -1), C),
)


def test_lines_of_runs_that_were_compared_are_sorted_by_run_and_kind(tmp_path: Path) -> None:
    found = _compared(tmp_path, interpolation.stored(PAIRS))
    first, second, between = FIGURE.draw(found.runs, found)
    assert [first.suffix, second.suffix, between.suffix] == ["", "_1", "_runs"]
    titles = [axes.get_title() for axes in first.canvas.axes[::2]]
    kinds = ["between two clients", "from a client to the global model", "between two rounds"]
    assert titles == [f"FedAvg, {kind}" for kind in kinds]
    names = [text.get_text() for text in first.canvas.legends[0].get_texts()]
    assert names == ["client 0 to client 12, round 10", "client 0 to global, round 10", "round 5 to round 10", *SPLITS]
    colours = [axes.get_lines()[0].get_color() for axes in first.canvas.axes[::2]]
    assert len(set(colours)) == 3  # one legend serves all panels
    clients = first.canvas.axes[0]
    train, test = clients.get_lines()[:2]
    np.testing.assert_allclose(train.get_ydata(), 4 + X**2)  # of the treatment that was stored first
    np.testing.assert_allclose(test.get_ydata(), 5 + X**2)
    assert (train.get_linestyle(), test.get_linestyle()) == ("-", "--")
    assert train.get_gid() == clients.texts[0].get_gid() == "runs:run_a"
    loss = between.canvas.axes[0]
    assert loss.get_lines()[0].get_gid() == "runs:run_a run_c"
    names = [text.get_text() for text in between.canvas.legends[0].get_texts()]
    assert names == ["FedAvg to FedASAM + SWA, round 10", *SPLITS]
    assert "BatchNorm interpolated, recomputed" not in first.caption
    assert "BatchNorm interpolated" in first.caption
    assert "80 train" in first.caption
    ends = {(row["start"], row["end"]) for row in first.rows}
    assert ("run_a round 10 client 0", "run_a round 10 client 12") in ends


def test_the_barrier_is_a_bar_from_the_chord_to_the_curve(tmp_path: Path) -> None:
    found = _compared(tmp_path, interpolation.stored(PAIRS[:1]))
    (drawn,) = FIGURE.draw(found.runs, found)
    loss, error = drawn.canvas.axes
    (bar,) = loss.collections
    np.testing.assert_allclose(bar.get_segments()[0], [[0.5, 1.0], [0.5, 1.25]])
    assert [text.get_text() for text in loss.texts] == ["0.25"]
    assert not error.texts  # its barrier is unknown
    assert loss.get_ylim() == (0.0, pytest.approx(6.3))  # up to twice the highest between the models, and some air


def test_numbers_of_barriers_stay_in_the_panel_and_cover_no_other() -> None:
    taken: list[tuple[float, float]] = []
    for _ in range(3):  # the same bar, which ends at the top of the panel
        taken.append((0.5, _find_free(0.5, 1.0, 0.8, taken, 1.0)))
    heights = sorted(place for _, place in taken)
    assert all(0.0 < place <= 0.9 for place in heights)
    assert min(np.diff(heights)) >= 0.1 - 1e-9
    assert _find_free(0.5, 0.4, 0.1, [], 1.0) == 0.4  # right above its bar where nothing is in the way


def test_of_many_lines_the_highest_barriers_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    clients = list(combinations(range(5), 2))
    pairs = [("client-client", ("run_a", 10, a), ("run_a", 10, b)) for a, b in clients]
    pairs += [("round-round", ("run_a", t, -1), ("run_a", t + 1, -1)) for t in range(10)]
    barriers = [1.0 + place for place in range(20)]
    found = _compared(tmp_path, interpolation.stored(pairs, ["frozen"], barriers))
    (drawn,) = FIGURE.draw(found.runs, found)
    assert "4 of 10 client-client, 4 of 10 round-round, highest barriers first" in drawn.caption
    names = [text.get_text() for text in drawn.canvas.legends[0].get_texts()]
    assert len(names) == DRAWING + len(SPLITS)
    assert names[4:] == [*(f"round {t} to round {t + 1}" for t in (6, 7, 8, 9)), *SPLITS]
    texts = drawn.canvas.axes[0].texts
    heights = sorted(text.xy[1] for text in texts)
    assert min(np.diff(heights)) >= 0.07 * drawn.canvas.axes[0].get_ylim()[1]  # labels do not cover each other
    assert len(drawn.rows) == DRAWING * 2 * len(X)


def test_a_curve_that_rises_far_is_cut_and_marked_where_it_leaves(tmp_path: Path) -> None:
    stored = interpolation.stored(PAIRS[:1], ["frozen"])
    stored.data["loss"][:] = 1 + X**4  # 17 beyond the second model, 2 at most between the two
    found = _compared(tmp_path, stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    loss = drawn.canvas.axes[0]
    assert loss.get_ylim() == (0.0, pytest.approx(4.2))
    train, _ = (line for line in loss.get_lines() if line.get_marker() == "^")
    np.testing.assert_allclose(train.get_xdata(), [1 + 0.5 * 2.2 / 4.0625])  # from 2 at 1 to 6.0625 at 1.5


def test_places_where_the_maximum_was_looked_for_are_part_of_the_curve(tmp_path: Path) -> None:
    stored = interpolation.stored(PAIRS[:1], ["frozen"])
    for name, value in (("refined_x", 0.6), ("refined_loss", 9.0)):
        stored.data[name] = stored.data[name].copy()  # they share one array of NaN
        stored.data[name][..., 0] = value
    found = _compared(tmp_path, stored)
    (drawn,) = FIGURE.draw(found.runs, found)
    train = drawn.canvas.axes[0].get_lines()[0]
    assert train.get_xdata().tolist() == [-1, -0.5, 0, 0.5, 0.6, 1, 1.5, 2]
    assert train.get_ydata()[4] == 9
