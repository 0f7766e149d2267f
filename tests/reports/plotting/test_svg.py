"""SVG for the page: names of its own, colours of the page, marks of runs."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from reports.figure_type import save
from reports.inputs.runs import Collection
from reports.plotting.svg import inline_svg
from tests.reports.sample import draw_lines


@pytest.fixture
def text(collection: Collection, tmp_path: Path) -> str:
    (drawn,) = draw_lines(collection.runs, collection)
    return save(drawn, tmp_path, "lines", ["svg"])[0].read_text()


def ids(root: Element) -> set[str]:
    return {element.attrib["id"] for element in root.iter() if "id" in element.attrib}


def test_names_are_unique_in_a_page_and_lead_somewhere(text: str) -> None:
    first, second = (ElementTree.fromstring(inline_svg(text, prefix, "x")) for prefix in ("one", "two"))
    assert ids(first)
    assert not ids(first) & ids(second)
    written = ElementTree.tostring(first, encoding="unicode")
    targets = set(re.findall(r"url\(#([^)]+)\)", written)) | set(re.findall(r'href="#([^"]+)"', written))
    assert targets
    assert targets <= ids(first)


def test_marks_name_runs_and_are_no_names(text: str) -> None:
    root = ElementTree.fromstring(inline_svg(text, "p", "x"))
    marked = [element.attrib["data-runs"] for element in root.iter() if "data-runs" in element.attrib]
    assert sorted(marked) == sorted(2 * ["run_a", "run_b", "run_c"])  # a line and axes of each
    assert not any("runs:" in name for name in ids(root))


def test_what_is_shared_does_not_vanish_with_the_first_that_uses_it(text: str) -> None:
    root = ElementTree.fromstring(inline_svg(text, "p", "x"))
    assert len(list(root.iter("defs"))) == 1
    assert root[0].tag == "defs"


def test_nothing_reaches_the_rest_of_the_page(text: str) -> None:
    written = inline_svg(text, "p", 'a "quoted" <label>')
    root = ElementTree.fromstring(written)
    assert not [element for element in root.iter() if element.tag in ("style", "metadata", "script")]
    assert root.get("aria-label") == 'a "quoted" <label>'
    assert "width" not in root.attrib
    assert "xmlns" not in written
    assert "http" not in written
    assert len(written) < 0.8 * len(text)


def test_greys_follow_the_page_but_not_inside_a_map(text: str) -> None:
    written = inline_svg(text, "p", "x")
    assert not re.search(r"#(?:000000|ffffff)", written)
    assert "var(--g0)" in written
    assert "var(--g10)" in written
    assert "#0072b2" in written.lower()  # colours stay
    root = ElementTree.fromstring(written)
    said = {
        (found.text or ""): "fixed" in group.get("class", "")
        for axes in root.iter("g")
        if axes.get("data-runs") == "run_a"
        for group in axes
        for found in group.iter("text")
    }
    assert said["inside"]
    assert not said["above"]
    assert not said["x"]


def test_the_title_of_a_surface_follows_the_page(tmp_path: Path) -> None:
    """The background of 3-D axes reaches behind their title, which would be black on black in the dark."""
    figure = Figure()
    axes = figure.add_subplot(projection="3d")
    x, y = np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 9))
    axes.plot_surface(x, y, x + 2 * y, cmap="viridis")
    axes.set_title("title", y=0.9)
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(tmp_path / "surface.svg")
    root = ElementTree.fromstring(inline_svg((tmp_path / "surface.svg").read_text(), "p", "x"))
    fixed = [group for group in root.iter("g") if group.get("class") == "fixed"]
    assert any(len(list(group.iter())) > 50 for group in fixed)  # the surface
    assert not any(element.text == "title" for group in fixed for element in group.iter("text"))
