"""A figure of panels: looks, titles, one legend, notes, and mistakes of whoever writes a layout."""

from __future__ import annotations

import pytest

from reports.artefact import Entry, Panel
from reports.inputs.runs import Run
from reports.palette import FIXED, OKABE_ITO
from tests.reports.panels.made_up import diverge, draw, draw_panels, list_legend, make_run
from tests.reports.results import plane

SERIES: dict[str, list[Run]] = {
    "FedAvg": [make_run("a"), make_run("b", seed=1, scale=0.5)],
    "FedGloSS": [make_run("c", "fedgloss")],
    "FedAvg E=2": [make_run("d", scale=0.8)],
    "FedDyn": [],
}


def make_panel(*names: str, title: str = "", kind: str = "curves", **options: object) -> Panel:
    return Panel(kind, tuple(Entry(name) for name in names), title, options=options)


def test_one_legend_holds_every_name_once() -> None:
    drawn = draw_panels([make_panel("FedAvg", "FedGloSS", title="a"), make_panel("FedGloSS", title="b")], SERIES)
    assert list_legend(drawn) == ["FedAvg", "FedGloSS"]
    assert [axes.get_title() for axes in drawn.canvas.axes] == ["a", "b"]


def test_a_method_keeps_its_colour_and_variants_differ_in_line_and_marker() -> None:
    drawn = draw_panels([make_panel("FedAvg", "FedAvg E=2", "FedGloSS")], SERIES)
    lines = {line.get_label(): line for line in drawn.canvas.axes[0].get_lines()}
    assert lines["FedAvg"].get_color() == OKABE_ITO[FIXED.index("fedavg")]
    assert lines["FedGloSS"].get_color() == OKABE_ITO[FIXED.index("fedgloss")]
    assert lines["FedAvg E=2"].get_linestyle() != lines["FedAvg"].get_linestyle()
    assert lines["FedAvg E=2"].get_marker() != lines["FedAvg"].get_marker()


def test_notes_name_what_is_not_final_and_in_which_panel() -> None:
    series = {**SERIES, "FedGloSS": [diverge(SERIES["FedGloSS"][0])]}
    series["FedAvg E=2"] = [make_run("d", state="unfinished")]
    panels = [make_panel(*series, title="left"), make_panel("FedAvg", title="right")]
    notes = [text for text in list_legend(draw_panels(panels, series)) if ":" in text]
    assert notes == [
        "FedGloSS: diverged in round 3 [left]",
        "FedAvg E=2: unfinished: 2 of 10 rounds [left]",
        "FedDyn: not run [left]",
    ]


def test_series_that_were_not_run_share_one_note_that_fits_the_figure() -> None:
    names = [f"Method {number}" for number in range(20)]
    panels = [make_panel("FedAvg", *names, title="left"), make_panel("FedAvg", title="right")]
    full = draw_panels([make_panel("FedAvg", title=title) for title in ("left", "right")], SERIES).canvas
    drawn = draw_panels(panels, {**SERIES, **{name: [] for name in names}}).canvas
    (note,) = [text for text in drawn.legends[-1].get_texts() if "not run" in text.get_text()]
    assert " ".join(note.get_text().split()) == f"{', '.join(names)}: not run [left]"
    drawn.draw_without_rendering()
    full.draw_without_rendering()
    assert note.get_window_extent().x1 <= drawn.bbox.x1
    heights = [figure.axes[0].get_window_extent().height for figure in (full, drawn)]
    assert heights[1] > 0.9 * heights[0]  # the figure grew: its panels keep their height


def test_labels_that_panels_share_are_written_once() -> None:
    drawn = draw_panels([make_panel("FedAvg") for _ in range(4)], SERIES)
    assert [bool(axes.get_xlabel()) for axes in drawn.canvas.axes] == [False, False, True, True]
    assert [bool(axes.get_ylabel()) for axes in drawn.canvas.axes] == [True, False, True, False]


def test_an_empty_panel_leaves_the_label_of_the_one_above() -> None:
    drawn = draw_panels([make_panel("FedAvg"), make_panel("FedDyn")], SERIES, across=1)
    assert drawn.canvas.axes[0].get_xlabel() == "communication round"


def test_unknown_kinds_and_options_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="did you mean 'curves'"):
        draw("curvs", {"FedAvg": []})
    with pytest.raises(ValueError, match=r"option of a panel of kind curves: unknown 'metrik'; did you mean 'metric'"):
        draw("curves", {"FedAvg": []}, metrik="accuracy")


def test_a_kind_that_shows_one_series_refuses_two() -> None:
    with pytest.raises(ValueError, match="of kind heat: expected one series, got 2"):
        draw("heat", {"FedAvg": [], "FedSAM": []})


def test_variants_of_one_method_have_colours_of_their_own() -> None:
    series = {name: [make_run(name, "fedsol", scale=scale)] for name, scale in {"ρ = 0.5": 0.5, "ρ = 1": 1.0}.items()}
    lines = {line.get_label(): line.get_color() for line in draw("curves", series).canvas.axes[0].get_lines()}
    assert [lines[name] for name in series] == list(OKABE_ITO[:2])
    among = {**series, "FedAvg": [make_run("a")]}  # beside another method they are shades of its colour
    lines = {line.get_label(): line.get_color() for line in draw("curves", among).canvas.axes[0].get_lines()}
    assert lines["ρ = 0.5"] == OKABE_ITO[FIXED.index("fedsol")]


def test_flat_planes_leave_no_empty_room() -> None:
    """A plane twice as wide as high, in two panels: the figure is hardly higher than what is drawn."""
    answer = plane.stored(["a"], height=0.5)
    panels = [Panel("plane", (Entry("FedAvg"),), title) for title in ("left", "right")]
    drawn = draw_panels(panels, {"FedAvg": [make_run("a")]}, answer)
    drawn.canvas.draw_without_rendering()
    assert drawn.canvas.get_figheight() - drawn.canvas.get_tightbbox().height < 0.3
