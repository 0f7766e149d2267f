"""Killed at any moment and run again, a run ends as if nothing had happened; damage is found, named and survived.

Run as a script, this file trains in forked children and kills them: see `kill_everywhere`.
"""

from __future__ import annotations

import ast
import dataclasses
import errno
import fcntl
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from training import config, verification
from training.engine.run import train
from training.storage import atomic_files, checkpoint, metrics, run_directory
from training.storage.atomic_files import DamagedError
from training.storage.checkpoint import Checkpoint

ROOT = Path(__file__).resolve().parents[3]

# server and client state, momentum, SWA whose average begins between two checkpoints, clients that never take part
TINY = {
    "data": {
        "name": "synthetic",
        "examples": 60,
        "test_examples": 20,
        "classes": 3,
        "shape": [1, 2, 2],
        "separation": 2.0,
    },
    "model": {"name": "mlp", "hidden": [3]},
    "partition": {"name": "dirichlet_total", "alpha": 1.0, "clients": 7},
    "algorithm": {"name": "scaffold+sam"},
    "local": {"lr": 0.1, "batch_size": 8, "momentum": 0.5},
    "rounds": {"count": 5, "participants": 2},
    "swa": {"start": 0.3, "cycle": 2},
    "checkpoints": {"every": 2, "keep_locals": "all"},
}


def recipe(**changes):
    return config.validate({**TINY, **changes})


SHORT = recipe(rounds={"count": 3, "participants": 2})


def run(out, given=None, **options):
    """Train and return the directory and what was said."""
    said: list[str] = []
    path = train(given or recipe(), out, **{"backend": "serial", "on_message": said.append, **options})
    return path, said


def content(path):
    """Every file of a run by name, without what time alone decides."""
    found = {str(one.relative_to(path)): one.read_bytes() for one in sorted(path.rglob("*")) if one.is_file()}
    records = [json.loads(line) for line in found.pop("metrics.jsonl").splitlines()]
    assert all(record.pop("seconds") >= 0 and record.pop("seal") for record in records)
    status = json.loads(found.pop("status.json"))
    assert status.pop("sha256")
    assert status["files"].pop("metrics.jsonl")
    return {**found, "metrics": json.dumps(records), "status": json.dumps(status)}


def differences(path, wanted):
    """Names of the files in which a run is not what it should be, and what `check` has to say."""
    found = content(path)
    names = [name for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name)]
    return names + verification.check_run(path)


class Stop(Exception):  # noqa: N818
    """What ends a training in the same process."""


def stop_after(round):
    def watch(record):
        if record["round"] == round:
            raise Stop

    return watch


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """An uninterrupted run."""
    return run(tmp_path_factory.mktemp("finished"))[0]


@pytest.fixture(scope="module")
def truth(finished):
    return content(finished)


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the finished run."""
    return Path(shutil.copytree(finished, tmp_path / finished.name))


@pytest.fixture
def stopped(finished, tmp_path):
    """A run that was stopped after round 4, the last but one."""
    with pytest.raises(Stop):
        run(tmp_path, on_round=stop_after(4))
    assert run_directory.checkpoint_rounds(tmp_path / finished.name) == [0, 2, 4]
    return tmp_path / finished.name


def test_a_finished_run_is_sound_and_complete(finished, truth):
    assert verification.check_run(finished) == []
    assert run_directory.checkpoint_rounds(finished) == [0, 2, 4, 5]
    assert json.loads(truth["status"])["state"] == "finished"
    last = checkpoint.load(run_directory.checkpoint_path(finished, 5))
    assert {"server", "mean", "swa", "statistics"} <= set(last.models)
    assert set(last.server) == {"global_control"}
    assert len(last.locals) == 2
    assert 2 < len(last.clients) < 7  # so clients without state are part of every comparison below


def test_a_finished_run_is_left_alone(copied):
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    run(copied.parent, on_round=stop_after(1))
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("every", [1, 2, 3])
def test_resumed_at_every_round(tmp_path, every):
    given = recipe(checkpoints={"every": every, "keep_locals": "last"})
    whole, _ = run(tmp_path / "whole", given)
    pieces = tmp_path / "pieces"
    for round in range(1, 5):
        with pytest.raises(Stop):
            run(pieces, given, on_round=stop_after(round))
        assert verification.check_run(pieces / whole.name) == []
    path, said = run(pieces, given)
    assert said == [f"resuming from round {4 - 4 % every}"]
    assert differences(path, content(whole)) == []


@pytest.mark.parametrize("algorithm", ["fedadam", "feddyn", "fednova", "mofedsam"])
def test_resumed_with_norm_layers_and_other_states(tmp_path, monkeypatch, algorithm):
    (tmp_path / "normed.py").write_text(
        "from torch import nn\n"
        "def model(classes, channels, size):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    given = recipe(
        algorithm={"name": algorithm},
        model={"name": "normed:model"},
        local={"lr": 0.1, "batch_size": 5},  # no batch of one, which has no variance
    )
    whole, _ = run(tmp_path / "whole", given)
    assert checkpoint.load(run_directory.checkpoint_path(whole, 5)).models["statistics"].numel() >= 10
    with pytest.raises(Stop):
        run(tmp_path / "pieces", given, on_round=stop_after(3))
    path, _ = run(tmp_path / "pieces", given)
    assert differences(path, content(whole)) == []


def test_killed_between_any_two_calls_of_the_file_system(tmp_path):
    """A child is killed before its n-th change of the disk, for every n, sometimes again while it resumes."""
    answer = in_script("everywhere", tmp_path)
    assert len(answer) > 60
    assert {kill["event"] for kill in answer} >= {"open", "os.mkdir", "os.rename", "half", "fsync"}
    assert [kill for kill in answer if kill["problems"]] == []


def test_killed_from_outside_after_any_line_of_metrics(tmp_path):
    answer = in_script("outside", tmp_path)
    assert len(answer) == 9
    assert [kill for kill in answer if kill["problems"]] == []


def in_script(what, folder):
    """What this file answers as a script; forking is safe only in a process without threads."""
    command = [sys.executable, __file__, what, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_worker_processes_end_with_a_killed_parent_and_another_backend_finishes(tmp_path, truth):
    script = (
        "from pathlib import Path; import sys; from training import config; from training.engine.run import train\n"
        "if __name__ == '__main__':\n"
        "    train(config.load(sys.argv[1])[0], Path(sys.argv[2]), backend='processes', workers=2)\n"
    )
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "recipe.toml").write_text(config.dump(recipe()))
    command = [sys.executable, "script.py", "recipe.toml", "."]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    path = tmp_path / recipe().slug
    with open(tmp_path / "log", "w") as log:
        child = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=log, stdout=log, start_new_session=True)
    try:
        wait(lambda: lines(path) >= 1 or child.poll() is not None)
        child.kill()
        assert child.wait() == -signal.SIGKILL
        wait(lambda: not alive(child.pid))  # the whole group: the workers see that nobody is there any more
    finally:
        if alive(child.pid):
            os.killpg(child.pid, signal.SIGKILL)
    run(tmp_path)
    assert differences(path, truth) == []


def alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def wait(ready, seconds=60):
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.001)


def lines(path):
    metrics = path / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def test_a_line_of_metrics_cut_short(stopped, truth):
    whole = (stopped / "metrics.jsonl").read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    shutil.rmtree(
        run_directory.checkpoint_path(stopped, 4)
    )  # the line is written first, so a cut line has no checkpoint
    for length in (0, 1, len(last) // 2, len(last) - 1):
        (stopped / "metrics.jsonl").write_bytes(whole[: len(whole) - len(last) + length])
        assert len(metrics.read(stopped)) == 3
        assert verification.check_run(stopped) == []
    run(stopped.parent)
    assert differences(stopped, truth) == []


def flip(path, place, mask=0xFF):
    data = bytearray(path.read_bytes())
    data[place] ^= mask
    path.write_bytes(data)


DAMAGES = {
    "first byte": lambda path: flip(path / "global.safetensors", 0),
    "middle of the header": lambda path: flip(path / "clients.safetensors", 40, 1),
    "last byte": lambda path: flip(path / "locals.safetensors", -1, 1),
    "truncated": lambda path: os.truncate(path / "server.safetensors", 100),
    "empty": lambda path: os.truncate(path / "global.safetensors", 0),
    "longer": lambda path: os.truncate(path / "global.safetensors", 10_000),
    "missing": lambda path: (path / "clients.safetensors").unlink(),
    "meta flipped": lambda path: flip(path / "meta.json", 12),
    "meta not an object": lambda path: (path / "meta.json").write_text("[1]"),
    "meta not text": lambda path: (path / "meta.json").write_bytes(bytes(range(256))),
    "meta empty": lambda path: os.truncate(path / "meta.json", 0),
    "meta missing": lambda path: (path / "meta.json").unlink(),
    "everything missing": lambda path: (shutil.rmtree(path), path.mkdir()),
    "a file in its place": lambda path: (shutil.rmtree(path), path.write_text("here")),
    "another round in its place": lambda path: (
        shutil.rmtree(path),
        shutil.copytree(run_directory.checkpoint_path(path.parents[1], 2), path),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_is_named_and_passed_over(stopped, truth, damage):
    DAMAGES[damage](run_directory.checkpoint_path(stopped, 4))
    (problem,) = verification.check_run(stopped)
    assert str(run_directory.checkpoint_path(stopped, 4)) in problem
    path, said = run(stopped.parent)
    assert said == [f"damaged, skipped: {problem}", "resuming from round 2"]
    assert differences(path, truth) == []


def test_all_checkpoints_damaged_means_to_begin_again(stopped, truth):
    for round in (0, 2, 4):
        flip(run_directory.checkpoint_path(stopped, round) / "global.safetensors", -1)
    assert len(verification.check_run(stopped)) == 3
    path, said = run(stopped.parent)
    assert [line.split("round_")[1][:6] for line in said] == ["000004", "000002", "000000"]
    assert differences(path, truth) == []


def test_the_last_checkpoint_of_a_finished_run_is_made_again(copied, truth):
    flip(run_directory.checkpoint_path(copied, 5) / "locals.safetensors", -1)
    _, said = run(copied.parent)
    assert said[1:] == ["resuming from round 4"]
    assert differences(copied, truth) == []


def test_an_older_damaged_checkpoint_is_named_but_stands_in_nobodys_way(stopped, truth):
    flip(run_directory.checkpoint_path(stopped, 2) / "global.safetensors", -1)
    path, said = run(stopped.parent)
    assert said == ["resuming from round 4"]
    (name, problem) = differences(path, truth)
    assert name == "checkpoints/round_000002/global.safetensors"
    assert name in problem


@pytest.mark.parametrize(
    "name",
    [
        "round_x",
        "round_4",
        "round_000004.old",
        "round_",
        "round_-00004",
        "round_\u0660\u0660\u0660\u0660\u0660\u0667",
        "x",
    ],
)
def test_other_names_among_the_checkpoints_are_told_and_ignored(stopped, truth, name):
    (stopped / "checkpoints" / name).mkdir()
    assert run_directory.checkpoint_rounds(stopped) == [0, 2, 4]
    assert verification.check_run(stopped) == [f"{stopped / 'checkpoints' / name}: not a checkpoint"]
    path, said = run(stopped.parent)
    assert said == ["resuming from round 4"]
    (stopped / "checkpoints" / name).rmdir()
    assert differences(path, truth) == []


def test_a_lost_checkpoint_is_noticed(copied):
    shutil.rmtree(run_directory.checkpoint_path(copied, 2))
    assert verification.check_run(copied) == [f"{run_directory.checkpoint_path(copied, 2)}: missing"]


@given(st.data())
@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_byte_of_any_file_that_changes_is_found(finished, data):
    name = data.draw(st.sampled_from(sorted(path for path in finished.rglob("*") if path.is_file())))
    size = name.stat().st_size
    place = data.draw(st.integers(0, size - 1))
    before = name.read_bytes()
    try:
        flip(name, place, data.draw(st.integers(1, 255)))
        problems = verification.check_run(finished)
    finally:
        name.write_bytes(before)
    assert any(str(name) in problem for problem in problems), (name, place)
    assert all(str(finished) in problem for problem in problems)


def test_any_file_that_is_cut_or_gone_is_found(finished):
    for name in sorted(path for path in finished.rglob("*") if path.is_file()):
        before = name.read_bytes()
        try:
            for length in (0, len(before) // 2, len(before) - 1):
                name.write_bytes(before[:length])
                assert any(str(name) in problem for problem in verification.check_run(finished)), (name, length)
            name.unlink()
            assert any(str(name) in problem for problem in verification.check_run(finished)), name
        finally:
            name.write_bytes(before)
    assert verification.check_run(finished) == []


def test_training_a_damaged_finished_run_does_not_bless_it(copied):
    provenance = copied / "provenance.json"
    provenance.write_text(provenance.read_text().replace('"numpy": "', '"numpy": "9'))
    before = verification.check_run(copied)
    run(copied.parent)
    assert verification.check_run(copied) == before != []


def test_an_empty_folder_is_no_run(tmp_path):
    assert len(verification.check_run(tmp_path)) >= 4
    assert checkpoint.load_newest(tmp_path) == (None, [])


def test_damaged_metrics_say_what_to_do(stopped, truth):
    flip(stopped / "metrics.jsonl", 2)
    with pytest.raises(DamagedError, match=r"metrics\.jsonl: line 1 is not the record of round 1; end the file before"):
        run(stopped.parent)
    os.truncate(stopped / "metrics.jsonl", 0)
    assert "ends at round 0, but round 4 was reached" in verification.check_run(stopped)[0]
    with pytest.raises(DamagedError, match=r"ends at round 0, but there is a checkpoint of round 4; remove the checkp"):
        run(stopped.parent)
    for round in (2, 4):
        shutil.rmtree(run_directory.checkpoint_path(stopped, round))
    run(stopped.parent)
    assert differences(stopped, truth) == []


def test_damaged_provenance_says_what_to_do(stopped, truth):
    (stopped / "provenance.json").write_text("{")
    with pytest.raises(DamagedError, match=r"provenance\.json: not readable; remove this file, and training writes it"):
        run(stopped.parent)
    (stopped / "provenance.json").unlink()
    run(stopped.parent)
    assert differences(stopped, truth) == []


class Full:
    """A file on a disk that takes so many bytes more."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, piece):
        data = memoryview(bytes(piece))
        self.file.write(data[: self.room[0]])
        self.room[0] -= len(data)
        if self.room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize("room", [0, 300, 1500, 2800])
def test_a_full_disk_keeps_what_was_there(stopped, truth, monkeypatch, room):
    """Full in the middle of metrics, of the first, the second and the last file of a checkpoint."""
    left = [room]

    def opened(path, mode):
        return Full(open(path, mode), left)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "open", opened, raising=False)
        patch.setattr(metrics, "open", opened, raising=False)
        patch.setattr(run_directory, "write_status", lambda *_: None)
        with pytest.raises(
            OSError, match=r"could not be written \(No space left on device\); what was saved before is"
        ):
            run(stopped.parent)
    assert left[0] < 0
    assert run_directory.checkpoint_rounds(stopped) == [0, 2, 4]
    assert verification.check_run(stopped) == []
    assert list(stopped.rglob("*.tmp")) == []
    assert not run_directory.checkpoint_path(stopped, 5).exists()
    path, said = run(stopped.parent)
    assert said == ["resuming from round 4"]
    assert differences(path, truth) == []


def test_a_limit_of_the_kernel_is_told_like_a_full_disk(tmp_path):
    vectors = {"server": torch.arange(5000.0), "statistics": torch.zeros(0)}
    first = Checkpoint(0, vectors, {}, {}, {}, {"captured": 0})
    checkpoint.save(tmp_path, first)
    (tmp_path / "metrics.jsonl").write_text("")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        with pytest.raises(OSError, match=r"the checkpoint of round 1 in .* could not be written \(File too large\)"):
            checkpoint.save(tmp_path, dataclasses.replace(first, round=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["round_000000"]
    assert torch.equal(checkpoint.load(run_directory.checkpoint_path(tmp_path, 0)).models["server"], vectors["server"])


def test_what_killed_processes_leave_is_removed_at_the_next_start(stopped, truth):
    (stopped / ".config.toml.99999.tmp").write_text("half")
    (stopped / "checkpoints" / ".round_000005.99999.tmp").mkdir()
    (stopped / "checkpoints" / ".round_000005.99999.tmp" / "global.safetensors").write_text("half")
    assert verification.check_run(stopped) == []
    run(stopped.parent)
    assert differences(stopped, truth) == []


@pytest.mark.parametrize("kept", [(), ("partition.npz",), ("partition.npz", "provenance.json")])
def test_a_half_created_directory_is_begun_anew(tmp_path, truth, finished, kept):
    path = tmp_path / finished.name
    path.mkdir()
    for name in kept:
        (path / name).write_text("of another day")
    run(tmp_path)
    assert differences(path, truth) == []


def test_a_directory_of_another_recipe_is_refused(stopped):
    (stopped / "config.toml").write_text(config.dump(recipe(seed=1)))
    with pytest.raises(ValueError, match=r"holds a run of another recipe .*: choose another --out, or remove it"):
        run(stopped.parent)


def test_other_data_under_the_same_recipe_are_refused(tmp_path, monkeypatch):
    (tmp_path / "shifting.py").write_text(
        "import torch\n"
        "pixels = 1.0\n"
        "def data():\n"
        "    images = pixels * torch.arange(80.0).reshape(20, 1, 2, 2)\n"
        "    return (images, torch.arange(20) % 3), (images, torch.arange(20) % 3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    given = recipe(data={"name": "shifting:data"})
    with pytest.raises(Stop):
        run(tmp_path, given, on_round=stop_after(2))
    sys.modules["shifting"].pixels = 2.0
    with pytest.raises(
        ValueError, match=r"was begun with other data \(data_digest differs\): give the data.root it was"
    ):
        run(tmp_path, given)


def test_an_intact_checkpoint_of_the_same_round_is_not_replaced(copied):
    """A run that diverges saves where it stands, perhaps over a checkpoint that has local models."""
    found = checkpoint.load(run_directory.checkpoint_path(copied, 4))
    checkpoint.save(copied, dataclasses.replace(found, locals={}))
    assert len(checkpoint.load(run_directory.checkpoint_path(copied, 4)).locals) == 2
    assert verification.check_run(copied) == []


def test_tensors_come_back_as_they_went_and_others_can_read_them(tmp_path):
    w = torch.randn(7, generator=torch.Generator().manual_seed(0))
    stack = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
    vectors = {
        "server": w,
        "swa": w,  # the same memory under two names
        "strided": w[::2],
        "row": stack[1],
        "none": w[:0],
        'odd "name" é': torch.tensor([float("nan"), float("inf"), -0.0]),
    }
    (tmp_path / "metrics.jsonl").write_text("")
    saved = Checkpoint(3, vectors, {7: w}, {"m": w}, {0: {"a": w}, 12: {"a": -w, "b/c": w}}, {"cohort": [0, 12]})
    path = checkpoint.save(tmp_path, saved)
    found = checkpoint.load(path)
    assert (found.round, found.extra) == (3, {"cohort": [0, 12]})
    assert set(found.clients) == {0, 12}
    for one, other in (
        (found.models, vectors),
        (found.locals, {7: w}),
        (found.server, {"m": w}),
        (found.clients[12], {"a": -w, "b/c": w}),
    ):
        assert one.keys() == other.keys()
        for name, vector in one.items():
            assert vector.dtype == other[name].dtype
            assert vector.numpy().tobytes() == other[name].contiguous().numpy().tobytes()
    with safe_open(path / "global.safetensors", framework="numpy") as file:
        assert set(file.keys()) == set(vectors)
        assert file.get_tensor("strided").tolist() == w[::2].tolist()


def test_a_checkpoint_without_state_is_a_file_too(tmp_path):
    path = checkpoint.save(tmp_path, Checkpoint(0, {"server": torch.zeros(1)}, {}, {}, {}, {}))
    assert sorted(one.name for one in path.iterdir()) == ["global.safetensors", "meta.json"]
    assert checkpoint.load(path).server == {}


MODULES = {"pickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {"torch.load", "torch.jit.load", "torch.hub.load", "eval", "exec", "__import__", "np.load", "numpy.load"}
ERRORS = {"pickle.PicklingError", "pickle.UnpicklingError"}


def unsafe(source):
    """What in a piece of source can run what a file says: uses of such modules, names of them, calls."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            found += [name] if name.partition(".")[0] in MODULES and name not in ERRORS else []
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            module = (node.module or "").partition(".")[0]
            found += [f"from {module}"] if module in MODULES or (module == "torch" and "load" in names) else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS:
            given = {word.arg: ast.unparse(word.value) for word in node.keywords}
            safe = given.get("allow_pickle") == "False" or given.get("weights_only") == "True"
            found += [] if safe else [ast.unparse(node.func)]
    return found


def test_nothing_loads_pickles():
    looked = 0
    for package in ("landscape", "training", "analysis", "reports"):
        for path in sorted((ROOT / package).rglob("*.py")):
            looked += 1
            found = unsafe(path.read_text(encoding="utf-8"))
            if path == ROOT / "training" / "data" / "formats" / "pickles.py":
                assert found == ["pickle.Unpickler"]  # its own, which knows bytes, lists and numbers only
            else:
                assert found == [], path
    assert looked > 40


@pytest.mark.parametrize(
    "source",
    [
        "import torch; torch.load(x)",
        "from torch import load",
        "import pickle; pickle.load(x)",
        "import pickle; f = pickle.loads",
        "from pickle import loads",
        "np.load(x)",
        "np.load(x, allow_pickle=True)",
        "import joblib; joblib.load(x)",
        "eval(x)",
    ],
)
def test_the_search_for_pickles_finds_them(source):
    assert unsafe(source)
    assert not unsafe("np.load(x, allow_pickle=False)")


class Killer:
    """Counts what this process changes on the disk, and kills it before the n-th change, or in the middle of it."""

    def __init__(self, folder, deadline):
        self.folder, self.deadline, self.count = str(folder), deadline, 0
        sys.addaudithook(self.audit)
        os.fsync = self.fsync

    def audit(self, event, arguments):
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        changes = writes or event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
        if changes and str(arguments[0]).startswith(self.folder):
            self.tick(event)

    def fsync(self, handle):
        """A file that is being flushed is there in part, and then whole."""
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_WRONLY:
            self.tick("half", lambda: os.ftruncate(handle, os.fstat(handle).st_size // 2))
        self.tick("fsync")

    def tick(self, event, before=lambda: None):
        self.count += 1
        if self.count == self.deadline:
            before()
            Path(self.folder, "event").write_text(event)
            os.kill(os.getpid(), signal.SIGKILL)


def child(folder, deadline=None, pause=0.0):
    """Train in a forked child, perhaps to be killed; returns its process id."""
    process = os.fork()
    if process:
        return process
    try:
        if deadline is not None:
            Killer(folder, deadline)
        run(folder, SHORT, on_round=lambda record: time.sleep(pause))
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)


def ended(process):
    """How a child ended: its exit code, or minus its signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def kill_everywhere(root, wanted):
    """Kill before every change of the disk, every third time kill the resuming child too, and let the last finish."""
    answer = []
    for deadline in itertools.count(1):
        folder = root / str(deadline)
        folder.mkdir()
        code = ended(child(folder, deadline))
        if code == 0:
            return answer  # there were fewer changes
        event, path = (folder / "event").read_text(), folder / SHORT.slug
        broken = verification.check_run(path) if (path / "status.json").exists() else []  # sound at any moment
        again = [ended(child(folder, 1 + deadline % 20))] if deadline % 3 == 0 else []
        codes = [code, *again, ended(child(folder))]
        problems = [] if codes in ([-9, 0], [-9, -9, 0], [-9, 0, 0]) else [f"ended with {codes}"]
        problems += broken + differences(path, wanted)
        answer.append({"deadline": deadline, "event": event, "problems": problems})
        shutil.rmtree(folder)


def kill_from_outside(root, wanted):
    """Kill a child as soon as its metrics have n lines, or a little later, and let another finish."""
    answer = []
    for count, delay in itertools.product(range(3), (0.0, 0.003, 0.015)):
        folder = root / f"{count} {delay}"
        path = folder / SHORT.slug
        process = child(folder, pause=0.01)
        wait(lambda path=path, count=count: lines(path) >= count)
        time.sleep(delay)  # in the pause, in the checkpoint or in the next round
        os.kill(process, signal.SIGKILL)
        codes = [ended(process), ended(child(folder))]
        problems = [] if codes in ([-9, 0], [0, 0]) else [f"ended with {codes}"]  # the last may be done by then
        answer.append({"lines": count, "problems": problems + differences(path, wanted)})
    return answer


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.fsync = lambda handle: None
    place = Path(sys.argv[2])
    whole, _ = run(place / "whole", SHORT)
    tasks = {"everywhere": kill_everywhere, "outside": kill_from_outside}
    print(json.dumps(tasks[sys.argv[1]](place, content(whole))))


def test_only_the_newest_checkpoints_remember_the_clients(tmp_path):
    def save(round):
        checkpoint.save(tmp_path, Checkpoint(round, {"server": w}, {}, {"m": w}, {3: {"control": w}}, {}))
        checkpoint.forget_clients(tmp_path)

    w = torch.arange(4.0)
    (tmp_path / "metrics.jsonl").write_text("")
    for round in (0, 5, 10, 15):
        save(round)
    kept = [
        (run_directory.checkpoint_path(tmp_path, round) / "clients.safetensors").exists() for round in (0, 5, 10, 15)
    ]
    assert kept == [False, False, True, True]
    assert checkpoint.load(run_directory.checkpoint_path(tmp_path, 5)).clients == {}
    assert checkpoint.load(run_directory.checkpoint_path(tmp_path, 5)).server["m"].tolist() == w.tolist()
    assert checkpoint.load_newest(tmp_path)[0].round == 15
    flip(run_directory.checkpoint_path(tmp_path, 15) / "clients.safetensors", -1)
    assert checkpoint.load_newest(tmp_path)[0].round == 10
    flip(run_directory.checkpoint_path(tmp_path, 10) / "global.safetensors", -1)
    found, problems = checkpoint.load_newest(tmp_path)
    assert found is None  # the older ones are intact, but nobody can go on from them
    assert len(problems) == 2
    save(5)  # made again on the way, with memory
    assert checkpoint.load(run_directory.checkpoint_path(tmp_path, 5)).extra == {
        "forgotten": True
    }  # round 15 is still the newest


def test_a_kill_between_forgetting_and_removing_leaves_a_sound_run(tmp_path):
    w = torch.arange(4.0)
    (tmp_path / "metrics.jsonl").write_text("")
    for round in (0, 5, 10):
        checkpoint.save(tmp_path, Checkpoint(round, {"server": w}, {}, {}, {3: {"control": w}}, {}))
    path = run_directory.checkpoint_path(tmp_path, 0)
    content = (path / "clients.safetensors").read_bytes()
    checkpoint.forget_clients(tmp_path)
    (path / "clients.safetensors").write_bytes(content)
    (path / ".meta.json.tmp").write_text("half")
    assert verification.check_checkpoint(path) == ""
    checkpoint.forget_clients(tmp_path)
    assert sorted(one.name for one in path.iterdir()) == ["global.safetensors", "meta.json"]
