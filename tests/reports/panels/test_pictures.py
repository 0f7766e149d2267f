"""Surfaces, planes, maps, lines between models, features and partitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reports.artefact import Entry, Panel
from reports.inputs.runs import Run
from reports.panels.clients import name_client
from tests.reports.panels.made_up import COUNTS, draw, draw_panels, list_legend, make_eigen, make_run
from tests.reports.results import curvature, features, interpolation, local_global, plane, surface

NAMES = {"FedAvg": "run_a", "FedGloSS": "run_b", "FedSAM": "tilted"}
SHAPES = {"run_a": (1.0, 1.0), "run_b": (1.0, -1.0), "tilted": (2.0, 1.0)}


def make_three() -> dict[str, list[Run]]:
    methods = {"FedAvg": "fedavg", "FedGloSS": "fedgloss", "FedSAM": "fedsam"}
    return {label: [make_run(name, methods[label], studies=())] for label, name in NAMES.items()}


def test_the_order_of_series_decides_which_surface_is_solid() -> None:
    answer = surface.stored(list(SHAPES), shapes=SHAPES, axes="shared")
    three = make_three()
    for order in (("FedAvg", "FedGloSS"), ("FedGloSS", "FedAvg", "FedSAM")):
        drawn = draw("surface", {label: three[label] for label in order}, answer=answer)
        axes = drawn.canvas.axes[0]
        solid = axes.collections[0]
        assert solid.get_gid() == f"runs:{NAMES[order[0]]}"
        assert {one.get_gid() for one in axes.collections[1:]} == {f"runs:{NAMES[label]}" for label in order[1:]}
        assert list_legend(drawn) == [f"{label} (net)" for label in order[1:]]
        assert axes.get_title() == f"title\nsolid: {order[0]}"
        losses = [row["loss"] for row in drawn.rows if row["series"] == "FedGloSS"]
        np.testing.assert_allclose(losses, surface.loss_of("run_b", SHAPES).ravel())


def test_panels_share_heights_unless_they_name_another_scale() -> None:
    answer = surface.stored(list(SHAPES), shapes=SHAPES)
    panels = [Panel("surface", (Entry(label),), label) for label in ("FedAvg", "FedSAM")]
    drawn = draw_panels(panels, make_three(), answer)
    assert len({axes.get_zlim() for axes in drawn.canvas.axes[:2]}) == 1
    panels[1] = Panel("surface", (Entry("FedSAM"),), "own", options={"scale": "own"})
    apart = draw_panels(panels, make_three(), answer)
    assert len({axes.get_zlim() for axes in apart.canvas.axes[:2]}) == 2


def test_surfaces_of_other_ranges_are_not_laid_over_each_other() -> None:
    far = surface.stored(["run_b"])
    far = surface.Answer(far.study, far.question, far.settings, far.provenance, far.data.assign_coords(x=3 * surface.X))
    near = {"FedAvg": [make_run("run_a")], "FedGloSS": [make_run("run_b", "fedgloss", answers={"surface": far})]}
    drawn = draw("surface", near)
    assert drawn.rows == []
    assert "another range" in drawn.canvas.axes[0].texts[0].get_text()


def test_a_client_is_chosen_by_its_place_and_named_by_its_class() -> None:
    answer = surface.stored(["run_a", "run_b"], shapes=SHAPES)
    series = {"FedAvg": make_three()["FedAvg"], "FedGloSS": make_three()["FedGloSS"]}
    drawn = draw("local_surfaces", series, answer=answer, classes=("cat", "dog", "bird"))
    assert drawn.canvas.axes[0].get_title() == "title\ncat"
    assert list_legend(drawn) == ["local loss (solid)", "FedAvg: global loss", "FedGloSS: global loss (net)"]
    base = surface.loss_of("run_a", SHAPES)
    own, wide, net = (
        [row["loss"] for row in drawn.rows if (row["series"], row["data"]) == which]
        for which in (("FedAvg", "own"), ("FedAvg", "everyone"), ("FedGloSS", "everyone"))
    )
    np.testing.assert_allclose(own, 0.01 * base.ravel())
    np.testing.assert_allclose(wide, base.ravel())
    np.testing.assert_allclose(net, surface.loss_of("run_b", SHAPES).ravel())
    second = draw("local_surfaces", {"FedAvg": series["FedAvg"]}, answer=answer, client=1)
    assert {row["client"] for row in second.rows} == {1}
    assert draw("local_surfaces", {"FedAvg": series["FedAvg"]}, answer=answer, client=7).rows == []


def test_clients_without_a_class_of_their_own_keep_their_number() -> None:
    run = make_run("a")
    assert name_client(run, 0) == "class 0"
    assert name_client(run, 1) == "client 1"  # half and half
    assert name_client(run, 2, ("a", "b", "c")) == "c"
    assert name_client(run, 99) == "client 99"


def test_eigenvalues_are_written_into_the_plane_of_eigenvectors() -> None:
    run = make_run("a", answers={"surface": make_eigen("a")})
    drawn = draw("eigen_surface", {"FedAvg": [run]})
    largest, fifth = curvature.VALUES[-1, [0, 4]]
    (text,) = drawn.canvas.axes[0].texts
    assert text.get_text() == f"$\\lambda_1$ = {largest:.3g}\n$\\lambda_1/\\lambda_5$ = {largest / fifth:.2f}"
    assert {row["lambda_1"] for row in drawn.rows} == {largest}
    random = draw("eigen_surface", {"FedAvg": [make_run("a")]})
    assert "not eigenvectors" in random.canvas.axes[0].texts[0].get_text()


def test_models_of_a_plane_have_the_printed_names_of_their_series() -> None:
    names = {"alpha = 0": "x", "alpha = 0.5": "y", "alpha = 1k": "z"}
    series = {label: [make_run(name, studies=())] for label, name in names.items()}
    drawn = draw("plane", series, answer=plane.stored(list(names.values()), models="runs"), split="test")
    axes = drawn.canvas.axes[0]
    assert [text.get_text() for text in axes.texts] == list(names)
    marked = [row for row in drawn.rows if row["model"]]
    assert [row["value"] for row in marked] == pytest.approx([4, 14, 8])
    assert [row["series"] for row in marked] == list(names)
    assert "test error (%), n = 40" in drawn.caption
    assert axes.get_aspect() == 1


def test_a_plane_through_participants_names_them_and_a_narrow_one_is_stretched() -> None:
    run = make_run("x", answers={"plane": plane.stored(["x"])})
    drawn = draw("plane", {"FedAvg": [run]})
    texts = [text.get_text() for text in drawn.canvas.axes[0].texts]
    assert texts == ["class 0", "class 2", "client 5", "global model"]
    flat = make_run("x", answers={"plane": plane.stored(["x"], height=0.1)})
    stretched = draw("plane", {"FedAvg": [flat]})
    assert stretched.canvas.axes[0].get_aspect() == "auto"
    assert "different scales" in stretched.caption


def test_the_own_loss_of_the_first_participant_is_drawn_with_its_lowest_point() -> None:
    answer = plane.stored(["x"])
    data = answer.data.assign_coords(split=["own", "test"])
    run = make_run("x", answers={"plane": replace(answer, data=data)})
    drawn = draw("plane", {"FedAvg": [run]}, split="own", lowest=True)
    (cross,) = [line for line in drawn.canvas.axes[0].get_lines() if line.get_marker() == "X"]
    assert cross.get_xydata().tolist() == [[plane.X[0], plane.Y[1]]]  # beside the cell that is missing
    assert "own data: class 0, n = 100" in drawn.caption
    assert "cross: the lowest point" in drawn.caption


def test_maps_have_all_clients_and_one_scale() -> None:
    series = {"FedAvg": [make_run("a")], "FedSAM": [make_run("b", "fedsam", scale=3.0)]}
    drawn = draw_panels([Panel("heat", (Entry(label),), label) for label in series], series)
    left, right = drawn.canvas.axes[:2]
    assert left.images[0].get_clim() == right.images[0].get_clim()
    cells = np.full((4, 2), np.nan)
    cells[3, 1], cells[1, 1] = 2.0, 3.0  # client 0 of round 5 took part, but its number is not known
    kept = [row for row in drawn.rows if row["series"] == "FedAvg"]
    found = {(row["client"], row["round"]): row["value"] for row in kept}
    assert {key: value for key, value in found.items() if np.isfinite(value)} == {(3, 10): 2.0, (1, 10): 3.0}
    assert sorted({client for client, _ in found}) == list(range(len(COUNTS)))
    shown = np.ma.filled(left.images[0].get_array(), np.nan)
    assert np.isfinite(shown).sum() == 2
    assert local_global.ROUNDS[-1] == 10
    assert left.patch.get_hatch()


def test_norms_of_outputs_are_a_map_too() -> None:
    drawn = draw("heat", {"FedAvg": [make_run("a")]}, what="output_norm")
    found = {(row["client"], row["round"]): row["value"] for row in drawn.rows if np.isfinite(row["value"])}
    assert found == {(0, 0): 1.0, (3, 0): 2.0, (0, 5): 6.0, (3, 5): 3.0, (0, 10): 4.0}


def test_the_line_between_two_models_goes_from_the_first_series_to_the_second() -> None:
    answer = interpolation.stored([("run-run", ("a", 10, -1), ("b", 10, -1))])
    series = {"Naive": [make_run("a")], "FedGloSS": [make_run("b", "fedgloss")]}
    drawn = draw("interpolation", series, answer=answer)
    train, test = [line for line in drawn.canvas.axes[0].get_lines() if len(line.get_xdata()) > 2]
    np.testing.assert_allclose(train.get_xydata(), np.stack([interpolation.X, 1 + interpolation.X**2], axis=1))
    assert (train.get_linestyle(), test.get_linestyle()) == ("-", "--")
    assert [text.get_text() for text in drawn.canvas.axes[0].texts] == ["Naive", "FedGloSS"]
    assert list_legend(drawn) == ["training loss", "test loss"]
    assert "barrier of the train loss above the chord, Naive to FedGloSS: 0.25" in drawn.caption
    turned = draw("interpolation", dict(reversed(series.items())), answer=answer)
    back = next(line for line in turned.canvas.axes[0].get_lines() if len(line.get_xdata()) > 2)
    np.testing.assert_allclose(back.get_xydata(), np.stack([interpolation.X, 1 + (1 - interpolation.X) ** 2], axis=1))


def test_features_are_drawn_of_the_round_that_is_asked_for() -> None:
    run = make_run("a", "fedsam")
    last = draw("features", {"FedSAM": [run]}, classes=("zero", "one"))
    assert {row["round"] for row in last.rows} == {10}
    np.testing.assert_allclose([[row["x"], row["y"]] for row in last.rows], features.POINTS)
    assert [text.get_text() for text in last.canvas.axes[0].texts] == ["zero", "one", "7"]
    early = draw("features", {"FedSAM": [run]}, at=0.5)
    assert {row["round"] for row in early.rows} == {5}
    assert early.canvas.axes[0].get_xlabel() == "round 5"


def test_a_partition_shows_all_clients_and_their_mean_number_of_classes() -> None:
    drawn = draw("partition", {"alpha = 0": [make_run("a")]})
    axes = drawn.canvas.axes[0]
    held = np.count_nonzero(COUNTS, axis=1).mean()
    assert axes.get_title() == f"title\n{held:.3g} classes per client"
    cells = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert np.isfinite(cells).T.tolist() == (COUNTS > 0).tolist()
    assert {(row["client"], row["class"]): row["examples"] for row in drawn.rows} == {
        place: count for place, count in np.ndenumerate(COUNTS) if count
    }
    few = draw("partition", {"alpha = 0": [make_run("a")]}, clients=2)
    assert "the first 2 of 4 clients" in few.caption
