"""The wheel: built from a copy of the tree, it holds every file that the code opens, and nothing of the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("landscape", "training", "analysis", "reports")
BUILD = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
LEFT_OUT = {"reports/gallery"}  # pictures of the README


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built where no earlier build left anything."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder)
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        path.relative_to(ROOT).as_posix()
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wanted = {name for name in wanted if not any(name.startswith(f"{folder}/") for folder in LEFT_OUT)}
    assert "training/templates/method.py.txt" in wanted
    assert held & wanted == wanted
    assert all(name.split("/")[0] in PACKAGES or ".dist-info/" in name for name in held)


def test_the_wheel_is_described_as_the_project(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    archive = zipfile.ZipFile(wheel)
    about = archive.read(f"fl_landscape-{project['version']}.dist-info/METADATA").decode()
    assert f"Version: {project['version']}\n" in about
    for extra in project["optional-dependencies"]:
        assert f"Provides-Extra: {extra}\n" in about
    commands = archive.read(f"fl_landscape-{project['version']}.dist-info/entry_points.txt").decode()
    assert "landscape = landscape.cli:main" in commands


def test_what_is_cited_is_the_version_of_the_project() -> None:
    import yaml

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
