"""safetensors: checkpoints of a run, and weights of a user's own; also weights that torch.save wrote."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case, Reader
from tests.fuzz.formats.common import FINISHED, MANY, check_run
from tests.fuzz.mutations import INTEGERS, places, spoil_bytes, spoil_value
from tests.fuzz.workspace import LAST, own_model
from training.models.weights import load_weights, read_weights
from training.storage import checkpoint, run_directory, verified_files

FOLDER = f"{FINISHED}/checkpoints/{LAST}"
FILES = tuple(f"{FOLDER}/{name}" for name in run_directory.TENSOR_FILES)
DTYPES = ("F32", "F64", "F16", "BF16", "I8", "I64", "U8", "BOOL", "F8_E4M3", "C64", "X", "")


class Tensors:
    """Headers with other sizes, types and offsets; half of the checkpoints' files get a description that fits them."""

    def __init__(self, folder: Path) -> None:
        there = [name for name in FILES if (folder / name).exists()]
        self.sound = {name: (folder / name).read_bytes() for name in there}
        self.meta = json.loads((folder / FOLDER / "meta.json").read_bytes())
        self.weights, self.pickle = (folder / "own.safetensors").read_bytes(), (folder / "own.pt").read_bytes()
        self.readers = {
            "load": Reader(lambda folder: checkpoint.load(folder / FOLDER)),
            "check": Reader(check_run, lines=MANY),
            "newest": Reader(newest, lines=MANY),
            "own.safetensors": Reader(lambda folder: weights(folder / "own.safetensors"), protected=False, lines=MANY),
            "own.pt": Reader(lambda folder: weights(folder / "own.pt"), protected=False, lines=MANY),
        }

    def case(self, rng: random.Random) -> Case:
        way = rng.random()
        if way < 0.08:
            return Case("own.pt", {"own.pt": spoil_bytes(rng, self.pickle, [self.weights])})
        if way < 0.4:
            return Case("own.safetensors", {"own.safetensors": self._spoil(rng, self.weights)})
        name, reader = rng.choice(list(self.sound)), rng.choice(("load", "check", "newest"))
        spoilt = self._spoil(rng, self.sound[name])
        if rng.random() < 0.4:
            return Case(reader, {name: spoilt})
        content = {key: part for key, part in self.meta.items() if key != "sha256"}
        content["files"] = {**content["files"], Path(name).name: fingerprint(spoilt)}
        return Case(reader, {name: spoilt, f"{FOLDER}/meta.json": verified_files.seal(content).encode()}, forged=True)

    def _spoil(self, rng: random.Random, data: bytes) -> bytes:
        if rng.random() < 0.3:
            return spoil_bytes(rng, data, [self.weights, *self.sound.values()])
        length = int.from_bytes(data[:8], "little")
        header, numbers = json.loads(data[8 : 8 + length]), data[8 + length :]
        header = spoil_value(rng, header) if rng.random() < 0.5 else spoil_header(rng, header)
        try:
            text = json.dumps(header).encode(errors="surrogatepass")
        except (ValueError, RecursionError):
            text = b"{}"
        text += b" " * rng.choice((-len(text) % 8, 0))
        said = len(text) if rng.random() < 0.9 else rng.choice(INTEGERS)
        return said.to_bytes(8, "little") + text + (numbers if rng.random() < 0.9 else numbers[: rng.randrange(99)])


def fingerprint(data: bytes) -> dict[str, Any]:
    """Size and hash, as checkpoints' descriptions hold them."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def spoil_header(rng: random.Random, header: dict[str, Any]) -> dict[str, Any]:
    """A header that is still one, and lies."""
    name = rng.choice(list(header))
    entry = header[name]
    way = rng.randrange(6)
    if way == 0:
        entry["dtype"] = rng.choice(DTYPES)
    elif way == 1:
        entry["shape"] = rng.choice(([], [0], [2**62], [2**32, 2**32], [-1], [1] * 100, [*entry["shape"], 1]))
    elif way == 2:
        entry["data_offsets"] = [rng.choice((*INTEGERS, entry["data_offsets"][0])) for _ in range(2)]
    elif way == 3:
        header[rng.choice(("__metadata__", "server", "-1", "1/", "9" * 400, "0/\x00"))] = header.pop(name)
    elif way == 4:
        container, key = rng.choice(list(places(header)))
        container[key] = rng.choice(INTEGERS)
    else:
        header["more"] = dict(rng.choice(list(header.values())))
    return header


def newest(folder: Path) -> Any:
    """What training goes on from."""
    found, problems = checkpoint.load_newest(folder / FINISHED)
    if problems:
        raise ValueError("\n".join(problems))
    return found


def weights(path: Path) -> Any:
    """A user's own weights."""
    found, _ = read_weights(path, lambda _: None)
    network = own_model()
    load_weights(network, found, str(path))
    return dict(network.state_dict())
