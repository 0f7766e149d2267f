"""What stands beside the code (version, bounds of dependencies, hooks), and the limits that all code keeps."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import landscape

ROOT = Path(__file__).parent.parent
FILES = [
    path for name in ("landscape", "training", "analysis", "reports") for path in sorted((ROOT / name).rglob("*.py"))
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEPENDENCIES = [Requirement(line) for line in PROJECT["dependencies"]]


def read_pins(name: str) -> dict[str, Version]:
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in (line.split("==") for line in lines)}


def test_the_version_is_the_same_wherever_it_is_asked_for():
    command = [sys.executable, "-c", "from landscape.cli import main; main()", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.strip()
    assert printed == landscape.__version__ == PROJECT["version"]


def test_a_tagged_commit_has_the_version_of_its_tag_and_a_dated_section_in_the_changelog():
    tags = subprocess.run(
        ["git", "tag", "--points-at", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    releases = [tag for tag in tags if tag.startswith("v")]
    if not releases:
        pytest.skip("not a release")
    assert releases == [f"v{PROJECT['version']}"]
    heading = rf"^## \[?{re.escape(PROJECT['version'])}\]? - \d{{4}}-\d\d-\d\d$"
    assert re.search(heading, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("dependency", DEPENDENCIES, ids=lambda one: one.name)
def test_lower_bounds_are_the_versions_that_make_lowest_installs(dependency):
    (bound,) = dependency.specifier
    assert bound.operator == ">="
    assert read_pins("constraints-lowest.txt")[canonicalize_name(dependency.name)] == Version(bound.version)


@pytest.mark.parametrize(
    ("name", "extras"),
    [("constraints.txt", ["cluster", "docs", "huggingface", "test", "tracking"]), ("constraints-lowest.txt", ["test"])],
)
def test_everything_that_make_installs_is_pinned(name, extras):
    pins = read_pins(name)
    assert f"EXTRAS := {','.join(extras)}\n" in (ROOT / "Makefile").read_text()
    more = [Requirement(line) for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    for wanted in [*DEPENDENCIES, *more]:
        assert pins[canonicalize_name(wanted.name)] in wanted.specifier, wanted.name


def test_hooks_run_the_checks_of_make_lint():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    checks = re.findall(r"\$\(BIN\)/(ruff \w+|mypy)", recipe[1])
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"  # nothing to download, and no second list of versions
    assert [hook["entry"] for hook in repository["hooks"]] == [f".venv/bin/{check}" for check in checks]


def test_make_lowest_names_tests_that_exist():
    words = re.search(r"^LOWEST :=((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    for path in words.replace("\\", " ").split():
        assert (ROOT / path).exists(), path


def test_no_function_is_longer_than_60_lines():
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [
        (path, node) for path in FILES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)
    ]
    assert len(functions) > 1000
    lengths = {f"{path.relative_to(ROOT)}:{one.name}": one.end_lineno - one.lineno + 1 for path, one in functions}
    assert {name: length for name, length in lengths.items() if length > 60} == {}


def test_no_folder_holds_more_than_16_files_of_code():
    sizes = Counter(str(path.parent.relative_to(ROOT)) for path in FILES)
    del sizes["reports/figures"]  # one file per figure
    assert {folder: size for folder, size in sizes.items() if size > 16} == {}


def test_fewer_than_200_types_are_any():
    """Every occurrence of the name counts, imports too."""
    count = 0
    for path in FILES:
        with path.open("rb") as source:
            count += sum(token.string == "Any" for token in tokenize.tokenize(source.readline))
    assert 0 < count < 200
