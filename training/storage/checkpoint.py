"""The run directory: written aside and renamed, hashed, verified, resumed. Nothing in it can execute code.

    <run>/
        config.toml       the recipe, every setting spelled out (config.py)
        partition.npz     who holds which example: header (JSON text: format, name, settings, seed), digest, sizes
                          (clients,), indices (examples,) and labels (examples,); partition.py
        provenance.json   format    1, the number of this description
                          digest    SHA-256 of the recipe without where the data lie
                          packages  versions by name;  python  its version
                          data_digest, partition_digest    SHA-256 of the data and of the partition
                          backend   which executor the run was begun with; once it is chosen
        status.json       format, state (running, finished or diverged), round (finished rounds when it was written),
                          message (why it diverged), files (name -> bytes and sha256 of the small files, of
                          metrics.jsonl only when the run is over), sha256 (of all this)
        metrics.jsonl     a record per round, sealed line by line (metrics.py)
        lock              while a process writes here (lease.py)
        checkpoints/round_000100/
            global.safetensors   server, mean, swa, sent, statistics, swa_statistics, sent_statistics: see Checkpoint
            locals.safetensors   <client>: weights and running statistics after local training
            server.safetensors   what the method keeps at the server, by its own names
            clients.safetensors  <client>/<name>: what the method keeps for each client
            meta.json            format, round, files (name -> bytes and sha256), cohort (participants of the round),
                                 sizes (their examples), captured (models in the SWA average), forgotten (true where
                                 clients.safetensors was dropped), sha256 (of all this)
        personal/         results of landscape personal (scores.py)
        analysis/         results of landscape analyze (analysis/store.py)

All numbers are little-endian, all text is UTF-8. A directory of format 1 is read by every later version; one with a
higher number than this version knows is refused.

A checkpoint appears under its name only when it is complete and flushed; a process killed at any moment leaves the
previous ones as they were, and at most files named .*.tmp, which the next start removes. meta.json holds the hashes
of a checkpoint's files, status.json those of the small files beside it; both are sealed by a hash of their own.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from training import config
from training.config import Recipe
from training.data import partition
from training.personal import scores
from training.rules.vectors import Vectors
from training.storage import atomic_files, files, lease, metrics, tensors
from training.storage.atomic_files import write_atomically
from training.storage.files import FORMAT
from training.storage.files import DamagedError as DamagedError  # part of what this file offers

FILES = ("global", "locals", "server", "clients")
NAMES = tuple(f"{name}.safetensors" for name in FILES)
RESUMABLE = 2  # checkpoints that keep the clients' memories: the newest, and one in case that it is damaged


class _Content(BaseModel):
    """What a sealed file must hold, and of which type. Other entries are allowed."""

    model_config = ConfigDict(strict=True, extra="allow")


class _Fingerprint(_Content):
    model_config = ConfigDict(strict=True, extra="forbid")
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


_Count = Annotated[int, Field(ge=0)]


class _Meta(_Content):
    round: _Count
    files: dict[str, _Fingerprint]
    cohort: list[_Count] = []
    sizes: list[_Count] = []
    captured: _Count = 0
    forgotten: bool = False


class _Status(_Content):
    state: Literal["running", "finished", "diverged"]
    round: _Count
    message: str
    files: dict[str, _Fingerprint]


@dataclass(frozen=True)
class Checkpoint:
    """What is saved of a round: enough to analyse it, and to go on from it."""

    round: int  # rounds finished
    # "server", "mean" of participants, "swa"; "sent", what the participants were sent, where `locals` are kept;
    # "statistics", "swa_statistics", "sent_statistics" of norm layers
    models: Vectors
    locals: dict[int, Tensor]  # participant -> weights and running statistics; empty where not asked for
    server: Vectors
    clients: dict[int, Vectors]  # client -> its own vectors, for those that ever took part; see `forget_clients`
    extra: dict[str, Any]  # small numbers: cohort, sizes, SWA count, last participation


def open_run(path: Path, recipe: Recipe, split: partition.Partition, facts: Mapping[str, Any]) -> None:
    """Prepare the directory of a recipe, new or found; one of another recipe or of other data is refused.

    facts: digests of the data and the partition, by name.
    """
    settings = path / "config.toml"
    found = settings.exists()
    if found:
        _refuse_another(path, recipe, facts)
    (path / "checkpoints").mkdir(parents=True, exist_ok=True)
    for name in ("checkpoints", "status.json", *SMALL):
        files.require_inside(path / name, path)
    for folder in (path, path / "checkpoints"):
        atomic_files.remove_temporary_files(folder)
    if not found or not (path / "partition.npz").exists():
        partition.save(split, path / "partition.npz")
    if not found or not (path / "provenance.json").exists():
        packages = {name: version(name) for name in ("fl-landscape", "torch", "numpy", "safetensors")}
        about = {"format": FORMAT, "digest": recipe.digest, "packages": packages, "python": platform.python_version()}
        write_atomically(path / "provenance.json", json.dumps({**about, **facts}, indent=2).encode())
    if not found:
        write_atomically(settings, config.dump(recipe).encode())  # last: a directory without it is begun anew


def find(root: Path, recipe: Recipe, name: str = "") -> Path:
    """The directory of a recipe under `root`: the one that there is, or the one that will be made.

    name: of a new directory, from `recipe.name`; by default the recipe's slug.

    A run is known by the digest at the end of its name. What comes before tells people what was asked for, and the same
    run may be asked for in other words.
    """
    for path in sorted(root.glob(f"*_{recipe.digest[:8]}")):
        if (path / "config.toml").exists():
            return path
    return root / (name or recipe.slug)


def _refuse_another(path: Path, recipe: Recipe, facts: Mapping[str, Any]) -> None:
    digest = config.load(path / "config.toml")[0].digest
    if digest != recipe.digest:
        raise ValueError(
            f"{path} holds a run of another recipe (digest {digest[:8]}, wanted {recipe.digest[:8]}): "
            "choose another --out, or remove it"
        )
    about = read_provenance(path) if (path / "provenance.json").exists() else {}
    changed = [key for key, value in facts.items() if about.get(key, value) != value]
    if changed:
        raise ValueError(
            f"{path} was begun with other data ({', '.join(changed)} differs): give the data.root it was begun with, "
            "or choose another --out"
        )


def save(run: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint aside, flush it, rename it. An intact one of the same round is left as it is."""
    target = at(run, checkpoint.round)
    if target.exists() and not problem(target) and not read_meta(target).get("forgotten"):
        return target
    aside = atomic_files.temporary_path(target)
    contents = {
        "global": checkpoint.models,
        "locals": {f"{client}": w for client, w in checkpoint.locals.items()},
        "server": checkpoint.server,
        "clients": {
            f"{k}/{name}": vector for k, vectors in checkpoint.clients.items() for name, vector in vectors.items()
        },
    }
    with atomic_files.explain_write_errors(f"the checkpoint of round {checkpoint.round} in {target.parent}"):
        try:
            atomic_files.remove(aside)
            aside.mkdir(parents=True)
            written = {
                f"{name}.safetensors": tensors.write(aside / f"{name}.safetensors", vectors)
                for name, vectors in contents.items()
                if vectors or name == "global"
            }
            meta = {"format": FORMAT, "round": checkpoint.round, "files": written, **checkpoint.extra}
            atomic_files.write_flushed(aside / "meta.json", files.sealed(meta).encode())
            atomic_files.flush(aside)
            if checkpoint.round:
                atomic_files.flush(run / metrics.NAME)  # a checkpoint says that the rounds before it are on record
            lease.check(target)
            atomic_files.remove(target)  # a damaged one, or one that forgot its clients
            os.replace(aside, target)
            atomic_files.flush(target.parent)
        finally:
            atomic_files.remove(aside)
    return target


def forget_clients(run: Path) -> None:
    """Drop the clients' memories from all but the newest checkpoints: each holds a model or more for every client.

    First the description, then the file: killed in between, a file is left that nobody reads.
    """
    for round in rounds(run)[:-RESUMABLE]:
        path = at(run, round)
        try:
            meta = read_meta(path)
        except DamagedError:
            continue  # `check` will say so
        if meta["files"].pop("clients.safetensors", None):
            write_atomically(path / "meta.json", files.sealed({**meta, "forgotten": True}).encode())
        atomic_files.remove_temporary_files(path)
        (path / "clients.safetensors").unlink(missing_ok=True)


def load(path: Path) -> Checkpoint:
    """Read one checkpoint and verify every byte of it."""
    meta = read_meta(path)
    contents: dict[str, Vectors] = {name: {} for name in FILES}
    for file, wanted in meta.pop("files").items():
        contents[Path(file).stem] = tensors.read(path / file, wanted)
    clients: dict[int, Vectors] = {}
    for key, vector in contents["clients"].items():
        client, _, name = key.partition("/")
        clients.setdefault(_client(path, client), {})[name] = vector
    return Checkpoint(
        round=meta.pop("round"),
        models=contents["global"],
        # a file gives its tensors in any order
        locals=dict(sorted((_client(path, client), w) for client, w in contents["locals"].items())),
        server=contents["server"],
        clients=dict(sorted(clients.items())),
        extra={name: value for name, value in meta.items() if name != "format"},
    )


def _client(path: Path, name: str) -> int:
    if not (name.isascii() and name.isdecimal() and len(name) < 19):
        raise DamagedError(f"{path}: '{name[:40]}' is not the number of a client")
    return int(name)


def read_meta(path: Path) -> dict[str, Any]:
    """The description of a checkpoint, sealed by its own hash: round, files, and what small numbers came with it."""
    run = path.parents[1]
    files.require_inside(path / "meta.json", run)
    meta = _read(path / "meta.json", _Meta)
    if path.name != at(path, meta["round"]).name:
        raise DamagedError(f"{path}: holds round {meta['round']}, not the one that its name says")
    for name in meta["files"]:
        if name not in NAMES:
            raise DamagedError(f"{path / 'meta.json'}: names '{name[:80]}', expected one of {', '.join(NAMES)}")
        files.require_inside(path / name, run)
    if "global.safetensors" not in meta["files"]:
        raise DamagedError(f"{path / 'meta.json'}: names no global.safetensors, which every checkpoint has")
    return meta


def read_status(run: Path) -> dict[str, Any]:
    """Where a run stands, sealed by its own hash: state, round, message, and fingerprints of the small files."""
    files.require_inside(run / "status.json", run)
    return _read(run / "status.json", _Status)


def _read(path: Path, kind: type[_Content]) -> dict[str, Any]:
    """A sealed file, if its entries have the types that they should have."""
    content = files.read_sealed(path)
    files.require_format(content, path)
    try:
        kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DamagedError(f"{path}: '{place[:80]}' is not what it should be ({first['msg']})") from None
    return content


def rounds(run: Path) -> list[int]:
    """Rounds that have a checkpoint, ascending."""
    numbers = [path.name.removeprefix("round_") for path in (run / "checkpoints").glob("round_*")]
    return sorted(int(number) for number in numbers if _counted(number))


def _counted(number: str) -> bool:
    return number.isascii() and number.isdecimal() and len(number) < 19 and number == f"{int(number):06d}"


def at(run: Path, round: int) -> Path:
    """The place of a round's checkpoint."""
    return run / "checkpoints" / f"round_{round:06d}"


def problem(path: Path) -> str:
    """What is wrong with a checkpoint, in words; nothing if it is intact."""
    try:
        for file, wanted in read_meta(path)["files"].items():
            tensors.verify(path / file, wanted)
    except DamagedError as error:
        return str(error)
    return ""


def newest(run: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest intact checkpoint to go on from, and a line for every damaged one that was passed over."""
    problems: list[str] = []
    for round in reversed(rounds(run)):
        try:
            found = load(at(run, round))
        except DamagedError as error:
            problems.append(str(error))
            continue
        if not found.extra.get("forgotten"):
            return found, problems
    return None, problems


def check(run: Path) -> list[str]:
    """Every problem of a run directory in words; none if it is sound, be it finished or stopped on the way."""
    if _stopped_at_once(run):
        return [f"{run}: stopped before its first round; the same landscape train goes on"]
    problems: list[str] = []
    status: dict[str, Any] = {}
    try:
        status = read_status(run)
    except DamagedError as error:
        problems.append(str(error))
    for name, read in SMALL.items():
        try:
            files.require_inside(run / name, run)
            wanted = status.get("files", {}).get(name)
            if not (run / name).is_file():
                raise DamagedError(f"{run / name}: missing")
            if wanted is not None:
                files.verify(run / name, wanted)
            read(run)
        except ValueError as error:
            problems.append(str(error))
    problems += scores.problems(run)
    found = rounds(run)
    named = {at(run, round).name for round in found}
    for path in sorted((run / "checkpoints").glob("[!.]*")):
        text = problem(path) if path.name in named else f"{path}: not a checkpoint"
        problems += [text] if text else []
    return problems or list(_gaps(run, status, found))


def _stopped_at_once(run: Path) -> bool:
    """Whether a run was killed so early that it has no status yet, and nothing that could be lost."""
    begun = (run / "config.toml").is_file() and not (run / "status.json").exists()
    recorded = run / metrics.NAME
    return begun and max(rounds(run), default=0) == 0 and not (recorded.exists() and recorded.stat().st_size)


def _gaps(run: Path, status: Mapping[str, Any], found: list[int]) -> Iterator[str]:
    """What should be there and is not, in a run whose files are all intact."""
    every = config.load(run / "config.toml")[0].checkpoints.every
    last = max(found, default=0) if status["state"] == "running" else status["round"]
    done = len(metrics.read(run))
    if done < last:  # said first: `last` may be any number, and only as many rounds as were recorded are looked for
        yield f"{run / metrics.NAME}: ends at round {done}, but round {last} was reached"
        return
    wanted = {0, *range(0, last + 1, every), last}
    yield from (f"{at(run, round)}: missing" for round in sorted(wanted - set(found)))


def read_provenance(run: Path) -> dict[str, Any]:
    """Where a run comes from: format, digests, versions, back-end."""
    path = run / "provenance.json"
    about = files.parse_object(files.read_small(path))
    if about is None:
        raise DamagedError(f"{path}: not readable; remove this file, and training writes it anew")
    files.require_format(about, path)
    return about


def write_status(run: Path, state: str, round: int, message: str = "") -> None:
    """Say how far a run is, with the fingerprints of its small files; metrics still grow while it is running."""
    about = {"format": FORMAT, "state": state, "round": round, "message": message}
    try:
        before = read_status(run)
    except DamagedError:
        before = {}
    if state != "running" and about == {key: before.get(key) for key in about}:
        return  # said already: to hash the files again would bless what was damaged since
    names = [name for name in SMALL if state != "running" or name != metrics.NAME]
    prints = {name: files.fingerprint(run / name) for name in names}
    write_atomically(run / "status.json", files.sealed({**about, "files": prints}).encode())


SMALL: dict[str, Callable[[Path], object]] = {
    "config.toml": lambda run: config.load(run / "config.toml"),
    "partition.npz": lambda run: partition.load(run / "partition.npz"),
    "provenance.json": read_provenance,
    metrics.NAME: metrics.read,
}
