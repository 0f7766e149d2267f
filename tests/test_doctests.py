"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

PACKAGES = ("landscape", "training", "analysis", "reports")


def find_modules(package: str) -> list[str]:
    """Every module of a package, by its full name."""
    home = importlib.import_module(package)
    return [package, *(found.name for found in pkgutil.walk_packages(home.__path__, f"{package}."))]


@pytest.mark.parametrize("name", [name for package in PACKAGES for name in find_modules(package)])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    """The first public functions that a newcomer calls show how."""
    for name in ("landscape.objectives.objective", "landscape.spectrum.lanczos", "landscape.geometry.surface"):
        assert doctest.testmod(importlib.import_module(name)).attempted > 0
