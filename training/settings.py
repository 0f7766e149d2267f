"""Settings of everything that has any: frozen, strict, ranges as annotated types. This file imports no torch.

    @settings
    class SAM:
        rho: NonNegative = Field(0.05, description="radius of the perturbation")

    build(SAM, {"rho": -1}, "fedsam")   # ValueError: fedsam: rho must be at least 0, got -1

Recipes are pydantic models (`Settings`), everything else is a pydantic dataclass (`settings`). Both refuse unknown
names and wrong types, and both tell a mistake in the same words.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, get_args, get_origin

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from landscape.errors import choose
from training.storage import toml

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
MOST_CLASSES = 1_000_000  # a larger label is not the number of a class, and would take memory in proportion
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", tuple: "a list"}
EXPECTED = {  # pydantic's kind of mistake -> what was expected
    "int_type": WORDS[int],
    "float_type": WORDS[float],
    "bool_type": WORDS[bool],
    "string_type": WORDS[str],
    "tuple_type": WORDS[tuple],
    "model_type": "a table of settings",
    "dataclass_type": "a table of settings",
    "dataclass_exact_type": "a table of settings",
    "finite_number": "finite",
    "literal_error": "{expected}",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "a list of at least {min_length}",
}

Kind = TypeVar("Kind")

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
PositiveOrInfinite = Annotated[float, Field(gt=0, allow_inf_nan=True)]  # NaN is still refused: it is not above 0
NonNegativeOrInfinite = Annotated[float, Field(ge=0, allow_inf_nan=True)]
Fraction = Annotated[float, Field(ge=0, le=1)]  # [0, 1]
Share = Annotated[float, Field(gt=0, le=1)]  # (0, 1]
Decay = Annotated[float, Field(ge=0, lt=1)]  # [0, 1): a moving average with this factor converges
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]


def as_tuple(given: object) -> object:
    """A list as a tuple, for settings that hold several values: TOML and JSON only have lists."""
    return tuple(given) if isinstance(given, list) else given


Several = Annotated[tuple[Kind, ...], BeforeValidator(as_tuple)]  # Several[int]: a list of whole numbers
Names = Several[str]


class Settings(BaseModel):
    """A table of a recipe: frozen, and strict about names and types."""

    model_config = ConfigDict(frozen=True, **STRICT)


@dataclass_transform(frozen_default=True, field_specifiers=(Field, dataclasses.field))
def settings(kind: type[Kind]) -> type[Kind]:
    """Make a class a frozen dataclass whose fields are checked when it is created."""
    return pydantic.dataclasses.dataclass(frozen=True, config=STRICT)(kind)  # type: ignore[return-value]


def settings_of(
    function: Callable[..., object], exclude: Iterable[str] = (), base: type[Settings] = Settings
) -> type[Settings]:
    """Make a settings class of the parameters of a function, so that it need not be called to check them.

    function: its annotations are the types and ranges, its defaults the defaults.
    exclude: parameters that are no settings. base: a class with further settings.

    >>> def share(labels, *, alpha: Positive = 0.1): ...
    >>> build(settings_of(share, exclude=("labels",)), {"alpha": 1}, "share").alpha
    1.0
    """
    return _settings_of(function, frozenset(exclude), base)


@functools.cache
def _settings_of(function: Callable[..., object], exclude: frozenset[str], base: type[Settings]) -> type[Settings]:
    parameters = inspect.signature(function, eval_str=True).parameters
    found: dict[str, Any] = {
        name: (
            Any if one.annotation is one.empty else one.annotation,
            ... if one.default is one.empty else one.default,
        )
        for name, one in parameters.items()
        if name not in exclude
    }
    return pydantic.create_model(getattr(function, "__name__", "settings"), __base__=base, **found)


def build(kind: Callable[..., Kind], given: Mapping[str, object], what: str) -> Kind:
    """Create `kind` from settings by name, or raise ValueError that tells every mistake.

    kind: a class made by `settings`, or a `Settings` model.
    given: values by the names of the settings; the others keep their defaults.
    what: whose settings these are, for messages: "fedsam", "study curvature".
    """
    try:
        validate: Callable[[Mapping[str, object]], Kind] | None = getattr(kind, "model_validate", None)
        return kind(**given) if validate is None else validate(given)  # a model's keys need not be identifiers
    except ValidationError as error:
        raise ValueError("\n".join(explain(problem, kind, what) for problem in error.errors())) from None


def replace(old: Kind, given: Mapping[str, object], what: str) -> Kind:
    """A copy of `old` with some settings changed, checked like `build`."""
    return build(type(old), {**values(old), **given}, what)


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise ValueError for the first name that is not a known setting, with the nearest one that is.

    >>> check_names(["roh"], ["rho", "warmup"], "fedsam")
    Traceback (most recent call last):
    ValueError: setting of fedsam: unknown 'roh'; did you mean 'rho'? Known: rho, warmup
    """
    names = list(known)
    for name in given:
        if not names:
            raise ValueError(f"{what} takes no settings, got '{name}'; leave it out")
        choose(f"setting of {what}", name, names)


def explain(problem: ErrorDetails, owner: object, what: str) -> str:
    """Describe one of pydantic's mistakes: what was expected, what came, what to write instead.

    problem: an entry of `ValidationError.errors()`.
    owner: the class whose settings were given, for "did you mean".
    what: whose settings these are, for messages.
    """
    kind, setting = problem["type"], ".".join(str(part) for part in problem["loc"])
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return _explain_unknown([str(part) for part in problem["loc"]], owner, what)
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return f"{what} needs the setting '{setting}'; write {setting} = ..."
    if kind == "value_error":
        message = str(problem["ctx"]["error"])
        return f"{what}: {message}" if setting in message else f"{what}: {setting}: {message}"
    context = {key: f"{part:g}" if isinstance(part, float) else part for key, part in problem.get("ctx", {}).items()}
    expected = EXPECTED[kind].format(**context) if kind in EXPECTED else problem["msg"]
    hint = _suggest(problem["input"], expected) if kind == "literal_error" else ""
    return f"{what}: {setting} must be {expected}, got {toml.show(problem['input'])}{hint}"


def _suggest(given: object, expected: str) -> str:
    """The nearest of the words that pydantic lists in quotes, if one is near."""
    near = difflib.get_close_matches(str(given), re.findall(r"'([^']*)'", expected), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _explain_unknown(path: Sequence[str], owner: object, what: str) -> str:
    """Describe a setting that does not exist, with the nearest that does; `path` leads through tables to it."""
    *tables, leaf = path
    known = fields(_find_table(owner, tables))
    if not tables:
        elsewhere = [f"{name}.{leaf}" for name in known if leaf in fields(_find_table(owner, [name]))]
        if elsewhere:
            return f"setting of {what}: unknown '{leaf}'; did you mean '{elsewhere[0]}'?"
    try:
        if tables:
            choose(f"{what}: setting of {'.'.join(tables)}", leaf, known)
        check_names([leaf], known, what)
    except ValueError as error:
        return str(error)
    raise AssertionError(f"{leaf} is a setting of {what}")


def _find_table(owner: object, path: Sequence[str]) -> object:
    """Find the class of a table inside another one; the field may be optional."""
    for name in path:
        annotation = fields(owner)[name].annotation
        owner = next((kind for kind in (annotation, *get_args(annotation)) if fields(kind)), None)
    return owner


@dataclasses.dataclass(frozen=True)
class About:
    """What a person may want to know of a setting."""

    name: str
    default: object
    description: str
    allowed: str  # what it may be, for example "at least 1" or "train or test"


def describe(kind: object) -> list[About]:
    """Describe every setting of a class: its name, default, meaning, and what it may be."""
    return [
        About(name, field.get_default(), field.description or "", describe_allowed(field))
        for name, field in fields(kind).items()
    ]


def fields(kind: object) -> dict[str, FieldInfo]:
    """pydantic's fields of a model or a dataclass, by name."""
    found: dict[str, FieldInfo] = getattr(kind, "__pydantic_fields__", {})
    return found


def values(made: object) -> dict[str, Any]:
    """Return all settings of an object with their values."""
    return {name: getattr(made, name) for name in fields(type(made))}


def describe_allowed(field: FieldInfo) -> str:
    """Describe the values that a setting may have."""
    annotation: Any = field.annotation
    parts = [part for part in get_args(annotation) if part is not type(None)]
    optional = type(None) in get_args(annotation)
    if get_origin(annotation) is Literal:
        words = " or ".join(map(str, get_args(annotation)))
    elif optional and len(parts) == 1 and get_origin(parts[0]) is Literal:
        words = " or ".join(map(str, get_args(parts[0])))
    else:
        kind = parts[0] if optional and parts else annotation
        kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        words = WORDS.get(get_origin(kind) or kind, "")
    limits = [*field.metadata, *(limit for part in parts for limit in getattr(part, "__metadata__", ()))]
    limits = [inner for one in limits for inner in getattr(one, "metadata", [one])]
    signs = (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
    ranges = [f"{word} {getattr(one, sign):g}" for one in limits for sign, word in signs if hasattr(one, sign)]
    return ", ".join(part for part in (words, *ranges) if part)
