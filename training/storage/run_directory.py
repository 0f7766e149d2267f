"""Run directories: how to find them, the names of their files, and how to read them. Imports no torch.

    <run>/
        config.toml       the recipe with every setting (training/config.py)
        partition.npz     which client holds which example: header (JSON text: format, name, settings, seed), digest,
                          sizes (clients,), indices (examples,) and labels (examples,); training/data/partition.py
        provenance.json   format    1, the number of this description
                          digest    SHA-256 of the recipe without the location of the data
                          packages  versions by name;  python  its version
                          data_digest, partition_digest    SHA-256 of the data and of the partition
                          flops     forward, backward (of one example), per_step, references, ratio (to FedAvg):
                                    see Flops in training/engine/flops.py; missing where they could not be counted
                          backend   the executor the run was started with, once it is chosen
                          adopted   of a run of another framework: framework, rounds (those adopted), files (how many),
                                    accuracies (where they come from), missing (what the framework did not leave)
        status.json       format, state (running, finished or diverged), round (finished rounds when it was written),
                          message (why it diverged), files (name -> bytes and sha256 of the small files, of
                          metrics.jsonl only when the run is over), sha256 (of all this)
        metrics.jsonl     a record per round, sealed line by line (metrics.py)
        lock              present while a process writes here (training/storage/lock.py)
        checkpoints/round_000100/
            global.safetensors   server, mean, swa, sent, statistics, swa_statistics, sent_statistics: see Checkpoint
            locals.safetensors   <client>: weights and running statistics after local training
            server.safetensors   the method's vectors at the server, by their names in the method
            clients.safetensors  <client>/<name>: the method's vectors of each client, and own_statistics of its norm
                                 layers where it keeps them (rounds.statistics = "own")
            meta.json            format, round, files (name -> bytes and sha256), cohort (participants of the round),
                                 sizes (their examples), captured (models in the SWA average), forgotten (true where
                                 clients.safetensors was dropped), sha256 (of all this)
        personal/         results of landscape personal (training/personal/scores.py)
        analysis/         results of landscape analyze (analysis/store.py)
        report/           the page of landscape report

All numbers are little-endian, all text is UTF-8. A directory of format 1 is read by every later version; one with a
higher number than this version knows is refused. Every file is written under a temporary name and renamed
(atomic_files.py): a process killed at any moment leaves the previous files intact.
"""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NotRequired, TypedDict, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training.storage import toml
from training.storage.atomic_files import DamagedError, Fingerprint, write_atomically
from training.storage.verified_files import (
    FORMAT,
    Json,
    fingerprint,
    parse_object,
    read_sealed,
    read_small,
    require_format,
    require_inside,
    seal,
)

CONFIG, PARTITION, PROVENANCE = "config.toml", "partition.npz", "provenance.json"
METRICS, STATUS, CHECKPOINTS = "metrics.jsonl", "status.json", "checkpoints"
ANALYSIS, REPORT, PERSONAL = "analysis", "report", "personal"
REMOVED = "removed.json"  # rounds whose checkpoints were deleted on purpose
SMALL_FILES = (CONFIG, PARTITION, PROVENANCE, METRICS)  # status.json keeps their fingerprints
TENSOR_FILES = tuple(f"{name}.safetensors" for name in ("global", "locals", "server", "clients"))

MARKS = (CONFIG, STATUS, PARTITION, CHECKPOINTS)  # one of these makes a folder a run, perhaps a damaged one
DEPTH = 3  # levels of folders below a given one in which runs are looked for

Count = Annotated[int, Field(ge=0)]
State = Literal["running", "finished", "diverged"]


class Status(TypedDict):
    """The content of status.json: how far training came."""

    format: int
    state: State
    round: int  # finished rounds
    message: str  # why it diverged
    files: dict[str, Fingerprint]


class Meta(TypedDict):
    """The content of a checkpoint's meta.json."""

    format: int
    round: int
    files: dict[str, Fingerprint]
    cohort: NotRequired[list[int]]
    sizes: NotRequired[list[int]]
    captured: NotRequired[int]
    forgotten: NotRequired[bool]


class _FingerprintModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    bytes: Count
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class _SealedModel(BaseModel):
    """What a sealed file must hold; other entries are allowed."""

    model_config = ConfigDict(strict=True, extra="allow")


class _StatusModel(_SealedModel):
    state: State
    round: Count
    message: str
    files: dict[str, _FingerprintModel]


class _MetaModel(_SealedModel):
    round: Count
    files: dict[str, _FingerprintModel]
    cohort: list[Count] = []
    sizes: list[Count] = []
    captured: Count = 0
    forgotten: bool = False


def find_runs(given: Sequence[Path]) -> list[Path]:
    """Find the runs that the paths on a command line refer to, without duplicates.

    given: run directories, folders that hold runs, or patterns such as "runs/*sam*".

    Where several paths are given, analysis/ and report/ folders beside runs are skipped: a shell's * names them too.
    """
    found: dict[Path, None] = {}
    for path in given:
        if len(given) > 1 and path.name in (ANALYSIS, REPORT) and not is_run(path):
            continue
        found.update(dict.fromkeys(_find_at(path)))
    if not found:
        raise ValueError(f"no run among {', '.join(map(str, given))}; expected run directories, or folders of them")
    return list(found)


def _find_at(path: Path) -> list[Path]:
    if path.exists() or not glob.has_magic(str(path)):
        return [path] if is_run(path) else sorted(runs_in(path)) or [require_run(path)]
    runs = [run for match in expand_pattern(path) for run in ([match] if is_run(match) else sorted(runs_in(match)))]
    if not runs:
        raise ValueError(f"{path}: no run directory matches this pattern{_suggest(sorted(runs_in(path.parent)))}")
    return runs


def expand_pattern(path: Path) -> list[Path]:
    """Return the paths that match a pattern with * ? or [ ]; a path that exists is returned as it is."""
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    return [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]


def is_run(path: Path) -> bool:
    """Tell whether a path is a run directory, perhaps a damaged one."""
    return path.is_dir() and any((path / name).exists() for name in MARKS)


def has_recipe(path: Path) -> bool:
    """Tell whether a path is a run directory with a recipe."""
    return (path / CONFIG).exists()


def require_run(path: Path) -> Path:
    """Return `path` if it is a run directory; otherwise raise ValueError that lists runs nearby."""
    if is_run(path):
        return path
    wanted = "expected a run directory, such as landscape train makes under runs/"
    if not path.exists():
        raise ValueError(f"{path} does not exist; {wanted}{_suggest(sorted(runs_in(path.parent)))}")
    if not path.is_dir():
        raise ValueError(f"{path} is a file; {wanted}{_suggest(sorted(runs_in(path.parent)))}")
    raise ValueError(f"{path} is not a run, it has no {CONFIG}; {wanted}{_suggest(sorted(runs_in(path)))}")


def runs_in(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Yield the run directories in a folder and in its folders, in no particular order.

    depth: how many levels of folders to look into.
    """
    if not folder.is_dir() or not depth:
        return
    for path in folder.iterdir():
        if path.name.startswith(".") or not path.is_dir():
            continue
        if has_recipe(path):
            yield path
        else:
            yield from runs_in(path, depth - 1)


def _suggest(runs: Sequence[Path]) -> str:
    if not runs:
        return ""
    more = f"\n  ... and {len(runs) - 10} more" if len(runs) > 10 else ""
    return ". Runs near there:" + "".join(f"\n  {run}" for run in runs[:10]) + more


def read_settings(run: Path) -> dict[str, object]:
    """Read the recipe of a run as nested tables, without checking names and settings."""
    return toml.read(run / CONFIG)


def read_provenance(run: Path) -> Json:
    """Read the provenance of a run: format, digests, package versions, executor."""
    path = run / PROVENANCE
    content = parse_object(read_small(path))
    if content is None:
        raise DamagedError(f"{path}: not readable; remove this file, and training writes it again")
    require_format(content, path)
    return content


def read_adopted_rounds(run: Path) -> list[int]:
    """Read the rounds that an adopted run was made of: another framework may save its models in any round."""
    found = read_provenance(run).get("adopted")
    rounds = found.get("rounds") if isinstance(found, dict) else None
    if not isinstance(rounds, list) or not all(type(one) is int for one in rounds):
        raise DamagedError(f"{run / PROVENANCE}: does not tell the rounds that were adopted; adopt the run again")
    return rounds


def read_status(run: Path) -> Status:
    """Read the status of a run; DamagedError if status.json is missing, changed or incomplete."""
    return cast(Status, _read_sealed(run / STATUS, run, _StatusModel))


def write_status(run: Path, state: State, round: int, message: str = "") -> None:
    """Write the status of a run, with the fingerprints of its small files.

    state: running, finished or diverged. round: finished rounds. message: why it diverged.

    The fingerprint of metrics.jsonl is written only at the end, since the file grows while the run is running.
    """
    about = {"format": FORMAT, "state": state, "round": round, "message": message}
    before: Mapping[str, object] = {}
    with contextlib.suppress(DamagedError):
        before = read_status(run)
    if state != "running" and about == {key: before.get(key) for key in about}:
        return  # written already: hashing the files again would hide damage done since
    names = [name for name in SMALL_FILES if state != "running" or name != METRICS]
    prints = {name: fingerprint(run / name) for name in names}
    write_atomically(run / STATUS, seal({**about, "files": prints}).encode())


def checkpoint_path(run: Path, round: int) -> Path:
    """Return the folder of a round's checkpoint, whether it exists or not."""
    return run / CHECKPOINTS / f"round_{round:06d}"


def checkpoint_rounds(run: Path) -> list[int]:
    """List the rounds that have a checkpoint, ascending."""
    numbers = [path.name.removeprefix("round_") for path in (run / CHECKPOINTS).glob("round_*")]
    return sorted(int(number) for number in numbers if _is_round(number))


def record_removed(run: Path, rounds: Sequence[int]) -> None:
    """Record that checkpoints were deleted on purpose, so that `landscape check` does not miss them.

    rounds: of the checkpoints that are about to be deleted.
    """
    known = sorted({*removed_rounds(run), *rounds})
    write_atomically(run / REMOVED, seal({"format": FORMAT, "rounds": known}).encode())


def removed_rounds(run: Path) -> list[int]:
    """List the rounds whose checkpoints were deleted on purpose."""
    if not (run / REMOVED).exists():
        return []
    require_inside(run / REMOVED, run)
    found = read_sealed(run / REMOVED).get("rounds")
    if not isinstance(found, list) or not all(isinstance(one, int) for one in found):
        raise DamagedError(f"{run / REMOVED}: expected a list of rounds")
    return found


def _is_round(number: str) -> bool:
    return number.isascii() and number.isdecimal() and len(number) < 19 and number == f"{int(number):06d}"


def read_meta(checkpoint: Path) -> Meta:
    """Read the description of a checkpoint: its round, its files with their fingerprints, the cohort.

    checkpoint: the folder, from `checkpoint_path`.
    """
    run = checkpoint.parents[1]
    path = checkpoint / "meta.json"
    meta = cast(Meta, _read_sealed(path, run, _MetaModel))
    if checkpoint.name != checkpoint_path(run, meta["round"]).name:
        raise DamagedError(f"{checkpoint}: holds round {meta['round']}, not the one in its name")
    for name in meta["files"]:
        if name not in TENSOR_FILES:
            raise DamagedError(f"{path}: names '{name[:80]}', expected one of {', '.join(TENSOR_FILES)}")
        require_inside(checkpoint / name, run)
    if "global.safetensors" not in meta["files"]:
        raise DamagedError(f"{path}: names no global.safetensors, which every checkpoint has")
    return meta


def _read_sealed(path: Path, run: Path, kind: type[_SealedModel]) -> Json:
    """Read a sealed file of a run whose entries have the expected types."""
    require_inside(path, run)
    content = read_sealed(path)
    require_format(content, path)
    try:
        kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        entry = ".".join(str(part) for part in first["loc"])
        raise DamagedError(f"{path}: '{entry[:80]}' is not valid ({first['msg']})") from None
    return content


def list_rounds(rounds: Sequence[int]) -> str:
    """Write rounds as text, shortened in the middle.

    >>> list_rounds(range(0, 10001, 500))
    '0, 500, 1000, ..., 10000 (21 of them)'
    """
    if len(rounds) <= 12:
        return ", ".join(map(str, rounds))
    return f"{', '.join(map(str, rounds[:3]))}, ..., {rounds[-1]} ({len(rounds)} of them)"
