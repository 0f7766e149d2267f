"""Every code block of the README and of the guide runs, as a reader would run it; every link leads somewhere."""

from __future__ import annotations

import ast
import glob
import itertools
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot
from typer.testing import CliRunner

from analysis.catalog import STUDIES
from landscape import cli
from reports.catalog import FIGURES
from training import config
from training.methods.catalog import ALGORITHMS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
ELSEWHERE = ("adopt.md", "cluster.md", "own_method.md", "tracking.md")  # tests of these subjects run what they show
GUIDE = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in ELSEWHERE]
matplotlib.use("Agg")


def read_blocks(path: Path) -> list[tuple[str, str]]:
    """The language and the text of every code block of a page; those that Sphinx reads are no code."""
    blocks = re.findall(r"^```(\S*)[^\n]*\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [(language, text) for language, text in blocks if not language.startswith("{")]


def read_commands(path: Path) -> list[str]:
    """Every line that a reader types into a shell, without its remark."""
    return [
        line.split("#")[0].strip() for kind, code in read_blocks(path) if kind == "sh" for line in code.splitlines()
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    pyplot.close("all")


def run(command: str) -> None:
    """Run one line, with patterns spelled out as a shell does."""
    words = [found for word in shlex.split(command) for found in (sorted(glob.glob(word)) or [word])]
    assert words[0] == "landscape"
    done = CliRunner().invoke(cli.app, words[1:])
    assert done.exit_code == 0, f"{command}: {done.output} {done.exception!r}"
    assert done.output


@pytest.mark.parametrize("page", [README, *GUIDE], ids=lambda page: page.stem)
def test_code_of_a_page_runs_from_top_to_bottom(page, folder):
    names: dict[str, object] = {}
    for language, code in read_blocks(page):
        if language == "python":
            exec(compile(code, page.name, "exec"), names)
        elif language == "toml":
            config.validate(tomllib.loads(code))  # a recipe, or tables of one
    for command in read_commands(page):
        if not command.startswith("make"):
            run(command)


def test_the_first_commands_are_those_that_the_design_promises():
    assert read_commands(README)[:2] == ["make demo", "make test"]
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_what_the_readme_counts_is_there():
    said = f"{len(ALGORITHMS)} methods, {len(STUDIES)} studies, {len(FIGURES)} figures"
    assert said in README.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [one for page in (README, *GUIDE) for one in read_commands(page) if "make" in one])
def test_make_lines_name_real_targets(command):
    subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("page", [README, *GUIDE], ids=lambda page: page.stem)
def test_only_known_languages_so_that_no_block_escapes(page):
    assert {language for language, _ in read_blocks(page)} <= {"python", "sh", "toml"}


PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]
BUILT = ("generated", "gallery")  # folders of docs that a build makes; it refuses a link there that leads nowhere


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_pictures_of_a_page_exist(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("https://", "http://", "#")) and target.partition("/")[0] not in BUILT:
            assert (page.parent / target.partition("#")[0]).exists(), target


def test_files_that_the_docs_name_exist():
    text = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    for path in re.findall(r"\]\(([\w/.]+)\)", text) + re.findall(
        r"`((?:landscape|tests|training|analysis|reports)/[\w/]+\.(?:py|toml))`", text
    ):
        assert (ROOT / path).exists(), path
    for table, path in [
        ("KINDS", "landscape/geometry/sharpness.py"),
        ("METHODS", "landscape/spectrum/trace.py"),
        ("CURVES", "landscape/geometry/curves.py"),
        ("CASES", "tests/landscape/cases.py"),
        ("ALGORITHMS", "training/methods/catalog.py"),
        ("PARTITIONS", "training/data/partition.py"),
        ("MODELS", "training/models/networks.py"),
        ("DATASETS", "training/data/datasets.py"),
        ("GROUPS", "tests/benchmarks/__main__.py"),
        ("MODULES", "analysis/catalog.py"),
        ("CORRUPTIONS", "training/data/corruptions/__init__.py"),
        ("FIGURES", "reports/catalog.py"),
        ("TABLES", "reports/tables/catalog.py"),
    ]:
        assert f"`{table}`" in text
        assert re.search(rf"^{table}\b", (ROOT / path).read_text(), re.MULTILINE)


WALKS = re.findall(r"^<!-- walk -->\n((?:- .*\n)+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)


def names_in(path: Path) -> set[str]:
    """Functions, classes and methods of a file, methods as Class.method."""
    tree = ast.parse(path.read_text())
    found = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return found


@pytest.mark.parametrize("walk", WALKS, ids=["round", "study", "figure", "artefact"])
def test_walks_visit_real_places_each_once(walk):
    hops = re.findall(r"^- `([\w/.]+):([\w.]+)`", walk, re.MULTILINE)
    assert len(hops) == len(walk.splitlines()) == len(set(hops))
    for path, name in hops:
        assert name in names_in(ROOT / path), f"{path}:{name}"
    visits = [path for path, _ in itertools.groupby(path for path, _ in hops)]
    assert len(visits) == len(set(visits)), "a walk comes back to a file that it has left"


def test_the_four_walks_are_there():
    assert len(WALKS) == 4
