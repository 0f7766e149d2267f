"""The page in a real browser: it is quiet, stays at home, turns, hides, fits a phone and can be read in the dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from reports.command import report
from tests.reports.browser import ABSENT, Browser, available, browser
from tests.reports.conftest import make_run
from tests.reports.sample import LINES, SURFACE

pytestmark = pytest.mark.skipif(not available(), reason=ABSENT)
DRAWN = "return Boolean(document.querySelector('.space canvas') && document.querySelector('.space')._fullLayout)"
HINTS = ("GL Driver Message", "willReadFrequently")  # of the browser to plotly: how it could be faster
CAMERA = "const {x, y, z} = document.querySelector('.space')._fullLayout.scene.camera.eye; return [x, y, z]"
VISIBLE = "return document.querySelector('.space')._fullData.map(trace => trace.visible)"
# the line, its legend (mark and name), and the axes of a run
SEEN = "return [...document.querySelectorAll('.plate [data-runs=run_a]')].map(one => getComputedStyle(one).display)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    paths = [make_run(folder / "run_a", "fedavg"), make_run(folder / "run b", "fedsam")]
    return report(paths, folder / "out", console=Console(quiet=True), figures=[LINES, SURFACE], strict=True)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def window(started: Browser, page: Path) -> Browser:
    started.prefer("light")
    started.resize(1400, 900)
    started.open(page)
    return started


def show_surface(window: Browser) -> None:
    window.run("document.querySelector('.space').scrollIntoView()")
    window.wait(DRAWN)


def eye_moved(window: Browser, before: list[float]) -> list[float]:
    """Where the eye is once it is somewhere else."""
    window.wait(f"{CAMERA}.some((value, place) => Math.abs(value - {before}[place]) > 0.02)")
    return list(window.run(CAMERA))


def test_no_errors_and_no_request_leaves_the_page(window: Browser) -> None:
    show_surface(window)
    window.click(".theme")
    window.click("[data-none]")
    assert [line for line in window.errors() if not any(hint in line for hint in HINTS)] == []
    assert {address.partition(":")[0] for address in window.requests()} <= {"file", "data", "blob", "about", "chrome"}
    window.run("const image = new Image(); image.src = 'http://127.0.0.1:9/x.png'; document.body.append(image)")
    window.wait("return true")
    assert any("Content Security Policy" in line for line in window.errors())


def test_a_surface_is_drawn_when_it_is_near_and_turns(window: Browser) -> None:
    assert window.run("return typeof window.Plotly") == "undefined"
    show_surface(window)
    start = window.run(CAMERA)
    window.drag(".space", 120, 40)
    dragged = eye_moved(window, start)
    window.type(".space", "\ue012")  # arrow to the left
    turned = eye_moved(window, dragged)
    assert turned[2] == pytest.approx(dragged[2])  # around, not up
    window.click(".chips button")
    assert eye_moved(window, turned) == pytest.approx(start)


def traces_are(window: Browser, wanted: str) -> None:
    show_surface(window)  # a switch in the table of runs is far from it, and it was given up
    window.wait(f"return String((() => {{ {VISIBLE} }})()) === '{wanted}'")


def test_switches_hide_and_show_in_figures_tables_and_surfaces(window: Browser) -> None:
    traces_are(window, "true,true")
    assert window.run(SEEN) == 4 * ["inline"]
    window.click("tr[data-key='run_a'] input")
    assert window.run(SEEN) == 4 * ["none"]
    assert not window.run("return document.querySelector('.numbers tr[data-runs=run_a]').checkVisibility()")
    assert window.run("return document.querySelector('.tools output').textContent") == "1 of 2 shown"
    traces_are(window, "false,true")
    window.click(".methods input[data-method='run_a']")  # beside the figures, where it stays in view
    assert window.run(SEEN) == 4 * ["inline"]
    traces_are(window, "true,true")
    window.click(".chips label:last-of-type input")  # in this figure alone
    traces_are(window, "true,false")
    assert window.run("return document.querySelector('.tools output').textContent") == "2 of 2 shown"


def test_a_link_shows_the_same_view(window: Browser, page: Path) -> None:
    window.type(".filter input", "fedsam")
    assert window.run("return document.querySelector('tr[data-key=run_a]').checkVisibility()") is False
    window.click("[data-none]")  # of those that the filter found
    window.click(".toc a[href='#flat']")
    address = window.run("return location.hash")
    window.open(page, address)
    assert window.run("return document.querySelector('.tools output').textContent") == "1 of 2 shown"
    assert window.run("return document.querySelector('tr[data-key=\"run%20b\"] input').checked") is False
    assert window.run("return Math.abs(document.getElementById('flat').getBoundingClientRect().top)") < 60
    window.click("[data-all]")
    assert window.run("return location.hash") == "#flat"


def test_a_phone_can_show_it(window: Browser, page: Path) -> None:
    window.resize(390, 844)
    window.open(page)
    show_surface(window)
    assert window.run("return document.scrollingElement.scrollWidth") <= 390
    wide = window.run("const plate = document.querySelector('.plate'); return [plate.clientWidth, plate.scrollWidth]")
    assert wide[0] < 390 < wide[1]  # scrolls inside its card, letters stay legible
    assert window.run("return document.querySelector('.plate').tabIndex") == 0


CONTRAST = """
const light = (color) => {
  const parts = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
  const [r, g, b] = parts.map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const paper = light(getComputedStyle(document.querySelector('.card')).backgroundColor);
const ratio = (color) => (Math.max(light(color), paper) + 0.05) / (Math.min(light(color), paper) + 0.05);
const text = [...document.querySelectorAll('.plate text')].filter((one) => !one.closest('.fixed'));
return [paper, ...[...text.map((one) => getComputedStyle(one).fill),
  ...[...document.querySelectorAll('.card p, .card h4, figcaption')].map((one) => getComputedStyle(one).color),
].map(ratio)];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(window: Browser, page: Path, scheme: str) -> None:
    window.prefer(scheme)
    window.open(page)
    window.run("localStorage.clear()")
    window.open(page)
    paper, *ratios = window.run(CONTRAST)
    assert (paper > 0.5) == (scheme == "light")
    assert len(ratios) > 10
    assert min(ratios) > 4.5  # WCAG AA
    inside = window.run("return getComputedStyle(document.querySelector('.plate .fixed text')).fill")
    assert inside == "rgb(0, 0, 0)"
    window.click(".theme")
    assert (window.run(CONTRAST)[0] > 0.5) != (scheme == "light")
    window.run("localStorage.clear()")


def test_print_is_light_still_and_without_controls(window: Browser) -> None:
    show_surface(window)
    window.devtools("Emulation.setEmulatedMedia", media="print", features=[])
    shown = "return [...document.querySelectorAll(arguments[0])].filter(one => one.checkVisibility()).length"
    assert window.run(shown, ".control, .side, .turnable") == 0
    assert window.run(shown, ".plate > svg") == 2
    window.devtools("Emulation.setEmulatedMedia", media="", features=[])


def test_the_keyboard_reaches_everything(window: Browser) -> None:
    window.type("body", "\ue004")
    assert window.run("return document.activeElement.className") == "skip"
    window.run("document.activeElement.click()")
    assert window.run("return document.activeElement.id") == "content"


def test_large_tables_are_unpacked(window: Browser) -> None:
    window.run(
        "const stream = new Blob(['a,b']).stream().pipeThrough(new CompressionStream('gzip'));"
        "new Response(stream).arrayBuffer().then((buffer) => {"
        "  const link = document.querySelector('.files a');"
        "  link.dataset.packed = btoa(String.fromCharCode(...new Uint8Array(buffer)));"
        "  link.addEventListener('click', (event) => { if (link.href.startsWith('blob:')) {"
        "    event.preventDefault(); window.unpacked = link.href; } });"
        "  link.click(); })"
    )
    assert str(window.wait("return window.unpacked")).startswith("blob:")
