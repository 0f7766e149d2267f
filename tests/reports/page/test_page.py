"""The page by its structure: nothing from outside, everything said that should be said."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from rich.console import Console

from reports.command import report
from reports.figure_type import TOPICS
from tests.reports.conftest import make_run
from tests.reports.sample import LINES, SURFACE


class Page(HTMLParser):
    """Elements with their attributes, in order, and the text of each kind of element."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        found = [attributes for name, attributes in self.elements if name == tag]
        return [one for one in found if all(value in one.get(key, "").split() for key, value in wanted.items())]


def write(paths: list[Path], **options: object) -> tuple[Page, Path]:
    path = report(paths, console=Console(quiet=True), formats=["svg"], strict=True, **options)  # type: ignore[arg-type]
    return Page(path.read_text(encoding="utf-8")), path


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        make_run(folder / "run_a", "fedavg"),
        make_run(folder / "run_b", "fedavg", seed=1, scale=0.5),
        make_run(folder / "run_c", "fedasam", swa=True, scale=0.8),
    ]


@pytest.fixture(scope="module")
def lines(paths: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, Path]:
    """The page with the figure that stands still."""
    return write(paths, figures=[LINES], out=tmp_path_factory.mktemp("lines"))


@pytest.fixture(scope="module")
def both(paths: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, Path]:
    """The page with both figures, not in the order of their questions."""
    return write(paths, figures=[SURFACE, LINES], out=tmp_path_factory.mktemp("both"))


def test_nothing_comes_from_outside(both: tuple[Page, Path]) -> None:
    page, path = both
    policy = next(one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    links = [one[key] for _, one in page.elements for key in ("href", "src", "action") if key in one]
    for link in links:
        assert link.startswith(("#", "data:", "figures/", "tables/")), link
        if link.startswith(("figures/", "tables/")):
            assert (path.parent / link).exists()


def test_every_name_is_there_once_and_every_link_leads_to_one(both: tuple[Page, Path]) -> None:
    page, _ = both
    ids = [one["id"] for _, one in page.elements if "id" in one]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        if link["href"].startswith("#"):
            assert link["href"][1:] in ids


def test_figures_lie_under_their_questions_with_how_to_read_them(both: tuple[Page, Path]) -> None:
    page, path = both
    questions = [title for title in page.texts["h2"] if title in TOPICS.values()]
    assert questions == ["How good is it?", "How flat is it?", "Do clients agree?"]  # the last has a table alone
    assert page.texts["h4"].index("Lines of runs") < page.texts["h4"].index("A bowl")
    readings = [text for text in page.texts["p"] if text.startswith("How to read this.")]
    assert any(text.endswith("Up is up.") for text in readings)
    assert page.texts["figcaption"] == ["lines; n = 2 < 3", "surface"]
    picture = page.all("svg", role="img")[0]
    assert picture["aria-label"] == "Lines of runs. lines; n = 2 < 3"
    numbers = next(link for link in page.all("a") if link.get("download") == "lines.csv")
    table = unquote(numbers["href"].partition(",")[2])
    assert table == (path.parent / "figures" / "digits-Dirichlet-0.5" / "lines.csv").read_text()


def test_the_head_says_what_was_compared_and_the_numbers_that_matter(
    lines: tuple[Page, Path], paths: list[Path], tmp_path: Path
) -> None:
    page, _ = lines
    assert page.texts["h1"] == ["How flat is the minimum? 3 runs on digits"]
    assert (
        "3 runs of FedAvg and FedASAM + SWA on digits, dealt out to clients by Dirichlet α = 0.5; "
        "seeds 0 and 1; 3 rounds of training." in page.texts["p"]
    )
    cells = page.texts["td"]
    assert "15.0 ± 7.1" in cells  # accuracy of fedavg: 20 % and 10 %
    assert "22.5 ± 10.6" in cells  # its largest eigenvalue: 30 and 15
    assert "90.0" in cells
    assert "90.0" not in page.texts["b"]  # of the SWA model, the best, but of one seed
    plain, _ = write(paths, figures=[LINES], bold="plain", out=tmp_path)
    assert "90.0" in plain.texts["b"]
    rows = [one["data-runs"] for one in page.all("tr") if "data-runs" in one]
    assert rows[:2] == ["run_a run_b", "run_c"]


def test_every_run_has_a_switch(lines: tuple[Page, Path]) -> None:
    page, _ = lines
    assert [one["data-key"] for one in page.all("tr") if "data-key" in one] == ["run_a", "run_b", "run_c"]
    boxes = [one["aria-label"] for one in page.all("input") if one.get("aria-label", "").startswith("Show")]
    assert boxes == ["Show run_a", "Show run_b", "Show run_c"]


def test_data_sets_get_sections_of_their_own(tmp_path: Path) -> None:
    page, _ = write([make_run(tmp_path / name, "fedavg", data=name) for name in ("digits", "cifar10")], figures=[LINES])
    assert page.texts["h3"] == ["digits, Dirichlet α = 0.5", "CIFAR-10, Dirichlet α = 0.5"]
    parts = [one["data-runs"] for one in page.all("section", **{"class": "part"})]
    assert parts == ["digits", "cifar10"]


def test_odd_names_of_runs_do_no_harm(tmp_path: Path) -> None:
    page, path = write([make_run(tmp_path / "a <b> & 'c'", "fedavg"), make_run(tmp_path / "d", "x")], figures=[SURFACE])
    assert "a <b> & 'c'" in page.texts["code"]
    assert not page.all("b", **{"class": "never"})
    keys = [one["data-key"] for one in page.all("tr") if "data-key" in one]
    assert keys == ["a%20%3Cb%3E%20%26%20%27c%27", "d"]
    (data,) = re.findall(r'type="application/json">(.*?)</script>', path.read_text(), re.DOTALL)
    assert "<" not in data  # or a name could end the script
    assert json.loads(data)["data"][0]["meta"] == {"run": "a <b> & 'c'"}


def test_the_library_for_turning_is_there_only_when_something_turns(
    lines: tuple[Page, Path], both: tuple[Page, Path]
) -> None:
    still, path = lines
    assert not [one for one in still.all("script") if one.get("id") == "plotly"]
    assert path.stat().st_size < 300_000
    turning, _ = both
    assert [one for one in turning.all("script") if one.get("id") == "plotly"]
    assert "application/json" in [one.get("type") for one in turning.all("script")]


def test_provenance_names_settings_seed_and_commands(lines: tuple[Page, Path]) -> None:
    page, _ = lines
    text = "\n".join(page.texts["pre"])
    assert 'name = "fedasam"' in text
    (command,) = (line for line in text.splitlines() if line.startswith("landscape analyze run_a --study curvature "))
    assert "--set curvature.split=train" in command
    assert page.texts["summary"] == ["run_a", "run_b", "run_c"]
