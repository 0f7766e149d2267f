"""Verdicts: intervals over seeds, against hand-computed ones; every finding on made-up evidence both ways."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from reports.findings.catalog import FINDINGS, HETEROGENEOUS, HOMOGENEOUS
from reports.findings.finding import Evidence, Verdict, compare, judge_differences, require_all
from reports.inputs.progress import Progress
from reports.inputs.runs import Run, read_runs
from tests.reports.conftest import make_run


def make_evidence(values: dict[tuple[str, str], list[float]], state: str = "finished") -> Evidence:
    """Runs whose norm is the value; the seed is the place in the list."""
    return Evidence(
        {
            place: [
                Run(Path("."), {"seed": seed}, [{"round": 1, "norm": value}], progress=Progress(state, 1, 1))
                for seed, value in enumerate(own)
            ]
            for place, own in values.items()
        }
    )


def read_norm(run: Run) -> float:
    return float(run.metrics[-1]["norm"])


def test_the_interval_is_students() -> None:
    found = judge_differences([1.0, 2.0, 3.0, 6.0], "points", "")
    low, high = stats.t.interval(0.95, 3, loc=3.0, scale=stats.sem([1.0, 2.0, 3.0, 6.0]))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert (found.outcome, found.effect, found.seeds) == ("undecided", 3.0, 4)
    assert judge_differences([2.0, 2.1, 2.2], "", "").outcome == "confirmed"
    assert judge_differences([-2.0, -2.1, -2.2], "", "").outcome == "refuted"


def test_one_seed_or_none_decides_nothing() -> None:
    assert judge_differences([5.0], "", "").outcome == "undecided"
    assert judge_differences([], "", "").outcome == "undecided"
    assert "no finished run above chance" in judge_differences([math.nan], "", "x").detail


def test_runs_are_compared_seed_by_seed() -> None:
    """Seeds differ by far more than methods do; paired, the difference is clear."""
    evidence = make_evidence({("a", "x"): [1.0, 10.0, 100.0], ("b", "x"): [2.0, 11.1, 100.9]})
    found = compare(evidence, ("b", "x"), ("a", "x"), read_norm, "", "")
    assert (found.outcome, found.effect) == ("confirmed", pytest.approx(1.0))
    assert compare(evidence, ("a", "x"), ("b", "x"), read_norm, "", "").outcome == "refuted"
    ratio = compare(evidence, ("b", "x"), ("a", "x"), read_norm, "λ", "", ratio=True)
    assert ratio.effect == pytest.approx((math.log(2) + math.log(1.11) + math.log(1.009)) / 3)


def test_seeds_that_only_one_side_has_do_not_count() -> None:
    evidence = make_evidence({("a", "x"): [1.0, 1.0, 1.0], ("b", "x"): [2.0]})
    assert compare(evidence, ("b", "x"), ("a", "x"), read_norm, "", "").seeds == 1


@pytest.mark.parametrize("state", ["unfinished", "diverged"])
def test_runs_that_are_not_final_do_not_count(state: str) -> None:
    evidence = make_evidence({("a", "x"): [1.0, 1.0], ("b", "x"): [2.0, 2.0]}, state)
    assert compare(evidence, ("b", "x"), ("a", "x"), read_norm, "", "").seeds == 0


def test_a_claim_of_several_parts_is_as_good_as_its_weakest() -> None:
    good, weak = Verdict("confirmed", 2.0, 1.0, 3.0, 3), Verdict("confirmed", 1.0, 0.5, 1.5, 3)
    open_, bad = Verdict("undecided", 0.1, -1.0, 1.2, 3), Verdict("refuted", -1.0, -2.0, -0.5, 3)
    assert require_all({"a": good, "b": weak}, "").effect == 1.0
    assert require_all({"a": good, "b": weak}, "").outcome == "confirmed"
    assert require_all({"a": good, "b": open_}, "").outcome == "undecided"
    joined = require_all({"a": good, "b": bad, "c": open_}, "all")
    assert (joined.outcome, joined.effect) == ("refuted", -1.0)
    assert "b" in joined.detail
    assert require_all({}, "").outcome == "undecided"


@pytest.mark.parametrize("name", list(FINDINGS))
def test_without_runs_nothing_is_decided(name: str) -> None:
    finding = FINDINGS[name]
    assert finding.judge(Evidence({})).outcome == "undecided"
    assert finding.claim
    assert finding.where
    assert finding.paper in ("fedfsa", "fedvssam", "fedgloss", "fedsam", "fedsol")


def test_a_run_near_chance_does_not_count() -> None:
    counts = np.ones((3, 10), dtype=np.int64)
    learned, guessing = (
        Run(Path("."), {"seed": seed}, [{"round": 1, "accuracy": accuracy}], class_counts=counts)
        for seed, accuracy in ((0, 0.21), (1, 0.2))
    )
    assert list(Evidence({("a", "x"): [learned, guessing]}).find(("a", "x"))) == [0]


def make_sharp(folder: Path, place: tuple[str, str], scales: list[float]) -> list[Run]:
    """Runs with stored eigenvalues in proportion to the scales, one seed each."""
    paths = [
        make_run(folder / f"{place[0]} {place[1]} {seed}", "fedavg", seed=seed, scale=scale, studies=["curvature"])
        for seed, scale in enumerate(scales)
    ]
    return [replace(read_runs([path]).runs[0], metrics=[], progress=Progress("finished", 1, 1)) for path in paths]


SHARP, FLAT = [4.0, 4.4, 3.9], [1.0, 1.2, 0.9]


@pytest.mark.parametrize(
    ("name", "sharp", "flat"),
    [
        ("heterogeneity-sharpens", ("FedAvg", HETEROGENEOUS), ("FedAvg", HOMOGENEOUS)),
        ("fedsam-lowers-sharpness", ("FedAvg", HETEROGENEOUS), ("FedSAM", HETEROGENEOUS)),
        ("fedsam-is-not-enough", ("FedSAM", HETEROGENEOUS), ("FedAvg", HOMOGENEOUS)),
        ("fedgloss-is-flattest", ("FedSMOO", HETEROGENEOUS), ("FedGloSS", HETEROGENEOUS)),
    ],
)
def test_claims_about_sharpness_can_go_both_ways(
    name: str, sharp: tuple[str, str], flat: tuple[str, str], tmp_path: Path
) -> None:
    runs = {sharp: make_sharp(tmp_path, sharp, SHARP), flat: make_sharp(tmp_path, flat, FLAT)}
    assert FINDINGS[name].judge(Evidence(runs)).outcome == "confirmed"
    swapped = {sharp: runs[flat], flat: runs[sharp]}
    assert FINDINGS[name].judge(Evidence(swapped)).outcome == "refuted"
    mixed = {sharp: runs[sharp], flat: make_sharp(tmp_path / "mixed", flat, [0.5, 20.0, 4.0])}
    assert FINDINGS[name].judge(Evidence(mixed)).outcome == "undecided"


def test_a_claim_about_all_methods_waits_for_those_that_were_not_run(tmp_path: Path) -> None:
    own, rival, other = (("FedGloSS", HETEROGENEOUS), ("FedSMOO", HETEROGENEOUS), ("FedDyn", HETEROGENEOUS))
    runs = {own: make_sharp(tmp_path, own, FLAT), rival: make_sharp(tmp_path, rival, SHARP)}
    judge = FINDINGS["fedgloss-is-flattest"].judge
    assert judge(Evidence(runs)).outcome == "confirmed"
    waiting = judge(Evidence({**runs, other: []}))
    assert (waiting.outcome, waiting.detail.rpartition("; ")[2]) == ("undecided", "not measured: FedDyn")
    diverged = [replace(run, progress=Progress("diverged", 1, 1)) for run in make_sharp(tmp_path, other, SHARP)]
    assert judge(Evidence({**runs, other: diverged})).outcome == "confirmed"
