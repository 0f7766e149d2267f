"""A long plan says which setting would shorten it, and what that costs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from analysis import runner
from analysis.advice import LONG, SOON, advise
from analysis.catalog import STUDIES
from analysis.costs import estimate_costs, show_costs
from analysis.subjects import Run


def plan(run: Run, study: str, out: Path, **settings: object) -> runner.Plan:
    return runner.plan(STUDIES[study], STUDIES[study].settings(**settings), [run], out)


def test_a_short_plan_needs_no_advice(run: Run, tmp_path: Path) -> None:
    planned = plan(run, "curvature", tmp_path)
    assert advise(planned, rate=planned.passes / (LONG - 1)) == []


def test_fewer_examples_or_rounds(run: Run, tmp_path: Path) -> None:
    planned = plan(run, "curvature", tmp_path)
    rate = planned.passes / (2 * LONG)
    by_limit, by_rounds = advise(planned, rate)
    everyone = len(run.examples("train")[1])
    assert by_limit.setting == "curvature.limit=200"  # 500 of 1437 take 2500 s
    assert by_limit.seconds == pytest.approx(2 * LONG * 200 / everyone * 35 / 30)  # and 5 products for the errors
    error = 100 * ((1 - 200 / everyone) / 200) ** 0.5
    assert f"numbers from 200 of {everyone} training examples have a standard error of {error:.1f} %" in by_limit.cost
    assert by_rounds.setting == "curvature.rounds=last"
    assert by_rounds.seconds == pytest.approx(2 * LONG / 3)
    changed = plan(run, "curvature", tmp_path, limit=200)
    assert changed.passes / rate == pytest.approx(by_limit.seconds)


def test_the_largest_limit_that_is_soon_done(run: Run, tmp_path: Path) -> None:
    planned = plan(run, "curvature", tmp_path, rounds="last")
    rate = planned.passes / (1.2 * LONG)
    (found,) = advise(planned, rate)
    assert found.setting == "curvature.limit=200"
    assert found.seconds <= SOON


def test_fewer_clients(run: Run, tmp_path: Path) -> None:
    planned = plan(run, "incompatibility", tmp_path)
    settings = [one.setting for one in advise(planned, planned.passes / (3 * LONG))]
    assert "incompatibility.rounds=last" in settings
    assert not any("clients" in one for one in settings)  # there are five, and five is the fewest that is advised


def test_it_is_printed_with_the_plan(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(width=400, file=io.StringIO(), record=True)
    planned = plan(run, "curvature", tmp_path)
    monkeypatch.setattr(runner, "measure_rate", lambda subject: planned.passes / (2 * LONG))
    show_costs(estimate_costs([planned]), [planned], console)
    assert "--set curvature.limit=200 takes 19.5 min: numbers from 200 of" in console.export_text()
