"""Files that somebody made up, seals and all: one line each, at once, in little memory, and never a traceback."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from training import config, verification
from training.console import summaries, sweep
from training.data import partition
from training.engine.run import train
from training.personal import scores
from training.storage import checkpoint, lock, metrics, npz, run_directory, tensors, verified_files
from training.storage.atomic_files import DamagedError

RECIPE = config.validate(
    {
        "data": {"name": "synthetic", "examples": 40, "test_examples": 10, "classes": 3, "shape": [1, 2, 2]},
        "model": {"name": "mlp", "hidden": [2]},
        "partition": {"name": "iid", "clients": 4},
        "algorithm": {"name": "scaffold"},
        "local": {"lr": 0.1, "batch_size": 8},
        "rounds": {"count": 3, "participants": 2},
        "checkpoints": {"every": 1, "keep_locals": "all"},
    }
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(RECIPE, tmp_path_factory.mktemp("finished"), backend="serial")


@pytest.fixture
def run(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / finished.name))


@pytest.fixture
def little_memory():
    """At most two gigabytes more than now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def reseal(path, **changes):
    """Change a sealed file, and seal it again as if nothing had happened."""
    content = json.loads(path.read_text())
    del content["sha256"]
    content = {key: value for key, value in {**content, **changes}.items() if value is not ...}
    path.write_text(verified_files.seal(content))


def shown(run):
    screen = io.StringIO()
    summaries.show(run, Console(file=screen, width=300))
    return screen.getvalue()


DIGEST = "0" * 64
METAS = {
    "round is text": {"round": "3"},
    "round is a fraction": {"round": 3.0},
    "round is true": {"round": True},
    "round is below zero": {"round": -3},
    "round is far": {"round": 10**9},
    "round is huge": {"round": 10**4000},
    "no round": {"round": ...},
    "files is a list": {"files": []},
    "files is nothing": {"files": None},
    "files is empty": {"files": {}},
    "no files": {"files": ...},
    "a fingerprint is text": {"files": {"global.safetensors": "x"}},
    "a fingerprint is empty": {"files": {"global.safetensors": {}}},
    "bytes is text": {"files": {"global.safetensors": {"bytes": "1", "sha256": DIGEST}}},
    "the hash is a number": {"files": {"global.safetensors": {"bytes": 1, "sha256": 1}}},
    "outside": {"files": {"../../../secret": {"bytes": 6, "sha256": DIGEST}}},
    "absolute": {"files": {"/etc/passwd": {"bytes": 6, "sha256": DIGEST}}},
    "another file": {"files": {"other.safetensors": {"bytes": 6, "sha256": DIGEST}}},
    "cohort is a number": {"cohort": 3},
    "cohort of text": {"cohort": ["a"]},
    "captured is a list": {"captured": [1]},
    "forgotten is a number": {"forgotten": 1},
    "a newer format": {"format": 2},
    "a format of text": {"format": "1"},
    "no format": {"format": ...},
}


@pytest.mark.parametrize("changes", METAS.values(), ids=METAS)
def test_a_made_up_description_is_named_and_passed_over(run, changes):
    reseal(run_directory.checkpoint_path(run, 3) / "meta.json", **changes)
    (problem,) = verification.check_run(run)
    assert "round_000003" in problem
    assert "\n" not in problem
    assert "damaged: 3" in shown(run)
    said = []
    train(RECIPE, run.parent, backend="serial", on_message=said.append)
    assert said == [f"damaged, skipped: {problem}", "resuming from round 2"]
    assert verification.check_run(run) == []


STATES = {
    "state is a number": {"state": 1},
    "state is a word": {"state": "excellent"},
    "round is text": {"round": "3"},
    "round is below zero": {"round": -1},
    "message is a list": {"message": ["[red]"]},
    "files is a list": {"files": [1]},
    "files of text": {"files": {"config.toml": "x"}},
    "no state": {"state": ...},
    "a newer format": {"format": 2},
    "no format": {"format": ...},
}


@pytest.mark.parametrize("changes", STATES.values(), ids=STATES)
def test_a_made_up_status_is_one_line(run, changes):
    reseal(run / "status.json", **changes)
    problems = verification.check_run(run)
    assert len(problems) == 1
    assert problems[0].startswith(str(run / "status.json"))
    with pytest.raises(ValueError, match=r"status\.json: .*landscape check .* lists what is damaged"):
        shown(run)


@pytest.mark.parametrize("round", [4, 10**9, 10**18])
def test_a_round_that_is_far_away_is_found_wrong_at_once(run, round):
    reseal(run / "status.json", round=round)
    assert verification.check_run(run) == [f"{run / 'metrics.jsonl'}: ends at round 3, but round {round} was reached"]
    settings = run / "config.toml"
    settings.write_text(settings.read_text().replace("count = 3", f"count = {round}"))
    reseal(run / "status.json", files={})
    assert verification.check_run(run) == [f"{run / 'metrics.jsonl'}: ends at round 3, but round {round} was reached"]


def test_a_checkpoint_of_a_round_that_is_far_away(run):
    far = run_directory.checkpoint_path(run, 10**9)
    shutil.copytree(run_directory.checkpoint_path(run, 3), far)
    reseal(far / "meta.json", round=10**9)
    assert verification.check_run(run) == []  # nobody counts up to it: the run says that it ended at round 3
    reseal(run / "status.json", state="running")
    assert verification.check_run(run) == [f"{run / 'metrics.jsonl'}: ends at round 3, but round {10**9} was reached"]
    (run / "checkpoints" / f"round_{'9' * 5000}"[:200]).mkdir()
    assert run_directory.checkpoint_rounds(run) == [0, 1, 2, 3, 10**9]


@pytest.mark.parametrize("depth", [2000, 100_000])
def test_deeply_nested_json_is_damage(run, depth):
    for name in ("status.json", "provenance.json"):
        (run / name).write_text('{"a": ' + "[" * depth + "]" * depth + "}")
    found = [problem.partition(": ")[0] for problem in verification.check_run(run)]
    assert found == [str(run / "status.json"), str(run / "provenance.json")]


def test_links_that_lead_out_of_the_run_are_refused(run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    for name in ("metrics.jsonl", "partition.npz", "checkpoints/round_000003/global.safetensors"):
        (run / name).rename(elsewhere)
        (run / name).symlink_to(elsewhere)
        (problem,) = verification.check_run(run)
        assert problem == f"{run / name}: a link that leads out of {run}; put the file itself there"
        (run / name).unlink()
        elsewhere.rename(run / name)
    (run / "checkpoints").rename(elsewhere)
    (run / "checkpoints").symlink_to(elsewhere)
    with pytest.raises(DamagedError, match=r"checkpoints: a link that leads out of"):
        train(RECIPE, run.parent, backend="serial")
    (run / "checkpoints").unlink()
    elsewhere.rename(run / "checkpoints")
    (tmp_path / "alias").symlink_to(run)  # the run itself may lie elsewhere
    assert verification.check_run(tmp_path / "alias") == []


def test_directories_of_other_versions_are_refused(run):
    about = json.loads((run / "provenance.json").read_text())
    assert about["format"] == 1
    (run / "provenance.json").write_text(json.dumps(about | {"format": 2}))
    assert sweep.find_end(run, RECIPE) == ""
    for use in (lambda: train(RECIPE, run.parent), lambda: shown(run)):
        with pytest.raises(DamagedError, match=r"provenance\.json: written by a newer version \(format 2\); update"):
            use()
    del about["format"]
    (run / "provenance.json").write_text(json.dumps(about))
    for use in (lambda: train(RECIPE, run.parent), lambda: shown(run)):
        with pytest.raises(DamagedError, match=r"made before run directories had a format number; train the run again"):
            use()


def test_a_record_without_a_loss_is_shown(run):
    (run / "metrics.jsonl").unlink()
    for round in (1, 2, 3):
        metrics.append(run, {"round": round, "accuracy": 0.5, "mean_accuracy": 0.25})
    assert [score.loss for score in summaries.find_scores(run, 2)] == [None, None]
    text = shown(run)
    assert text.count("50.00 %") == 2
    assert text.count("25.00 %") == 2


def test_a_lost_lease_stops_training_before_anything_is_put_in_its_place(tmp_path):
    def lose(record):
        if record["round"] == 2:
            (path / "lock").unlink()

    path = tmp_path / RECIPE.slug
    with pytest.raises(lock.LeaseLostError, match="was no longer locked: this process did not renew its lock"):
        train(RECIPE, tmp_path, backend="serial", on_round=lose)
    assert run_directory.checkpoint_rounds(path) == [0, 1, 2]
    assert len(metrics.read(path)) == 2
    assert list(path.rglob("*.tmp")) == []
    train(RECIPE, tmp_path, backend="serial")
    assert verification.check_run(path) == []


def tensor_file(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return verified_files.fingerprint(path)


def entry(shape, start, end, kind="F32"):
    return {"dtype": kind, "shape": shape, "data_offsets": [start, end]}


TENSORS = {
    "empty": (b"", b"", None),
    "a header of 2^63 bytes": (b"{}", b"", 2**63),
    "a header longer than the file": (b"{}", b"", 3),
    "no JSON": (b"{x}", b"", None),
    "a list": (b"[1]", b"", None),
    "deep": (b"[" * 100_000, b"", None),
    "2^50 numbers": ({"w": entry([2**50], 0, 2**52)}, b"1234", None),
    "more numbers than bytes": ({"w": entry([2**50], 0, 4)}, b"1234", None),
    "a product beyond all bounds": ({"w": entry([2**40] * 8, 0, 4)}, b"1234", None),
    "no numbers of a huge shape": ({"w": entry([0, 2**63], 0, 0)}, b"", None),
    "many axes": ({"w": entry([1] * 100, 0, 4)}, b"1234", None),
    "overlap": ({"a": entry([1], 0, 4), "b": entry([1], 0, 4)}, b"1234", None),
    "partial overlap": ({"a": entry([2], 0, 8), "b": entry([1], 4, 8)}, b"12345678", None),
    "gap": ({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, b"123456789012", None),
    "bytes left over": ({"a": entry([1], 0, 4)}, b"12345678", None),
    "below zero": ({"a": entry([-1], 0, -4)}, b"", None),
    "backwards": ({"a": entry([1], 4, 0)}, b"1234", None),
    "integers": ({"a": entry([1], 0, 8, "I64")}, b"12345678", None),
    "unknown numbers": ({"a": entry([1], 0, 4, "F4096")}, b"1234", None),
    "shape is text": ({"a": entry("1", 0, 4)}, b"1234", None),
    "no shape": ({"a": {}}, b"", None),
    "entry is a list": ({"a": [1]}, b"", None),
    "dtype is a list": ({"a": entry([1], 0, 4, [])}, b"1234", None),
    "fractions": ({"a": entry([1.0], 0, 4)}, b"1234", None),
}


@pytest.mark.parametrize("content", TENSORS.values(), ids=TENSORS)
def test_absurd_tensors_are_refused_before_memory_is_taken(tmp_path, little_memory, content):
    wanted = tensor_file(tmp_path / "w.safetensors", *content)
    for use in (tensors.read, tensors.verify):
        with pytest.raises(DamagedError, match=r"w\.safetensors: not a safetensors file"):
            use(tmp_path / "w.safetensors", wanted)


def test_a_sparse_file_of_a_terabyte_takes_no_memory(tmp_path, little_memory):
    path = tmp_path / "w.safetensors"
    tensor_file(path, {"w": entry([4], 0, 16)}, bytes(16))
    os.truncate(path, 2**40)
    with pytest.raises(DamagedError, match="not a safetensors file"):
        tensors.read(path, {"bytes": 2**40, "sha256": DIGEST})
    with pytest.raises(DamagedError, match=f"{2**40} bytes instead of 16"):
        tensors.read(path, {"bytes": 16, "sha256": DIGEST})
    for name in ("status.json", "meta.json"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 2**40)
        with pytest.raises(DamagedError, match="longer than 256 MB"):
            verified_files.read_sealed(tmp_path / name)


@pytest.mark.parametrize("name", ["x", "-1", "1e3", "٣", "", "9" * 30])
def test_clients_must_be_numbers(run, name):
    path = run_directory.checkpoint_path(run, 3)
    wanted = tensors.write(path / "locals.safetensors", {name: np.zeros(2)})
    listed = json.loads((path / "meta.json").read_text())["files"]
    reseal(path / "meta.json", files=listed | {"locals.safetensors": wanted})
    with pytest.raises(DamagedError, match="is not the number of a client"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({"statistics": torch.zeros(0)}, "the checkpoint of round 3 holds no 'server'"),
        ({"server": torch.zeros(5)}, "holds no 'statistics'"),
        (
            {"server": torch.zeros(5), "statistics": torch.zeros(0)},
            r"'server' has shape \(5,\), the model of this recipe",
        ),
        ({"server": torch.zeros(1, 19), "statistics": torch.zeros(0)}, r"'server' has shape \(1, 19\)"),
    ],
)
def test_vectors_of_another_model_are_refused(run, models, message):
    path = run_directory.checkpoint_path(run, 3)
    wanted = tensors.write(path / "global.safetensors", {name: w.numpy() for name, w in models.items()})
    listed = json.loads((path / "meta.json").read_text())["files"]
    reseal(path / "meta.json", files=listed | {"global.safetensors": wanted})
    with pytest.raises(DamagedError, match=message):
        train(RECIPE, run.parent, backend="serial")


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def npy(shape, kind="<f8", data=b""):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": kind, "fortran_order": False, "shape": shape})
    return buffer.getvalue() + data


ARCHIVES = {
    "empty": b"",
    "not a zip": b"PK\x03\x04" + bytes(100),
    "cut": zipped(x=npy((100,), data=bytes(800)))[:-30],
    "flipped": zipped(x=npy((4,), data=bytes(32)))[:60] + b"?" + zipped(x=npy((4,), data=bytes(32)))[61:],
    "not an array": zipped(x=b"hello"),
    "objects": zipped(x=npy((1,), "|O", b"cos\nsystem\n(S'true'\ntR.")),
    "2^60 numbers": zipped(x=npy((2**60,))),
    "a product beyond all bounds": zipped(x=npy((2**40, 2**40, 2**40))),
    "below zero": zipped(x=npy((-1,))),
    "too few numbers": zipped(x=npy((4,), data=bytes(8))),
    "too many numbers": zipped(x=npy((1,), data=bytes(80))),
    "no dtype": zipped(x=npy((1,), "nonsense", bytes(8))),
    "an old version": zipped(x=b"\x93NUMPY\x09\x00" + bytes(100)),
}


@pytest.mark.parametrize("data", ARCHIVES.values(), ids=ARCHIVES)
def test_odd_archives_are_one_line(tmp_path, little_memory, data):
    path = tmp_path / "data.npz"
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=r"data\.npz: not readable as an \.npz of plain arrays") as error:
        npz.read_npz(path)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"data\.npz is not a partition file, or is damaged \(not readable"):
        partition.load(path)


def test_an_archive_that_unpacks_beyond_the_machine_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=np.zeros(2**20))
    assert path.stat().st_size < 2**15
    monkeypatch.setattr(os, "sysconf", lambda name: 2**10)
    with pytest.raises(DamagedError, match=r"it unpacks to 0\.0 GB, and this machine has 0\.0 GB"):
        npz.read_npz(path)


def test_arrays_come_back_as_they_went(tmp_path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "none": np.zeros((0, 3), np.float32),
        "scalar": np.array("text é"),
        "bool": np.array([True, False]),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "data.npz", **arrays)
        found = npz.read_npz(tmp_path / "data.npz")
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)
    with pytest.raises(FileNotFoundError):
        npz.read_npz(tmp_path / "none.npz")


PARTS = {
    "sizes that do not add up": {"sizes": np.array([20, 10, 5, 4])},
    "huge sizes": {"sizes": np.array([2**62, 2**62, 2**62, 2**62])},
    "sizes below zero": {"sizes": np.array([-10, 20, 20, 10])},
    "sizes of text": {"sizes": np.array(["10"] * 4)},
    "no clients": {"sizes": np.array([], dtype=int), "indices": np.array([], dtype=int)},
    "examples beyond": {"indices": np.arange(40) + 2**40},
    "a huge label": {"labels": np.full(40, 2**40)},
    "labels of text": {"labels": np.full(40, "a")},
    "labels of two axes": {"labels": np.zeros((40, 2), dtype=int)},
    "a header of a list": {"header": np.array("[1]")},
    "a header without a name": {"header": np.array('{"settings": {}, "seed": 0}')},
    "settings of a list": {"header": np.array('{"settings": [], "seed": 0, "name": "iid"}')},
    "a deep header": {"header": np.array("[" * 100_000)},
    "a digest of numbers": {"digest": np.arange(3)},
}


@pytest.mark.parametrize("changes", PARTS.values(), ids=PARTS)
def test_a_made_up_partition_is_one_line(run, little_memory, changes):
    path = run / "partition.npz"
    np.savez(path, **{**npz.read_npz(path), **changes})
    with pytest.raises(ValueError, match=r"partition\.npz|partition 'iid'"):
        partition.load(path)
    (problem, *_) = verification.check_run(run)
    assert "partition.npz" in problem


def test_many_classes_times_many_clients_are_not_counted():
    labels = np.concatenate([[999_999], np.zeros(2000, dtype=int)])
    split = partition.partition("iid", labels, 2000, seed=0)
    with pytest.raises(ValueError, match="2000 clients times 1000000 classes are too many to be counted"):
        _ = split.histogram


@pytest.mark.parametrize(
    "content",
    [
        {"clients": 3},
        {"clients": [1]},
        {"clients": [{"client": "a", "examples": 1, "before": 0.0, "after": 1.0}]},
        {"round": "x"},
        {"options": 3},
        {"way": ...},  # the strategy
    ],
)
def test_a_made_up_personal_result_is_one_line(run, content):
    result = scores.PersonalResult("own", 3, "server", {}, None, DIGEST, 0, (scores.ClientScore(1, 5, 0.5, 1.0),))
    path = run / "personal" / result.file
    scores.save(path, result)
    assert scores.load(path) == result
    assert verification.check_run(run) == []
    reseal(path, **content)
    assert verification.check_run(run) == [f"{path}: not a personalised evaluation; remove it"]


def test_letters_that_do_not_exist_are_refused(tmp_path):
    words = np.asarray(["abc"])
    np.savez(tmp_path / "words.npz", words=words)
    assert npz.read_npz(tmp_path / "words.npz")["words"] == words
    words.view(np.uint32)[1] = 0x110000
    np.savez(tmp_path / "words.npz", words=words)
    with pytest.raises(DamagedError, match=r"words\.npz: .* characters that do not exist"):
        npz.read_npz(tmp_path / "words.npz")


@pytest.mark.parametrize("offset", [20, 24], ids=["packed", "unpacked"])
def test_an_archive_that_says_it_is_larger_than_its_file_is_refused_before_memory_is_taken(tmp_path, offset):
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=np.zeros((200, 200)))  # packed as far as zlib can
    assert npz.read_npz(path)["x"].shape == (200, 200)
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\x01\x02") + offset
    data[place : place + 4] = (2**31).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=r"data\.npz: .*x\.npy would have \d+ bytes, which the file cannot hold"):
        npz.read_npz(path)
