"""Studies are planned, kept piece by piece, and resumed after an interruption."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

from analysis import runner, store
from analysis.catalog import STUDIES
from analysis.command import parse
from analysis.costs import write_duration
from analysis.study import Limit, Piece, Rounds, Study, scalar
from analysis.subjects import Run
from training.settings import build, settings, values


@settings
class Settings:
    factor: float = 2.0
    rounds: Rounds = "all"
    limit: Limit = None


class Counted:
    """A study that doubles the number of each round, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fail_at: str | None = None
        self.error: Exception = RuntimeError("stop")

    def pieces(self, run: Run, settings: Settings) -> list[Piece]:
        planned: list[Piece] = []
        for round in run.select(settings.rounds):
            planned.append(Piece(round, passes=10.0, after=tuple(planned)))
        return planned

    def measure(self, run: Run, settings: Settings, piece: Piece, earlier: Sequence[xr.Dataset]) -> Any:
        if piece.name == self.fail_at:
            raise self.error
        self.asked.append(piece.name)
        assert len(earlier) == len(piece.after)
        assert [float(one["value"]) for one in earlier] == [settings.factor * one.round for one in piece.after]
        before = sum(float(one["_hidden"]) for one in earlier)
        assert before == 2 ** len(earlier) - 1
        return xr.Dataset(
            {"value": scalar(settings.factor * piece.round, "doubled"), "_hidden": scalar(before + 1, "")}
        )

    @property
    def study(self) -> Study:
        return Study(
            name="counted",
            doc="",
            settings=Settings,
            rounds=lambda subject, settings: subject.select(settings.rounds),
            pieces=self.pieces,
            measure=self.measure,
        )


def go(counted: Counted, run: Run, out: Path, said: list[str] | None = None, **settings: Any) -> runner.Plan:
    say = (said if said is not None else []).append
    planned = runner.plan(counted.study, Settings(**settings), [run], out)
    runner.carry_out(planned, say=say)
    return planned


def read_values(out: Path, question: str = "default") -> list[float]:
    data = store.read(out / "counted" / f"{question}.h5").data
    assert list(data.variables) == ["value", "round"]
    return data["value"].values.tolist()


def test_an_answer_that_is_there_is_kept(run: Run, tmp_path: Path) -> None:
    counted = Counted()
    go(counted, run, tmp_path)
    assert read_values(tmp_path) == [0, 4, 8]
    assert go(counted, run, tmp_path).kept
    assert counted.asked == ["round 0", "round 2", "round 4"]


def test_an_answer_from_before_a_setting_was_added_is_kept(run: Run, tmp_path: Path) -> None:
    counted = Counted()
    planned = go(counted, run, tmp_path)
    answer = store.read(planned.path)
    del answer.settings["limit"]
    store.write(planned.path, answer)
    assert go(counted, run, tmp_path).kept
    assert counted.asked == ["round 0", "round 2", "round 4"]
    other = runner.plan(counted.study, Settings(limit=3), [run], tmp_path)
    assert not other.kept
    assert other.path != planned.path


def test_questions_stand_side_by_side(run: Run, tmp_path: Path) -> None:
    counted = Counted()
    go(counted, run, tmp_path)
    assert go(counted, run, tmp_path, factor=3.0).path.name == "factor3.0.h5"
    assert counted.asked == 2 * ["round 0", "round 2", "round 4"]
    assert read_values(tmp_path) == [0, 4, 8]
    assert read_values(tmp_path, "factor3.0") == [0, 6, 12]
    assert store.read(tmp_path / "counted" / "factor3.0.h5").question == "factor3.0"
    assert go(counted, run, tmp_path).kept
    assert go(counted, run, tmp_path, factor=3.0).kept


def test_a_question_can_be_named(run: Run, tmp_path: Path) -> None:
    study = Counted().study
    runner.carry_out(runner.plan(study, Settings(factor=3.0), [run], tmp_path, "triple"))
    assert read_values(tmp_path, "triple") == [0, 6, 12]
    assert runner.plan(study, Settings(factor=3.0), [run], tmp_path, "triple").kept
    with pytest.raises(
        ValueError, match="'triple' already names an answer with other settings or about other runs; choose another"
    ):
        runner.plan(study, Settings(factor=4.0), [run], tmp_path, "triple")


def test_an_outdated_answer_to_the_same_question_is_replaced(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted()
    go(counted, run, tmp_path)
    monkeypatch.setattr(
        Run, "inputs", lambda self, rounds: {"run": self.recipe.digest, "checkpoints": "trained further"}
    )
    assert not go(counted, run, tmp_path).kept
    assert len(counted.asked) == 6
    assert [path.name for path in (tmp_path / "counted").iterdir()] == ["default.h5"]


def test_answers_about_other_runs_are_never_replaced(runs: list[Run], tmp_path: Path) -> None:
    counted = Counted()
    first, second = (go(counted, run, tmp_path).path for run in runs)
    assert first.name == "default.h5"
    assert second != first
    assert go(counted, runs[0], tmp_path).kept
    assert go(counted, runs[1], tmp_path).kept
    runner.carry_out(runner.plan(counted.study, Settings(), runs[:1], tmp_path, "mine"))
    with pytest.raises(ValueError, match="or about other runs"):
        runner.plan(counted.study, Settings(), runs[1:], tmp_path, "mine")


def test_a_long_question_gets_a_short_name_of_its_own(run: Run, tmp_path: Path) -> None:
    study = Counted().study
    names = {runner.name_question(study, Settings(rounds=",".join(map(str, range(n))))) for n in (40, 50)}
    assert len(names) == 2
    assert all(len(name) <= 70 for name in names)
    assert runner.name_question(study, Settings(rounds="every 2", limit=5)) == "rounds-every-2-limit5"


def test_pieces_come_after_those_they_need(run: Run) -> None:
    first, second = Piece(1), Piece(2)
    third = Piece(3, after=(second, first))
    assert runner.sort_pieces([third, first]) == [second, first, third]


def test_an_interrupted_study_finishes_the_rest(run: Run, tmp_path: Path) -> None:
    counted, whole = Counted(), Counted()
    counted.fail_at = "round 4"
    with pytest.raises(RuntimeError, match="stop"):
        go(counted, run, tmp_path)
    assert not (tmp_path / "counted" / "default.h5").exists()
    counted.fail_at = None
    planned = runner.plan(counted.study, Settings(), [run], tmp_path)
    assert (planned.kept, planned.done) == (False, 2)
    go(counted, run, tmp_path)
    assert counted.asked == ["round 0", "round 2", "round 4"]
    go(whole, run, tmp_path / "whole")
    assert (tmp_path / "counted" / "default.h5").read_bytes() == (
        tmp_path / "whole" / "counted" / "default.h5"
    ).read_bytes()
    assert [path.name for path in (tmp_path / "counted").iterdir()] == ["default.h5"]  # no pieces left behind


def test_a_damaged_piece_is_measured_again(run: Run, tmp_path: Path) -> None:
    counted = Counted()
    counted.fail_at = "round 4"
    with pytest.raises(RuntimeError):
        go(counted, run, tmp_path)
    part = next(tmp_path.glob("counted/.default-*/*.nc"))
    part.write_bytes(part.read_bytes()[:-3])
    counted.fail_at = None
    go(counted, run, tmp_path)
    assert sorted(counted.asked) == ["round 0", "round 0", "round 2", "round 4"] or counted.asked.count("round 2") == 2


def test_a_damaged_file_is_moved_aside_and_said_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "counted").mkdir()
    (tmp_path / "counted" / "default.h5").write_text("precious")
    said: list[str] = []
    go(Counted(), run, tmp_path, said)
    assert (tmp_path / "counted" / "default.h5.damaged1").read_text() == "precious"
    assert "moved to default.h5.damaged1, and measured again" in said[0]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 1 bytes")])
def test_what_does_not_fit_is_tried_in_smaller_chunks(run: Run, tmp_path: Path, error: Exception) -> None:
    counted, before, said = Counted(), run.limits, []
    counted.fail_at, counted.error = "round 2", error

    def give_in(line: str) -> None:
        said.append(line)
        if run.limits.chunk_size <= 128:
            counted.fail_at = None

    try:
        runner.carry_out(runner.plan(counted.study, Settings(), [run], tmp_path), say=give_in)
    finally:
        run.limits = before
    assert said == [f"round 2: out of memory; trying again with {size} examples at once" for size in (256, 128)]
    assert counted.asked == ["round 0", "round 2", "round 4"]


def test_other_failures_are_not_swallowed(run: Run, tmp_path: Path) -> None:
    counted = Counted()
    counted.fail_at = "round 0"
    with pytest.raises(RuntimeError, match="stop"):
        go(counted, run, tmp_path)
    assert run.limits.chunk_size == 512


def test_provenance_says_where_an_answer_comes_from(run: Run, tmp_path: Path) -> None:
    go(Counted(), run, tmp_path)
    about = store.read(tmp_path / "counted" / "default.h5").provenance
    assert about["dtype"] == ["float64"]
    assert about["batchnorm"] == ["frozen"]
    assert set(about["inputs"][0]["checkpoints"]) == {"0", "2", "4"}
    assert about["inputs"][0]["run"] == run.recipe.digest
    assert "torch" in about["packages"]


def test_settings_are_checked() -> None:
    assert build(Settings, {"factor": 3}, "counted") == Settings(factor=3.0)
    assert build(Settings, {"rounds": 4}, "counted") == Settings(rounds="4")
    with pytest.raises(ValueError, match='counted: rounds must be "last", "all", "every 10" or numbers'):
        build(Settings, {"rounds": "newest"}, "counted")


def test_settings_on_the_command_line() -> None:
    assert parse(["curvature.top=10", "curvature.warm=false"], list(STUDIES)) == {
        "curvature": {"top": 10, "warm": False}
    }
    assert parse(["top=10"], ["curvature"]) == {"curvature": {"top": 10}}
    with pytest.raises(ValueError, match=r"several studies are asked for; write STUDY\.top=10"):
        parse(["top=10"], ["curvature", "local_global"])
    with pytest.raises(ValueError, match="study: unknown 'curvatre'; did you mean 'curvature'"):
        parse(["curvatre.top=10"], list(STUDIES))
    with pytest.raises(ValueError, match=r"--set expects study\.key=value"):
        parse(["curvature.top"], list(STUDIES))


@pytest.mark.parametrize(
    ("wanted", "rounds"),
    [("all", [0, 2, 4]), ("last", [4]), ("every 4", [0, 4]), ("every 3", [0, 4]), ("2, 0", [0, 2])],
)
def test_rounds_by_words(run: Run, wanted: str, rounds: list[int]) -> None:
    assert run.select(wanted) == rounds


def test_rounds_that_are_not_there_are_named(run: Run) -> None:
    with pytest.raises(ValueError, match=r"no checkpoint of round 3, 5; there are 0, 2, 4"):
        run.select("3,4,5")
    with pytest.raises(ValueError, match='rounds must be "last", "all"'):
        run.select("newest")


def test_local_models_that_were_not_kept_are_named(make_run) -> None:
    run = make_run(checkpoints={"every": 2, "keep_locals": "last"})
    assert len(run.local_points(4)) == 3
    with pytest.raises(ValueError, match=r"round 2 keeps no local models; rounds that do: 4. Train with"):
        run.local_points(2)


def test_durations_in_words() -> None:
    assert [write_duration(seconds) for seconds in (0, 0.4, 7.4, 90, 7200)] == ["-", "< 1 s", "7 s", "1.5 min", "2.0 h"]


@pytest.mark.parametrize("name", list(STUDIES))
def test_every_study_answers_stores_and_reloads(name: str, runs: list[Run], tmp_path: Path) -> None:
    study = STUDIES[name]
    subjects = runs if study.together else runs[:1]
    path = runner.carry_out(runner.plan(study, study.settings(), subjects, tmp_path))
    assert path == tmp_path / name / "default.h5"
    found = store.read(path)
    assert found.settings == json.loads(json.dumps(values(study.settings())))
    with xr.open_dataset(path, decode_times=False) as data:
        assert data.data_vars
        assert not any(str(dim).startswith("phony") for dim in data.dims)
        for variable in found.data.variables:
            assert data[variable].attrs["long_name"], variable
            assert "units" in data[variable].attrs, variable
    assert runner.plan(study, study.settings(), subjects, tmp_path).kept


@pytest.mark.parametrize("content", [b"", hashlib.sha256(b"").digest(), b"\x00" * 100], ids=["empty", "hash", "zeros"])
def test_a_piece_that_cannot_be_read_is_measured_again(run: Run, tmp_path: Path, content: bytes) -> None:
    counted = Counted()
    counted.fail_at = "round 4"
    with pytest.raises(RuntimeError):
        go(counted, run, tmp_path)
    for part in tmp_path.glob("counted/.default-*/*.nc"):
        part.write_bytes(content)
    counted.fail_at = None
    go(counted, run, tmp_path)
    assert counted.asked == ["round 0", "round 2", "round 0", "round 2", "round 4"]


def test_a_piece_under_the_name_of_another_is_measured_again(run: Run, tmp_path: Path) -> None:
    counted = Counted()
    counted.fail_at = "round 4"
    with pytest.raises(RuntimeError):
        go(counted, run, tmp_path)
    first, second = sorted(tmp_path.glob("counted/.default-*/*.nc"))
    first.write_bytes(second.read_bytes())
    counted.fail_at = None
    go(counted, run, tmp_path)
    assert read_values(tmp_path) == [0, 4, 8]
    assert len(counted.asked) == 4


def test_a_plan_changes_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "counted").mkdir()
    (tmp_path / "counted" / "default.h5").write_text("precious")
    planned = runner.plan(Counted().study, Settings(), [run], tmp_path)
    assert "not readable as results" in planned.damage
    assert [path.name for path in (tmp_path / "counted").iterdir()] == ["default.h5"]
    assert (tmp_path / "counted" / "default.h5").read_text() == "precious"
