"""Every public function and class, and every option of a command, says what its arguments are."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module

import pytest
import typer
from pydantic import BaseModel

from landscape import cli

PACKAGES = ("landscape", "training", "analysis", "reports")


def list_public() -> Iterator[tuple[str, object]]:
    """Every public function, and every public class with its public methods, by dotted name."""
    for package in map(import_module, PACKAGES):
        for name in package.__all__:
            found = getattr(package, name)
            names = vars(found) if inspect.ismodule(found) else {name: found}
            for own, one in names.items():
                if own.startswith("_") or not callable(one) or not one.__module__.startswith(PACKAGES):
                    continue
                if inspect.ismodule(found) and one.__module__ != found.__name__:
                    continue
                yield f"{package.__name__}.{own}", one
                if inspect.isclass(one):
                    methods = inspect.getmembers(one, callable)
                    inside = [(key, it) for key, it in methods if key in vars(one) and not key.startswith("_")]
                    yield from ((f"{package.__name__}.{own}.{key}", it) for key, it in inside)


PUBLIC = dict(list_public())


def list_arguments(one: object) -> list[str]:
    """The arguments of a function, or of a class's constructor as far as the class adds them."""
    if inspect.isclass(one) and issubclass(one, BaseModel | Enum):
        return []  # every setting has a description, which tests/training/test_settings.py checks
    if inspect.isclass(one) and dataclasses.is_dataclass(one):
        return [field.name for field in dataclasses.fields(one) if field.name in vars(one).get("__annotations__", {})]
    return [name for name in inspect.signature(one).parameters if name not in ("self", "cls")]


def read_description(name: str) -> str:
    """The docstring; for a class also its constructor's, and the fields that have a comment.

    "see `other`" stands for what is said of the arguments of `other`, a public function of the same package.
    """
    one = PUBLIC[name]
    text = inspect.getdoc(one) or ""
    if inspect.isclass(one):
        text += "\n" + (inspect.getdoc(one.__init__) or "" if "__init__" in vars(one) else "")
        text += "\n" + "\n".join(re.findall(r"^    (\w+: ).*#", inspect.getsource(one), re.MULTILINE))
    for other in re.findall(r"rguments: see `(\w+)`", text):
        text += "\n" + inspect.getdoc(PUBLIC[f"{name.partition('.')[0]}.{other}"])
    return text


def find_undocumented(text: str, arguments: list[str]) -> list[str]:
    """Those of which a docstring has neither "name: meaning" (or "name, other: meaning") nor the name as code."""
    return [one for one in arguments if not re.search(rf"(?<![\w.]){one}\b[\w, ]*:|`[^`]*\b{one}\b[^`]*`", text)]


def list_options() -> list[tuple[str, str, str]]:
    """Command, parameter and help of everything that the command line takes."""
    found = []
    commands = {"landscape": typer.main.get_command(cli.app)}
    while commands:
        name, command = commands.popitem()
        commands |= {f"{name} {key}": one for key, one in getattr(command, "commands", {}).items()}
        assert command.help, f"{name} has no help"
        found += [(name, one.name, getattr(one, "help", None) or "") for one in command.params if one.name != "help"]
    return found


def test_the_walk_finds_public_names():
    assert {"landscape.eigenpairs", "landscape.Objective.loss", "landscape.filter_normalized"} <= PUBLIC.keys()
    assert {"training.train", "analysis.analyze", "reports.report"} <= PUBLIC.keys()
    assert {("landscape analyze", "study"), ("landscape train", "recipe")} <= {one[:2] for one in list_options()}


def test_an_argument_without_a_word_is_found():
    text = "Add up.\n\n    first, second: numbers. Their sum.name: not an argument, nor is this."
    assert find_undocumented(text, ["first", "second", "third", "name", "sum"]) == ["third", "name", "sum"]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_argument_is_documented(name):
    text = read_description(name)
    assert text.strip(), f"{name} has no docstring"
    missing = find_undocumented(text, list_arguments(PUBLIC[name]))
    assert not missing, f"{name} does not say what {', '.join(missing)} is: write 'name: meaning' into its docstring"


def test_every_option_of_every_command_has_a_help():
    assert [(command, name) for command, name, text in list_options() if not text] == []
