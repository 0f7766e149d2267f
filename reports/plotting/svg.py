"""Adapt matplotlib's SVG to a page: unique ids, colours that follow light and dark mode, runs that can be hidden.

Greys become the page's variables --g0 (black) to --g10 (white), which the page turns round in the dark. Inside images
and maps they stay what they are (class "fixed"): a black number on a yellow cell has to remain black.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from landscape.plotting.style import MARK

GREY = re.compile(r"#([0-9a-f]{2})\1\1(?![0-9a-f])", re.IGNORECASE)
NUMBER = re.compile(r"(-?\d+\.\d{2})\d+")
FONTS = re.compile(r"(font(?:-family)?:[^;]*?)'DejaVu Sans'[^;\"]*")
AXES = ("matplotlib.axis", "axis3d", "pane3d")  # a group that holds one of these is a system of axes
SPACE = ("axis3d", "pane3d")  # of 3-D axes, whose text stands on the page; what they show is a group without a frame
FRAME = ("matplotlib.axis", "axis3d", "pane3d", "grid3d", "patch", "legend")  # of it; all else shows data
MAPS = ("QuadMesh", "QuadContourSet", "TriContourSet", "PolyQuadMesh")
SHADES = 12  # a group with so many different fills is a map too, whatever it is called


def inline_svg(text: str, prefix: str, label: str) -> str:
    """An <svg> element for a page in which many others lie; `prefix` makes its ids unique there.

    label: what it shows, for those who do not see it.
    """
    root = ElementTree.fromstring(text)
    _strip(root)
    for axes in [one for one in root.iter("g") if _is_axes(one)]:
        _fix_colours(axes)
    _gather_definitions(root)
    for element in root.iter():
        _rename(element, prefix)
        _rewrite(element)
    for name in ("width", "height", "version", "xmlns"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": label}
    return ElementTree.tostring(root, encoding="unicode")


def _strip(root: Element) -> None:
    """Take away namespaces, notes, styles that would reach the whole page, and white space between elements."""
    for parent in root.iter():
        parent.tag = parent.tag.rpartition("}")[2]
        parent.attrib = {name.rpartition("}")[2]: value for name, value in parent.attrib.items()}
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        if element.tag not in ("text", "tspan"):
            element.text = None
        if element.tag != "tspan":
            element.tail = None


def _is_axes(group: Element) -> bool:
    return group.get("id", "").startswith("axes_") or any(child.get("id", "").startswith(AXES) for child in group)


def _fix_colours(axes: Element) -> None:
    """Where axes hold an image or a map, everything drawn inside them keeps its colours in the dark."""
    if not any(_is_map(child) for child in axes):
        return
    box, space = _box(axes), any(child.get("id", "").startswith(SPACE) for child in axes)
    for child in axes:
        text = next(child.iter("text"), None)
        outside = text is not None and (space or box is None or not _inside(child, box))
        if not child.get("id", "").startswith(FRAME) and not outside:
            child.set("class", "fixed")


def _is_map(group: Element) -> bool:
    if group.get("id", "").startswith(FRAME):
        return False
    if group.tag == "image" or group.get("id", "").startswith(MAPS) or next(group.iter("image"), None) is not None:
        return True
    fills = (re.search(r"fill: (#\w+)", one.get("style", "")) for one in group.iter())
    return len({found[1] for found in fills if found}) >= SHADES


def _box(axes: Element) -> tuple[float, float, float, float] | None:
    """Left, right, top and bottom of the axes' background."""
    for child in axes:
        if child.get("id", "").startswith("patch"):
            numbers = [float(one) for path in child.iter("path") for one in re.findall(r"-?[\d.]+", path.get("d", ""))]
            if numbers:
                return min(numbers[::2]), max(numbers[::2]), min(numbers[1::2]), max(numbers[1::2])
    return None


def _inside(group: Element, box: tuple[float, float, float, float]) -> bool:
    for element in group.iter():
        moved = re.search(r"translate\((-?[\d.]+)[ ,]+(-?[\d.]+)", element.get("transform", ""))
        place = moved.groups() if moved else (element.get("x"), element.get("y"))
        if place[0] is not None and place[1] is not None:
            x, y = float(place[0]), float(place[1])
            return box[0] <= x <= box[1] and box[2] <= y <= box[3]
    return False


def _gather_definitions(root: Element) -> None:
    """Move what is shared to the top: it must not vanish with the group that happened to need it first."""
    found = Element("defs")
    for parent, child in list(_pairs(root)):
        if child.tag == "defs":
            parent.remove(child)
            found.extend(child)
    root.insert(0, found)


def _pairs(root: Element) -> Iterator[tuple[Element, Element]]:
    for parent in root.iter():
        for child in parent:
            yield parent, child


def _rename(element: Element, prefix: str) -> None:
    name = element.attrib.pop("id", None)
    if name is not None and name.startswith(MARK):
        element.set("data-runs", name.removeprefix(MARK))
    elif name is not None and element.tag != "g":  # groups are never referred to
        element.set("id", f"{prefix}-{name}")
    for key, value in element.attrib.items():
        if key == "href" and value.startswith("#"):
            element.set(key, f"#{prefix}-{value[1:]}")
        elif "url(#" in value:
            element.set(key, value.replace("url(#", f"url(#{prefix}-"))


def _rewrite(element: Element) -> None:
    """Colours of the page, shorter numbers, one family of fonts (Verdana is as wide as DejaVu Sans)."""
    for key in ("d", "x", "y"):
        if key in element.attrib:
            element.set(key, NUMBER.sub(r"\1", " ".join(element.attrib[key].split())))
    for key in ("style", "fill", "stroke"):
        if key in element.attrib:
            value = GREY.sub(lambda found: f"var(--g{round(int(found[1], 16) / 25.5)})", element.attrib[key])
            element.set(key, FONTS.sub(r"\1'DejaVu Sans', Verdana, sans-serif", value))
