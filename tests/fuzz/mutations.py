"""Ways to spoil what was right: bytes of any file, and values of any JSON or TOML document."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Bytes = Callable[[random.Random, bytes], bytes]
Place = tuple[Any, Any]  # a container, and a key or an index in it

INTEGERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1)
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**40,
    2**63,
    10**30,
    10**400,
    0.0,
    0.5,
    -1e308,
    math.nan,
    math.inf,
    "",
    "0",
    "é\u2028\x7f",
    "\ud800",
    "a\x00b",
    "[red]b[/]",
    "../../../etc/passwd",
    "/etc/passwd",
    "x" * 5000,
    [],
    {},
    [1, "a", None],
    [[[[]]]],
    {"a": {"b": 1}},
    [0.1, 0.2],
)


def _span(rng: random.Random, data: bytes, most: int = 64) -> tuple[int, int]:
    """Start and end of a part of the data; short ones are as likely as long ones."""
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.randint(1, max(1, rng.choice((1, 4, most, len(data))))))


def flip_bits(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwrite_run(rng: random.Random, data: bytes) -> bytes:
    start, end = _span(rng, data)
    filling = rng.choice((b"\x00", b"\xff", b" ", b"\n", b"0"))
    return data[:start] + (filling * (end - start) if rng.random() < 0.5 else rng.randbytes(end - start)) + data[end:]


def truncate(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.choice((rng.randrange(len(data) + 1), rng.randrange(min(len(data), 64) + 1)))]


def delete_span(rng: random.Random, data: bytes) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + data[end:]


def insert_bytes(rng: random.Random, data: bytes) -> bytes:
    start = rng.choice((0, len(data), rng.randrange(len(data) + 1)))
    return data[:start] + rng.randbytes(rng.choice((1, 2, 8, 300))) + data[start:]


def repeat_span(rng: random.Random, data: bytes) -> bytes:
    start, end = _span(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 1, 2, 20)) + data[end:]


def move_span(rng: random.Random, data: bytes) -> bytes:
    start, end = _span(rng, data)
    rest = data[:start] + data[end:]
    place = rng.randrange(len(rest) + 1)
    return rest[:place] + data[start:end] + rest[place:]


def put_integer(rng: random.Random, data: bytes) -> bytes:
    number, width = rng.choice(INTEGERS), rng.choice((1, 2, 4, 8))
    word = (number % 256**width).to_bytes(width, rng.choice(("little", "big")))
    start = rng.randrange(max(1, len(data) - width + 1))
    return data[:start] + word + data[start + width :]


BYTES: tuple[Bytes, ...] = (
    flip_bits,
    overwrite_run,
    truncate,
    delete_span,
    insert_bytes,
    repeat_span,
    move_span,
    put_integer,
)


def splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """The beginning of one file and the end of another."""
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def spoil_bytes(rng: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """One to three changes of any kind. others: valid files, of which pieces may be taken."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        foreign = others and rng.random() < 0.1
        data = splice(rng, data, rng.choice(others)) if foreign else rng.choice(BYTES)(rng, data)
    return data


def places(value: Any) -> Iterator[Place]:
    """Every entry of every container in a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(inside):
        yield value, key
        yield from places(part)


def spoil_value(rng: random.Random, document: Any) -> Any:
    """A document with one to three entries replaced, removed, renamed, doubled or nested deeply."""
    changed = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found = list(places(changed))
        if not found or rng.random() < 0.01:
            return rng.choice(HOSTILE)
        _spoil_entry(rng, *rng.choice(found), [container[key] for container, key in found])
    return changed


def _spoil_entry(rng: random.Random, container: Any, key: Any, others: Sequence[Any]) -> None:
    way = rng.random()
    if way < 0.5:
        container[key] = copy.deepcopy(rng.choice(HOSTILE))
    elif way < 0.6:
        container[key] = copy.deepcopy(rng.choice(others))
    elif way < 0.7:
        del container[key]
    elif way < 0.8 and isinstance(container, dict):
        part = container.pop(key)
        container[rng.choice((f"{key}x", str(key)[:-1], "", "a.b", "\x00", "__class__", str(key).upper()))] = part
    elif way < 0.8:
        container.insert(key, container[key])
    elif way < 0.85:
        container[key] = nested(rng.choice((3, 30, 300)), container[key])
    else:
        container[key] = _neighbour(rng, container[key])


def _neighbour(rng: random.Random, value: Any) -> Any:
    """A value of the same type, or what a careless writer makes of it."""
    if isinstance(value, bool):
        return rng.choice((not value, int(value), str(value)))
    if isinstance(value, (int, float)):
        return rng.choice((value + 1, -value, value * 10**6, str(value), [value], float(value) if value < 2**99 else 0))
    if isinstance(value, str):
        return rng.choice((value + "x", value[:-1], value.upper(), value * 50, f" {value}", [value]))
    return rng.choice((str(value)[:200], [value], {"value": value}))


def nested(depth: int, value: Any) -> Any:
    """A value in lists of one entry."""
    for _ in range(depth):
        value = [value]
    return value
