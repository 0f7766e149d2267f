"""A run directory that is trained, killed, damaged and looked at, and what must hold after each step."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.fuzz import commands
from tests.fuzz.commands import Done
from training import config

LONG = "LANDSCAPE_FUZZ" in os.environ  # `make fuzz` sets it
METHODS = {"fedavg": '[algorithm]\nname = "fedavg"\n[swa]\nstart = 0.4\ncycle = 1\n', "feddyn": "", "scaffold": ""}
RECIPE = """
{algorithm}
[data]
name = "digits"
[model]
name = "mlp"
hidden = [2]
[partition]
name = "dirichlet_total"
clients = 5
alpha = 0.5
[local]
lr = 0.1
batch_size = 32
steps = 1
[rounds]
count = 6
participants = 3
[checkpoints]
every = 2
"""
TRAIN = ("train", "recipe.toml", "--backend", "serial")
ANSWERS = (
    "analysis/",
    "personal/",
)  # nobody says which there should be: one that was removed is made again if asked for
LEFTOVERS = ("**/.*.tmp", "**/.lock*", "lock")


class Directory:
    """One recipe in one folder, and what was done to its run's files from outside."""

    def __init__(self, method: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="machine-"))
        text = RECIPE.format(algorithm=METHODS[method] or f'[algorithm]\nname = "{method}"')
        (self.folder / "recipe.toml").write_text(text)
        (recipe,) = config.load(self.folder / "recipe.toml")
        self.method, self.name = method, f"runs/{recipe.slug}"
        self.damaged: dict[str, bytes | None] = {}  # relative path -> what was put there; None: the file was removed

    @property
    def run(self) -> Path:
        return self.folder / self.name

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def do(self, *words: str, kill_at: int | None = None) -> Done:
        """A command, and what holds after every one."""
        before = self.leftovers()
        return self.judge(commands.run(self.folder, *words, kill_at=kill_at), before, killed=kill_at is not None)

    def judge(self, done: Done, before: dict[Path, float], *, killed: bool = False) -> Done:
        """Only known exit codes, one clear line for a refusal, nothing half-written after success.

        before: leftovers of earlier commands; one that finds nothing to do may leave them to the next that writes.
        """
        assert "Traceback" not in done.out + done.err, done
        assert done.code in ((0, 1, 2, -9) if killed else (0, 1, 2)), done
        if done.code == 2 or (done.code == 1 and done.words[0] != "check"):
            assert len(done.err.strip().splitlines()) == 1, done
            assert done.err.startswith("error: "), done
            assert len(done.err) < 1000, done
        if done.code == 0:
            assert not done.err, done
            new = [path for path, time in self.leftovers().items() if before.get(path) != time]
            assert not new, f"{new} after {done}"
        return done

    def leftovers(self) -> dict[Path, float]:
        """Locks and half-written files, with their times."""
        found = [path for pattern in LEFTOVERS for path in self.run.glob(pattern)]
        return {path: path.stat().st_mtime for path in found}

    def train(self) -> Done:
        """Train to the end; what is then there is what an undisturbed run has, but for what is still damaged."""
        done = self.do(*TRAIN)
        if done.code:
            named = [name for name in self.still_damaged() if Path(name).name in done.err or str(self.run) in done.err]
            assert named, f"refused without a reason: {done}"
        else:
            self.assert_same(done)
        return done

    def assert_same(self, done: Done) -> None:
        """Every checkpoint is what an undisturbed run has, to the byte."""
        wanted, found = reference(self.method), hashes(self.run)
        damaged = self.still_damaged()
        passed_over = {str(Path(name).parent) for name in damaged if name.startswith("checkpoints/")}
        for name in sorted({*wanted, *found}):
            if name not in damaged and str(Path(name).parent) not in passed_over:
                assert found.get(name) == wanted.get(name), f"{name} is another one after {done}"

    def still_damaged(self) -> list[str]:
        """Files that are as the damage left them."""
        return [name for name, content in self.damaged.items() if read(self.run / name) == content]

    def damage(self, choose: Callable[[list[str]], str], how: Callable[[bytes], bytes | None]) -> str:
        """Change or remove one of the run's files; returns its name."""
        names = sorted(str(path.relative_to(self.run)) for path in self.run.rglob("*") if protected(path, self.run))
        if not names:
            return ""
        name = choose(names)
        data = (self.run / name).read_bytes()
        spoilt = how(data)
        if spoilt == data:
            return ""
        self.damaged.pop(name, None)
        if spoilt is None:
            (self.run / name).unlink()
        else:
            (self.run / name).write_bytes(spoilt)
        if spoilt is not None or not name.startswith(ANSWERS):
            self.damaged[name] = spoilt
        return name

    def check(self) -> Done:
        """`check` names every file that is still damaged, and finds nothing where nothing is."""
        done = self.do("check", self.name)
        damaged = self.still_damaged()
        if not self.run.exists() or done.code == 2:
            assert done.code == 2, done
            assert not (self.run / "config.toml").exists(), done
            return done
        for name in damaged:
            path = self.run / name
            assert name in done.out or str(path.parent.relative_to(self.folder)) in done.out, f"{name}: {done}"
        if not damaged and (self.run / "status.json").exists():
            assert done.code == 0, done
        assert done.code == 0 or done.out.strip(), done
        return done


def protected(path: Path, run: Path) -> bool:
    """Whether a file holds something of worth: not a lock, nor a report, which can be made again."""
    hidden = any(part.startswith(".") for part in path.relative_to(run).parts)
    made = path.relative_to(run).parts[0] in ("report", "lock", "partition.png")
    return path.is_file() and not hidden and not made and ".damaged" not in path.name


def read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def hashes(run: Path) -> dict[str, str]:
    """SHA-256 of every file of every checkpoint, and of the settings and the partition."""
    paths = [*run.glob("checkpoints/*/*"), run / "config.toml", run / "partition.npz"]
    found = [path for path in paths if path.is_file() and not path.parent.name.startswith(".")]
    return {str(path.relative_to(run)): digest(path) for path in found}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@functools.cache
def reference(method: str) -> dict[str, str]:
    """The hashes of a run that nobody disturbed; made once."""
    undisturbed = Directory(method)
    try:
        done = undisturbed.do(*TRAIN)
        assert done.code == 0, done
        found = hashes(undisturbed.run)
    finally:
        undisturbed.close()
    assert len([name for name in found if name.endswith("meta.json")]) == 4, found
    return found
