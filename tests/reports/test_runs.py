"""Runs are read from files; what cannot be read is one line, and nothing needs torch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reports.inputs.runs import Collection, read_runs
from reports.palette import FIXED, assign_looks
from tests.reports.conftest import RESULTS, make_run


def test_what_a_run_says_of_itself(collection: Collection) -> None:
    first, _, third = collection.runs
    assert (first.algorithm, first.data, first.heterogeneity, first.seed) == (
        "fedavg",
        "digits",
        "Dirichlet α = 0.5",
        0,
    )
    assert third.algorithm == "fedasam + SWA"
    assert first.series("accuracy")[1].tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert third.series("swa_accuracy")[0].tolist() == [3]
    assert "eigenvalue" in first.measured("curvature")
    assert first.answer("curvature").question == "default"
    assert first.measured("nothing") is None
    assert collection.questions("curvature") == ["default"]
    assert collection.problems == []


def test_damage_is_one_line_each_and_not_the_end(tmp_path: Path) -> None:
    good, bad = make_run(tmp_path / "good", "fedavg"), make_run(tmp_path / "bad", "fedsam")
    (bad / "analysis" / "curvature" / "default.h5").write_bytes(b"")
    (bad / "metrics.jsonl").write_text("not json\n")
    (tmp_path / "empty").mkdir()
    wrong = make_run(tmp_path / "wrong", "fedsam")
    (wrong / "config.toml").write_text("name = ")
    found = read_runs([good, bad, tmp_path / "empty", wrong])
    assert [run.name for run in found.runs] == ["good", "bad"]
    assert set(found.runs[1].answers) == set(RESULTS) - {"curvature"}
    assert [problem.partition(":")[0].rpartition("/")[2] for problem in found.problems] == [
        "metrics.jsonl",
        "default.h5",
        "config.toml",
        "empty",
    ]


def test_data_sets_and_partitions_get_sections_of_their_own(tmp_path: Path) -> None:
    found = read_runs([make_run(tmp_path / name, "fedavg", data=name) for name in ("digits", "cifar10")])
    assert found.settings == [("digits", "Dirichlet α = 0.5"), ("cifar10", "Dirichlet α = 0.5")]
    assert [run.name for run in found.select("cifar10", "Dirichlet α = 0.5")] == ["cifar10"]


def test_results_of_runs_that_were_compared_lie_beside_them(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    (tmp_path / "analysis").mkdir()
    (run / "analysis" / "plane").rename(tmp_path / "analysis" / "plane")
    assert list(read_runs([run]).together) == ["plane"]


def test_a_method_keeps_its_look_whatever_else_is_drawn() -> None:
    few, many = assign_looks(["fedsam", "fedavg"]), assign_looks([*FIXED, "scaffold", "zeta", "fedavg"])
    assert few["fedsam"] == many["fedsam"]
    assert few["fedavg"] == many["fedavg"]
    assert len({(look.color, look.line) for look in many.values()}) == len(many)
    assert len({(look.color, look.marker) for look in assign_looks(["a", "b", "c", "fedavg"]).values()}) == 4
    assert len({(look.color, look.marker) for look in assign_looks(map(str, range(32))).values()}) == 32


def test_a_copy_of_a_run_is_no_further_seed(tmp_path: Path) -> None:
    first = make_run(tmp_path / "first", "fedavg")
    shutil.copytree(first, tmp_path / "copy")
    found = read_runs([first, tmp_path / "copy"])
    assert [run.name for run in found.runs] == ["first"]
    assert found.problems == ["copy: left out, it has every setting and the seed of first"]


def test_reports_leave_torch_alone() -> None:
    code = "import sys, reports, reports.catalog, reports.inputs.runs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
