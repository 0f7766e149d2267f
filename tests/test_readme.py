"""Every code block of the README runs, in order, as a reader would run it."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_python_blocks_run_one_after_the_other(capsys):
    names: dict[str, object] = {}
    for language, code in BLOCKS:
        if language == "python":
            exec(compile(code, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "CONVERGED" in printed
    assert "everyone" in printed


SHELL = [line.split("#")[0].strip() for kind, code in BLOCKS if kind == "sh" for line in code.splitlines()]


@pytest.mark.parametrize("command", [line for line in SHELL if line.startswith("make")])
def test_make_lines_name_real_targets(command):
    subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


def test_landscape_lines_run_one_after_the_other(tmp_path):
    commands = [line for line in SHELL if not line.startswith("make")]
    assert len(commands) == 17
    here = f'landscape() {{ "{sys.executable}" -c "from landscape.cli import main; main()" "$@"; }}\n'
    for command in commands:
        done = subprocess.run(["bash", "-c", here + command], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout


def test_only_known_languages_so_that_no_block_escapes():
    assert {language for language, _ in BLOCKS} == {"python", "sh"}


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
