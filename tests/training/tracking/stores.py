"""Read back what trackers stored, with their own readers; the file of wandb by its format."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

BLOCK = 32768  # bytes of a block of a .wandb file, which is a log of LevelDB after seven bytes
HEAD, FULL, LAST = 7, 1, 4


def read_scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The (step, value) pairs of every curve in TensorBoard's event files, duplicates included."""
    found: dict[str, list[tuple[int, float]]] = {}
    for event, value in _read_values(folder):
        if value.WhichOneof("value") == "simple_value":
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def read_texts(folder: Path) -> dict[str, str]:
    return {one.tag: one.tensor.string_val[0].decode() for _, one in _read_values(folder) if one.tensor.string_val}


def read_images(folder: Path) -> dict[str, Any]:
    return {one.tag: one.image for _, one in _read_values(folder) if one.WhichOneof("value") == "image"}


def _read_values(folder: Path):
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    for path in sorted(folder.glob("events.*")):
        for data in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(data)
            for value in event.summary.value:
                yield event, value


def read_wandb(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any], set[str]]:
    """The rows, the settings and the ids of wandb's offline runs, in the order of their folders."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows, settings, ids = [], {}, set()
    for path in sorted(folder.glob("offline-run-*/*.wandb")):
        for data in _read_log(path.read_bytes()):
            record = Record.FromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "history":
                items = record.history.item
                rows.append({"/".join(one.nested_key) or one.key: json.loads(one.value_json) for one in items})
            if kind == "run":
                ids.add(record.run.run_id)
                settings |= {one.key: json.loads(one.value_json) for one in record.run.config.update}
    return rows, settings, ids


def _read_log(data: bytes) -> list[bytes]:
    found, parts, place = [], [], HEAD
    while place + HEAD <= len(data):
        if BLOCK - place % BLOCK < HEAD:  # a block's last bytes are too few for a record
            place += BLOCK - place % BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        parts.append(data[place + HEAD : place + HEAD + size])
        place += HEAD + size
        if kind in (FULL, LAST):
            found.append(b"".join(parts))
            parts = []
    return found
