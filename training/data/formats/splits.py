"""Published splits: which user holds which examples, as JSON (LEAF, FedSAM, FedGloSS, FedDrive) or CSV (Hsu et al.).

Imports no torch.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from training.data.formats.files import read_text

csv.field_size_limit(2**24)  # characters of one cell; a text may exceed the 131,072 that are usual
User = tuple[list[Any], list[Any]]  # what it holds, and the targets


def read_json(path: Path) -> dict[str, User]:
    """Read the users of a JSON file in its order: in LEAF's format, or as one list of examples for each user.

    path: of the file: {"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}; FedGloSS writes users_data.
        Or [[0, 1, ...], [2, ...]], which are users 0, 1, ..., without labels.
    Returns for every user the lists x and y. The file's num_samples are not used: some published ones are wrong.
    """
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        reason = str(error).removeprefix(f"{path} ")
        raise ValueError(f"{path} is not valid JSON, or is cut short ({reason})") from None
    if isinstance(content, list) and content and all(isinstance(own, list) for own in content):
        return {str(user): (own, [None] * len(own)) for user, own in enumerate(content)}
    data = content.get("user_data", content.get("users_data")) if isinstance(content, dict) else None
    if not isinstance(data, dict) or not isinstance(content.get("users"), list):
        raise ValueError(
            f'{path} is not a split: expected {{"users": [...], "user_data": {{user: {{"x": ..., "y": ...}}}}}}, '
            "or a list of examples for each client: [[0, 1], [2, 3]]"
        )
    found: dict[str, User] = {}
    for user in map(str, content["users"]):
        if user in found:
            raise ValueError(f"{path} lists the user {user!r} twice")
        own = data.get(user)
        x, y = (own.get("x"), own.get("y")) if isinstance(own, dict) else (None, None)
        if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
            raise ValueError(f"{path}: user {user!r} needs lists x and y of the same length")
        found[user] = (x, y)
    if len(found) != len(data):
        raise ValueError(f"{path} lists {len(found)} users and holds data of {len(data)}")
    return found


def read_json_folder(folder: Path) -> dict[str, User]:
    """Read the users of all JSON files of a folder.

    folder: LEAF and FedDrive spread the users of one split over many files; a user must not be in two.
    """
    found: dict[str, User] = {}
    for path in list_json(folder):
        users = read_json(path)
        if twice := found.keys() & users.keys():
            raise ValueError(f"{path}: the user {sorted(twice)[0]!r} is in another file of this folder as well")
        found |= users
    return found


def list_json(folder: Path) -> list[Path]:
    """List the JSON files of a folder in the order of their names, or raise ValueError where there is none.

    folder: to look in.
    """
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not paths:
        raise ValueError(f"no *.json in {folder}: expected the files of a split, {{users, user_data}} each")
    return paths


def read_csv(path: Path, columns: Sequence[str]) -> list[list[str]]:
    """Read columns of a CSV file that has a header.

    path: of the file.
    columns: their names, in the wanted order.
    Returns one list for each column.
    """
    try:
        rows = list(csv.reader(io.StringIO(read_text(path), newline=""), strict=True))
    except csv.Error as error:
        raise ValueError(f"{path} is not readable as CSV ({error})") from None
    header = rows[0] if rows else []
    missing = [name for name in columns if name not in header]
    if missing:
        raise ValueError(f"{path} needs a first line with the columns {', '.join(columns)}; it has {header[:6]}")
    if len(rows) == 1:
        raise ValueError(f"{path} has a header and no rows")
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}, line {line}: {len(row)} cells, expected {len(header)} as in the header")
    places = [header.index(name) for name in columns]
    return [[row[place] for row in rows[1:]] for place in places]


def read_numbers(path: Path, column: str, cells: Iterable[str]) -> list[int]:
    """Read the cells of a column as class numbers, or raise ValueError that names the first that is none.

    path, column: where they come from, for messages.
    cells: of the column.
    """
    found = []
    for line, cell in enumerate(cells, start=2):
        if not (cell.isascii() and cell.isdigit() and len(cell) < 9):
            raise ValueError(f"{path}, line {line}: {column} must be a whole number from 0 on, got {cell[:40]!r}")
        found.append(int(cell))
    return found


def order_users(names: Iterable[str]) -> list[str]:
    """Put users in order: by number where all names are numbers, else as strings.

    names: distinct.

    >>> order_users(["10", "9", "0"]), order_users(["b", "10", "9"])
    (['0', '9', '10'], ['10', '9', 'b'])
    """
    known = list(names)
    numeric = all(name.isascii() and name.isdigit() and len(name) < 19 for name in known)
    return sorted(known, key=lambda name: (int(name) if numeric else 0, name))
