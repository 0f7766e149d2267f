"""Import a user's function, named 'module:function', and check settings before calling a function."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

from landscape.errors import choose

Result = TypeVar("Result")


def import_function(kind: str, name: str) -> Callable[..., object]:
    """Import the function that 'module:function' names.

    kind: "model" or "data set", for messages. name: the module and the function.
    """
    path, _, attribute = name.partition(":")
    if not path or not attribute:
        raise ValueError(f"{kind} '{name}': write 'module:function', for example 'mypackage.mymodule:myfunction'")
    try:
        module = importlib.import_module(path)
    except Exception as error:  # a user's module may fail in any way while it is imported
        raise ValueError(
            f"{kind} '{name}': module '{path}' cannot be imported ({type(error).__name__}: {error}). "
            "Install it, or write PYTHONPATH=FOLDER with the folder that holds it"
        ) from error
    public: dict[str, Callable[..., object]] = {key: value for key, value in vars(module).items() if callable(value)}
    return public[choose(f"function of {kind} module '{path}'", attribute, public)]


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
    anything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
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
