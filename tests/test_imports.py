"""Imports point one way: landscape <- training <- analysis <- reports; only the front door looks ahead."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = ["landscape", "training", "analysis", "reports"]


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) if node.module}
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("package", ORDER)
def test_arrows(package):
    allowed = set(ORDER[: ORDER.index(package) + 1])
    for path in sorted((ROOT / package).rglob("*.py")):
        if path == ROOT / "landscape" / "cli.py":
            continue
        ahead = imported(path) & set(ORDER) - allowed
        assert not ahead, f"{path.relative_to(ROOT)} imports {sorted(ahead)}"


def test_the_front_door_opens_the_other_rooms_only_inside_its_handlers():
    tree = ast.parse((ROOT / "landscape" / "cli.py").read_text())
    top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    named = {alias.name for node in top for alias in node.names} | {getattr(node, "module", None) for node in top}
    assert not {str(name).partition(".")[0] for name in named} & set(ORDER[1:])


def test_every_library_that_is_imported_is_a_dependency():
    """Not one that happens to be installed because another needs it, or because the tests do."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.match(r"[\w-]+", line)[0].replace("-", "_") for line in project["dependencies"]}
    declared |= {
        "markupsafe",
        "mpl_toolkits",
        "pydantic_core",
        "sklearn",
    }  # of jinja2, matplotlib, pydantic, scikit-learn
    for path in (path for package in ORDER for path in sorted((ROOT / package).rglob("*.py"))):
        foreign = imported(path) - sys.stdlib_module_names - set(ORDER) - declared
        assert not foreign, f"{path.relative_to(ROOT)} imports {sorted(foreign)}, which pyproject.toml does not name"
