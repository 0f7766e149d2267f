"""Public names of a package, loaded when they are first used (PEP 562): importing the package imports nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module


def make_getattr(
    package: str, homes: Mapping[str, str], namespace: MutableMapping[str, object]
) -> Callable[[str], object]:
    """Make the function `__getattr__` of a package.

    package: its name, for the message about an unknown name.
    homes: where every public name is defined: name -> module.
    namespace: `globals()` of the package; names are kept there once they are loaded.
    """

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        namespace[name] = getattr(import_module(homes[name]), name)
        return namespace[name]

    return load
