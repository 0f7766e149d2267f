"""Users' own methods, models, data sets and so on, beside the built-in ones: 'module:name', or a registered name.

Every extension point (methods, models, data sets, partitions, tasks, studies, figures) is one literal table of what is
built in, wrapped in an `ExtensionPoint`. A registered name is short for its 'module:name', and recipes store the
latter: a stored run is found again by commands and processes that know nothing of the registration.
Imports no torch.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from landscape.errors import choose

Result = TypeVar("Result")
Thing = TypeVar("Thing")
VARIABLE = "LANDSCAPE_PLUGINS"  # modules that the command line imports first, so that they can register things


class UnknownModuleError(ValueError):
    """Raised when a user's module cannot be imported."""


@dataclass(eq=False)
class ExtensionPoint(Generic[Thing]):
    """Everything of one kind by name: what is built in, and what users add.

    kind: what it is, for messages: "model".
    table: what is built in, by name.
    accept: makes what the table holds from 'module:name' and what that module holds; ValueError if it cannot.
    registered: short names of what users added -> 'module:name'.
    """

    kind: str
    table: Mapping[str, Thing]
    accept: Callable[[str, object], Thing]
    registered: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> Thing:
        """Find a thing by its name, built in or registered, or by 'module:name'."""
        full = self.resolve(name)
        if ":" in full:
            return self.accept(full, import_object(self.kind, full))
        return self.table[choose(self.kind, full, [*self.table, *self.registered])]

    def resolve(self, name: str) -> str:
        """Return the 'module:name' of a registered name; any other name stays as it is."""
        return self.registered.get(name, name)

    def register(self, name: str, thing: object) -> None:
        """Register a user's own entry under a name, for recipes, the command line and listings.

        name: small letters, digits, - and _; none that is taken.
        thing: 'module:name', or what has that name at the top of its module.
        """
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
            raise ValueError(f"{self.kind} '{name}': a name is made of small letters, digits, - and _")
        full = thing if isinstance(thing, str) else find_reference(self.kind, thing)
        if name in self.table or self.registered.get(name, full) != full:
            taken = self.registered.get(name, "a built-in one")
            raise ValueError(f"{self.kind} '{name}' is already {taken}: register {full} under another name")
        self.accept(full, import_object(self.kind, full))
        self.registered[name] = full

    def entries(self) -> dict[str, Thing]:
        """All entries with a short name: the built-in ones, then the registered ones."""
        return {**self.table, **{name: self.find(name) for name in self.registered}}


def find_reference(kind: str, thing: object) -> str:
    """Find the 'module:name' of a function, a class or an object at the top of a module.

    kind: what it is, for messages. ValueError for what no other process could import.
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(name, str):  # an object does not know its name, but its module does
        holders = [(found, key) for found, one in _list_modules() for key, value in vars(one).items() if value is thing]
        module, name = holders[0] if holders else (None, type(thing).__name__)
    if module == "__main__":
        raise ValueError(
            f"{kind} {name} is defined in __main__, a script or a notebook, where worker processes and stored runs "
            f"cannot find it: put it into a module, such as mine.py, and register it from there"
        )
    if module is None or getattr(sys.modules.get(module), name, None) is not thing:
        raise ValueError(
            f"{kind} {name} cannot be imported by name: define it at the top of a module, or register 'module:name'"
        )
    return f"{module}:{name}"


def _list_modules() -> list[tuple[str, ModuleType]]:
    """List all modules, those of scripts last."""
    found = [(name, one) for name, one in list(sys.modules.items()) if isinstance(one, ModuleType)]
    return sorted(found, key=lambda pair: pair[0] == "__main__")


def use_current_folder() -> None:
    """Make the current folder's modules importable, for models and data sets named "module:function".

    The current folder goes to the end of the path, so that a random.py or a training/ in it does not replace an
    installed module. Our own folder goes before it, since an editable install would otherwise be searched after all
    folders, in worker processes too.
    """
    for folder in (str(Path(__file__).parents[1]), os.getcwd()):
        if folder not in sys.path:
            sys.path.append(folder)


def import_plugins() -> None:
    """Import the modules that the environment variable LANDSCAPE_PLUGINS names, separated by commas."""
    for path in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        _import(VARIABLE, path)


def _import(what: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except Exception as error:  # a user's module may fail in any way while it is imported
        raise UnknownModuleError(
            f"{what}: module '{path}' cannot be imported ({type(error).__name__}: {error}). "
            "Install it, or write PYTHONPATH=FOLDER with the folder that holds it"
        ) from error


def import_object(kind: str, name: str) -> object:
    """Import what 'module:name' names.

    kind: "model" or "data set", for messages.
    """
    path, _, attribute = name.partition(":")
    if not path or not attribute:
        raise ValueError(f"{kind} '{name}': write 'module:function', for example 'mypackage.mymodule:myfunction'")
    inside = vars(_import(f"{kind} '{name}'", path))
    public = {key: value for key, value in inside.items() if key[:2] != "__" and not isinstance(value, ModuleType)}
    return public[choose(f"{kind} in module '{path}'", attribute, public)]


def import_function(kind: str, name: str) -> Callable[..., object]:
    """Import the function that 'module:function' names.

    kind: "model" or "data set", for messages. name: the module and the function.
    """
    return accept_function(kind, name, import_object(kind, name))


def accept_function(kind: str, name: str, found: object) -> Callable[..., object]:
    """Return what a user's module holds if it can be called, otherwise raise ValueError."""
    if not callable(found):
        raise ValueError(f"{kind} '{name}' must be a function or a class, got {type(found).__name__}")
    return found


def describe_source(name: str) -> dict[str, str]:
    """Describe where 'module:name', or a module, comes from: module, name and SHA-256 of its file, package version."""
    module = importlib.import_module(name.partition(":")[0])
    found = {"module": module.__name__}
    file = getattr(module, "__file__", None)
    if file is not None:
        found |= {"file": Path(file).name, "sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest()}
    packages = _find_packages().get(module.__name__.partition(".")[0], [])
    return found | ({"version": metadata.version(packages[0])} if packages else {})


@functools.cache
def _find_packages() -> Mapping[str, list[str]]:
    """Find installed packages by the names that they are imported by, once: this takes a while."""
    return metadata.packages_distributions()


def explain_change(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Say in one line how the source of 'module:name' differs from what it was; nothing where it does not.

    before, now: as `describe_source` returned them.
    """
    if before.get("sha256") != now.get("sha256"):
        old, new = (one.get("sha256", "none")[:8] for one in (before, now))
        return f"{name}: the file {now.get('file', before.get('file'))} has changed (SHA-256 {old}, now {new})"
    if before.get("version") != now.get("version"):
        return f"{name}: its package had version {before.get('version')}, now {now.get('version')}"
    return ""


def takes_anything(function: Callable[..., object]) -> bool:
    """Tell whether a function takes any keyword argument, so that its settings cannot be checked beforehand."""
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in inspect.signature(function).parameters.values())


def call(
    kind: str,
    name: str,
    function: Callable[..., Result],
    settings: Mapping[str, object],
    *,
    required: Mapping[str, object] | None = None,
    offered: Mapping[str, object] | None = None,
) -> Result:
    """Call function(**required, **settings); ValueError that names a setting that is unknown or missing.

    kind, name: what the function makes and its name, for messages. settings: arguments by name.
    required: arguments that the function must accept. offered: arguments passed only if it accepts them.
    """
    required, offered = required or {}, offered or {}
    parameters = inspect.signature(function).parameters
    anything = takes_anything(function)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = {key for key, one in parameters.items() if one.kind in named}
    untaken = [key for key in required if key not in known]
    if untaken and not anything:
        raise ValueError(f"{kind} '{name}' is called with {', '.join(required)} but does not take {', '.join(untaken)}")
    free = known - set(required) - set(offered)
    for key in settings:
        if key not in free and not anything:
            if not free:
                raise ValueError(f"{kind} '{name}' takes no settings, got '{key}'")
            choose(f"setting of {kind} '{name}'", key, free)
    given = {**required, **{key: value for key, value in offered.items() if key in known}, **settings}
    missing = [key for key in known if parameters[key].default is inspect.Parameter.empty and key not in given]
    if missing:
        raise ValueError(f"{kind} '{name}' needs the setting {', '.join(sorted(missing))}")
    return function(**given)
