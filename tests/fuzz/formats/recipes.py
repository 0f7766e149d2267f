"""TOML: recipes of users, settings on the command line, and the settings of a run."""

from __future__ import annotations

import itertools
import random
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case, Reader
from tests.fuzz.formats.common import FINISHED, MANY, check_run, report_run
from tests.fuzz.mutations import HOSTILE, places, spoil_bytes, spoil_value
from training import config
from training.console import summaries
from training.storage import toml

LOOKED_AT = 3  # recipes of a sweep that are written and read again


class Recipes:
    """Recipes with wrong types, unknown keys, deep nesting, huge numbers, sweeps of any size."""

    def __init__(self, folder: Path) -> None:
        self.recipe = (folder / "recipe.toml").read_bytes()
        self.settings = (folder / FINISHED / "config.toml").read_bytes()
        self.shipped = [path.read_bytes() for path in sorted(config.RECIPES.glob("*.toml"))]
        self.readers = {
            "load": Reader(load, protected=False, lines=MANY),
            "override": Reader(override, protected=False, lines=MANY),
            "check": Reader(check_run, lines=MANY),
            "status": Reader(standing, protected=False, lines=MANY),
            "report": Reader(report_run, protected=False, lines=MANY),
        }

    def case(self, rng: random.Random) -> Case:
        way = rng.random()
        if way < 0.6:
            return Case("load", {"recipe.toml": self._recipe(rng)})
        if way < 0.75:
            return Case("override", {}, words=tuple(self._setting(rng) for _ in range(rng.choice((1, 1, 2)))))
        reader = rng.choice(("check", "status", "report"))
        spoilt = spoil_bytes(rng, self.settings, [self.recipe]) if rng.random() < 0.4 else self._document(rng)
        return Case(reader, {f"{FINISHED}/config.toml": spoilt})

    def _recipe(self, rng: random.Random) -> bytes:
        way = rng.random()
        if way < 0.3:
            return spoil_bytes(rng, rng.choice([self.recipe, *self.shipped]), self.shipped)
        if way < 0.75:
            return self._document(rng)
        return rng.choice(TEXTS)(rng, self.recipe)

    def _document(self, rng: random.Random) -> bytes:
        content = tomllib.loads((rng.choice([self.recipe, self.settings, *self.shipped])).decode())
        spoilt = spoil_value(rng, content)
        try:
            text = toml.write(spoilt) if isinstance(spoilt, dict) else f"value = {toml.show(spoilt)}\n"
        except (TypeError, ValueError, RecursionError):  # half a letter, or too deep to be written
            text = "record = [" + "[" * 400 + '"\ud800"'
        return text.encode(errors="surrogatepass")

    def _setting(self, rng: random.Random) -> str:
        content = tomllib.loads(self.recipe.decode())
        keys = [*dict(toml.flatten(content)), "sweep.local.lr", "swa", "nothing", "local", "a.b.c.d", "", ".", "local."]
        written = [toml.show(value) for value in HOSTILE if value != "\ud800"]
        value = rng.choice(written) if rng.random() < 0.7 else rng.choice(("fedsam", "=", "[", "1, 2", ""))
        text = f"{rng.choice(keys)}{rng.choice(('=', '=', '=', ' = ', '', '=='))}{value}"
        return spoil_bytes(rng, text.encode(errors="replace")).decode(errors="surrogateescape").replace("\x00", "")


def load(folder: Path) -> Any:
    """A user's recipe: what was read is written and read again, and must be the same."""
    return _again(folder, config.load(folder / "recipe.toml"))


def override(folder: Path, *settings: str) -> Any:
    """Settings of the command line."""
    return _again(folder, config.load(folder / "recipe.toml", settings))


def _again(folder: Path, recipes: list[config.Recipe]) -> Any:
    for recipe in itertools.islice(recipes, LOOKED_AT):
        path = folder / "again.toml"
        path.write_text(config.dump(recipe), encoding="utf-8")
        (again,) = config.load(path)
        if again.digest != recipe.digest or again.slug != recipe.slug:
            raise AssertionError(f"{recipe.slug} comes back as {again.slug}")
        if "/" in recipe.slug or len(recipe.slug.encode()) > 255:
            raise AssertionError(f"{recipe.slug!r} cannot be the name of a folder")
    return [recipe.digest for recipe in recipes]


def standing(folder: Path) -> Any:
    """What `show` and `train` ask first."""
    return summaries.find_standing(folder / FINISHED), config.load(folder / FINISHED / "config.toml")[0].digest


def _deep(rng: random.Random, text: bytes) -> bytes:
    depth = rng.choice((10, 100, 1000, 10_000, 100_000))
    middle = {
        "lists": b"record = " + b"[" * depth + b"1" + b"]" * depth,
        "tables": b"model = " + b"{a = " * depth + b"1" + b"}" * depth,
        "dotted": b"[" + b".".join([b"a"] * depth) + b"]\nb = 1",
        "headers": b"\n".join(b"[" + b".".join([b"a"] * i) + b"]" for i in range(1, min(depth, 300))),
        "sweep": b"[sweep]\n" + b".".join([b"a"] * depth) + b" = [1, 2]",
    }
    return rng.choice((b"", text)) + b"\n" + rng.choice(list(middle.values())) + b"\n"


def _sweep(rng: random.Random, text: bytes) -> bytes:
    keys = rng.sample(("seed", "local.lr", "local.momentum", "local.weight_decay", "rounds.count", "nothing"), k=5)
    length = rng.choice((1, 3, 60, 2000))
    axes = (f'"{key}" = {[*range(1, length + 1)]}\n' for key in keys[: rng.randint(1, 5)])
    return text.split(b"[sweep]")[0] + b"[sweep]\n" + "".join(axes).encode()


def _numbers(rng: random.Random, text: bytes) -> bytes:
    number = rng.choice((b"9" * 30, b"9" * 5000, b"1e400", b"-0", b"0x" + b"f" * 40, b"1_0", b"nan", b"-inf", b"0o7"))
    lines = text.split(b"\n")
    valued = [place for place, line in enumerate(lines) if b"=" in line]
    place = rng.choice(valued)
    lines[place] = lines[place].partition(b"=")[0] + b"= " + number
    return b"\n".join(lines)


def _swap_lines(rng: random.Random, text: bytes) -> bytes:
    lines = text.split(b"\n")
    for _ in range(rng.randint(1, 4)):
        one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[one], lines[other] = lines[other], rng.choice((lines[one], lines[other], b"2024-01-01T00:00:00 = 1"))
    return b"\n".join(lines)


def _dates(rng: random.Random, text: bytes) -> bytes:
    content = tomllib.loads(text.decode())
    container, key = rng.choice(list(places(content)))
    container[key] = "DATE"
    date = rng.choice((b"2024-01-01", b"12:00:00", b"2024-01-01T00:00:00Z", b"[2024-01-01]"))
    return toml.write(content).encode().replace(b'"DATE"', date)


TEXTS: tuple[Callable[[random.Random, bytes], bytes], ...] = (_deep, _sweep, _numbers, _swap_lines, _dates)
