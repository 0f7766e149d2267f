"""Imports point one way: between packages (landscape <- training <- analysis <- reports) and between their rooms."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
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
        if path.parent == ROOT / "landscape" / "cli":
            continue
        ahead = imported(path) & set(ORDER) - allowed
        assert not ahead, f"{path.relative_to(ROOT)} imports {sorted(ahead)}"


def walk_rooms(package: Path) -> dict[str, dict[str, str]]:
    """room -> the other rooms of the package that it imports, each with one import that shows it.

    A room is a sub-package, or a module beside them. Imports inside functions and for type checkers count too.
    """
    rooms: dict[str, dict[str, str]] = {}
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        arrows = rooms.setdefault(room, {})
        for node in ast.walk(ast.parse(path.read_text())):
            names: Iterable[str] = ()
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative imports are not walked"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                parts = name.split(".")
                if parts[0] == package.name and len(parts) > 1 and parts[1] != room:
                    arrows.setdefault(parts[1], f"{path.relative_to(package.parent)}:{node.lineno}")
    return rooms


def find_cycle(rooms: Mapping[str, Mapping[str, str]]) -> str:
    """One cycle among rooms in words, or nothing."""
    try:
        TopologicalSorter(rooms).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]  # graphlib lists each room before one that imports it
        return ", ".join(f"{room} imports {other} ({rooms[room][other]})" for room, other in pairwise(circle))
    return ""


@pytest.mark.parametrize("package", ["landscape", "training", "analysis", "reports"])
def test_rooms_do_not_import_each_other_in_circles(package):
    rooms = walk_rooms(ROOT / package)
    rooms.pop("__init__")  # it offers the public names of all rooms
    assert len(rooms) > 5
    assert not find_cycle(rooms)


def test_a_circle_is_found(tmp_path):
    sources = {
        "house/__init__.py": "",
        "house/kitchen/__init__.py": "",
        "house/kitchen/stove.py": "def cook():\n    from house.garden import herbs\n",
        "house/garden.py": "from house import cellar\nherbs = 1\n",
        "house/cellar.py": "import house.kitchen.stove\n",
        "house/attic.py": "import house.garden\n",
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    rooms = walk_rooms(tmp_path / "house")
    found = find_cycle(rooms)
    assert "kitchen imports garden (house/kitchen/stove.py:2)" in found
    assert "garden imports cellar (house/garden.py:1)" in found
    assert "cellar imports kitchen (house/cellar.py:1)" in found
    assert "attic" not in found
    rooms["kitchen"].clear()
    assert not find_cycle(rooms)


def test_the_front_door_opens_the_other_rooms_only_inside_its_handlers():
    files = sorted((ROOT / "landscape" / "cli").glob("*.py"))
    assert len(files) > 3
    body = [node for path in files for node in ast.parse(path.read_text()).body]
    top = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    named = {alias.name for node in top for alias in node.names} | {getattr(node, "module", None) for node in top}
    assert not {str(name).partition(".")[0] for name in named} & set(ORDER[1:])


def test_every_library_that_is_imported_is_a_dependency():
    """Not one that happens to be installed because another needs it, or because the tests do."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.match(r"[\w-]+", line)[0].replace("-", "_") for line in project["dependencies"]}
    declared |= {
        "markupsafe",
        "mpl_toolkits",
        "PIL",
        "pydantic_core",
        "sklearn",
    }  # of jinja2, matplotlib, pillow, pydantic, scikit-learn
    declared |= {"IPython"}  # of the notebook that is running, if one is
    named = [line for extra in ("cluster", "tracking") for line in project["optional-dependencies"][extra]]
    extras = {re.match(r"\w+", line)[0] for line in named}  # mlflow-skinny is imported as mlflow
    assert extras == {"mlflow", "ray", "tensorboard", "wandb"}
    for path in (path for package in ORDER for path in sorted((ROOT / package).rglob("*.py"))):
        top = {ast.unparse(node) for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import)}
        assert not top & {f"import {name}" for name in extras}, f"{path}: extras are imported only when asked for"
        foreign = imported(path) - sys.stdlib_module_names - set(ORDER) - declared - extras
        assert not foreign, f"{path.relative_to(ROOT)} imports {sorted(foreign)}, which pyproject.toml does not name"
