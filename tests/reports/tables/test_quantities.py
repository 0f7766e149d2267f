"""Every quantity of the papers' tables against a number computed by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from reports.inputs import summary
from reports.inputs.personal import Personal
from reports.quantities.catalog import (
    QUANTITIES,
    make_accuracy_at_round,
    make_accuracy_at_share,
    make_client_lambda,
    make_personal,
    make_rounds_to,
)
from tests.reports.made_up import make_up
from tests.reports.results import curvature, local_global
from tests.reports.results.answers import make_answer

CURVE = [0.1, 0.3, 0.2, 0.5, 0.4, 0.6]
# final accuracy 50 %, the mean of the last two rounds; 100 bytes a round
REFERENCE = make_up("fedavg", CURVE, last=2)


def found(name: str, *runs: object) -> float:
    run, reference = (*runs, None)[:2]
    return QUANTITIES[name].find(run, reference)  # type: ignore[arg-type]


def test_final_accuracy_of_the_server_and_of_swa() -> None:
    run = make_up("fedasam", CURVE, last=2, swa_accuracy=[None, None, None, 0.5, 0.7, 0.9])
    assert found("accuracy_server", run) == pytest.approx(50.0)
    assert found("accuracy_swa", run) == found("accuracy", run) == pytest.approx(80.0)
    assert math.isnan(found("accuracy_swa", REFERENCE))


def test_accuracy_at_a_share_of_training_and_at_a_round() -> None:
    half = make_accuracy_at_share(0.5)
    assert half.find(REFERENCE, None) == pytest.approx(25.0)  # rounds 2 and 3
    assert found("accuracy_at_50%", make_up("a", CURVE, last=1)) == pytest.approx(20.0)
    assert make_accuracy_at_round(4).find(REFERENCE, None) == pytest.approx(35.0)
    sparse = make_up("a", [0.1, None, 0.2, None, 0.4, None], last=2)
    assert make_accuracy_at_round(4).find(sparse, None) == pytest.approx(15.0)  # rounds 1 and 3


def test_a_run_that_has_not_come_so_far_has_no_accuracy_there() -> None:
    early = make_up("a", CURVE[:2], planned=6, state="unfinished")
    assert math.isnan(found("accuracy_at_50%", early))
    assert make_accuracy_at_round(2).find(early, None) == pytest.approx(30.0)


def test_the_best_round() -> None:
    run = make_up("a", [0.1, 0.7, None, 0.4], personal_accuracy=[0.2, None, 0.9, 0.8])
    assert found("best_accuracy", run) == pytest.approx(70.0)
    assert found("best_personal_accuracy", run) == pytest.approx(90.0)
    assert math.isnan(found("best_personal_accuracy", REFERENCE))


def test_rounds_to_an_accuracy() -> None:
    assert make_rounds_to(30).find(REFERENCE, None) == 2.0  # the curve falls below it again: the first round counts
    assert make_rounds_to(45).find(REFERENCE, None) == 4.0
    assert make_rounds_to(70).find(REFERENCE, None) == math.inf
    assert math.isnan(make_rounds_to(70).find(make_up("a", [None, None]), None))


def test_rounds_speed_up_and_cost_to_the_accuracy_of_the_reference() -> None:
    double = make_up("scaffold", [0.2, 0.4, 0.5, 0.3, 0.1, 0.1], sent=100)
    assert found("rounds", double, REFERENCE) == 3.0  # on the curve, though its own last rounds are far below
    assert found("speed_up", double, REFERENCE) == pytest.approx(2.0)  # 6 / 3
    assert found("cost", double, REFERENCE) == pytest.approx(1.0)  # 3 rounds of 200 bytes, of 6 of 100
    never = make_up("a", [0.1] * 6)
    assert {found(name, never, REFERENCE) for name in ("rounds", "speed_up", "cost")} == {math.inf}
    # the reference's own curve has 50 % in round 4, but it is printed with all its rounds
    assert [found(name, REFERENCE, REFERENCE) for name in ("rounds", "speed_up", "cost")] == [6.0, 1.0, 1.0]
    assert math.isnan(found("rounds", double))


def test_improvement_over_the_reference() -> None:
    better = make_up("a", [0.6, 0.6])
    assert found("improvement", better, REFERENCE) == pytest.approx(10.0)
    assert found("relative_improvement", better, REFERENCE) == pytest.approx(20.0)  # 10 of 50
    assert found("improvement", make_up("a", [0.4]), REFERENCE) == pytest.approx(-10.0)
    assert math.isnan(found("improvement", better))


def test_costs_relative_to_the_reference(tmp_path: Path) -> None:
    one = make_up("fedavg", CURVE, gradients=[10, 20, 10, 20, 10, 20])
    two = make_up("fedsam", CURVE, sent=75, gradients=[20, 40, 20, 40, 20, 40])
    assert found("communication", two, one) == pytest.approx(1.5)
    assert found("gradients", two, one) == pytest.approx(2.0)
    assert math.isnan(found("flops", two, one))
    runs = [replace(run, path=tmp_path / run.name) for run in (one, two)]
    for run, ratio in zip(runs, (1.0, 1.33), strict=True):
        run.path.mkdir()
        (run.path / "provenance.json").write_text(json.dumps({"flops": {"per_step": 400, "ratio": ratio}}))
    assert found("flops", runs[1], runs[0]) == pytest.approx(1.33)


def test_classes_per_client() -> None:
    counts = np.array([[5, 0, 0], [1, 2, 0], [1, 1, 1], [0, 0, 9]])
    assert found("classes", replace(REFERENCE, class_counts=counts)) == pytest.approx(7 / 4)
    assert math.isnan(found("classes", replace(REFERENCE, class_counts=None)))


def test_eigenvalues(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_up("a", CURVE, answers=[curvature.stored(2.0)])
    assert found("lambda_1", run) == pytest.approx(60.0)
    assert found("ratio", run) == pytest.approx(3.0)
    assert math.isnan(found("lambda_1_published", run))
    monkeypatch.setitem(summary.NAMED, "curvature", lambda data: {"lambda_1": 60.0, "lambda_1_published": 44.0})
    published = make_up("a", CURVE, answers=[curvature.stored(2.0)])  # the numbers of an answer are found once
    assert found("lambda_1_published", published) == pytest.approx(44.0)


def test_eigenvalues_of_the_participants_of_the_last_cohort() -> None:
    """Clients 1 and 3 took part in round 10; their models have 3 and 2 on own data, 30 and 40 on everyone's."""
    run = make_up("a", CURVE, answers=[local_global.stored()])
    own, wide = (
        [make_client_lambda(place, everyone=one).find(run, None) for place in (0, 1, 2)] for one in (False, True)
    )
    assert own[:2] == [3.0, 2.0]
    assert wide[:2] == [30.0, 40.0]
    assert math.isnan(own[2])
    assert math.isnan(make_client_lambda(0, everyone=True).find(REFERENCE, None))
    answer = local_global.stored()
    errors = xr.full_like(answer.data["global_eigenvalue"], 0.5)
    subset = make_answer("local_global", answer.data.assign(global_standard_error=errors))
    assert make_client_lambda(1, everyone=True).error(make_up("a", CURVE, answers=[subset])) == 0.5


def test_personal_models_by_strategy_and_options() -> None:
    client, before = np.arange(3), np.array([0.2, 0.4, np.nan])
    scores = [
        Personal("finetune", 6, {"epochs": 1}, client, before, np.array([0.5, 0.7, np.nan])),
        Personal("finetune", 6, {"epochs": 5}, client, before, np.array([0.6, 1.0, np.nan])),
    ]
    run = replace(REFERENCE, personal=tuple(scores))
    five = make_personal("finetune", epochs=5)
    assert (five.find(run, None), five.deviation(run)) == pytest.approx((80.0, 20.0))
    assert make_personal("finetune", epochs=1).find(run, None) == pytest.approx(60.0)
    assert make_personal(None).find(run, None) == pytest.approx(30.0)
    assert math.isnan(make_personal("knn").find(run, None))
    assert (five.spread, make_personal("finetune", spread="seeds").spread) == ("clients", "seeds")


def test_quantities_say_how_they_are_written() -> None:
    assert (QUANTITIES["rounds"].unit, QUANTITIES["rounds"].divisor) == ("k", 1000.0)
    assert {name for name, one in QUANTITIES.items() if one.signed} == {"improvement", "relative_improvement"}
    assert {name for name, one in QUANTITIES.items() if one.fixed} == {"communication", "gradients", "flops", "classes"}
    assert all(one.better in ("higher", "lower", "") and one.label for one in QUANTITIES.values())
