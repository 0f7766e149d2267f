"""One number per run: taken from where it is stored, NaN where it is not."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import xarray as xr

from analysis.store import Answer
from analysis.study import variable
from reports.inputs.runs import Collection, Run, label_score, name_accuracy, read_runs
from reports.plotting.over_rounds import find_best
from reports.quantities.catalog import make_miou
from reports.quantities.curves import count_rounds_to
from reports.quantities.measures import (
    MEASURES,
    count_bytes_per_round,
    find_final_accuracy,
    find_target_cost,
    list_personal_scores,
    list_targets,
)
from tests.reports.conftest import make_run
from tests.reports.results import curvature, forgetting, personal, robustness, training
from tests.reports.results.answers import make_answer, write_answer
from training.console.sweep import describe_round


def test_accuracy_is_of_the_model_that_a_method_ends_with(collection: Collection) -> None:
    first, _, averaged = collection.runs
    assert find_final_accuracy(first) == pytest.approx(20.0)
    assert find_final_accuracy(averaged) == pytest.approx(90.0)
    assert find_final_accuracy(averaged, "server") == pytest.approx(16.0)
    assert math.isnan(find_final_accuracy(first, "swa"))


def test_segmentation_is_compared_by_its_mean_iou() -> None:
    records = [{"round": t, "accuracy": 0.9, "miou": 0.1 * t, "miou_unseen": 0.05 * t} for t in (1, 2, 3)]
    run = Run(Path("run"), {"evaluation": {"last": 2}}, records)
    other = replace(run, metrics=[{"round": 1, "accuracy": 0.5}])
    assert (run.score, other.score) == ("miou", "accuracy")
    assert find_final_accuracy(run) == pytest.approx(25.0)
    assert find_final_accuracy(other) == pytest.approx(50.0)
    assert make_miou("unseen").find(run, None) == pytest.approx(12.5)
    assert math.isnan(make_miou().find(other, None))
    assert count_rounds_to(run, 20.0) == 2
    assert find_best(run)[1] == pytest.approx([0.1, 0.2, 0.3])
    assert label_score([run]) == "test mIoU (%)"
    assert label_score([other, run]) == "test accuracy or mIoU (%)"
    assert name_accuracy([run]) == "pixel accuracy"
    assert describe_round({**records[0], "train_loss": 1.0, "seconds": 1.0}, 3).split("  ")[2] == "mIoU 10.00 %"


def test_the_recipe_says_how_many_rounds_are_averaged(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    config = run / "config.toml"
    config.write_text(config.read_text() + "[evaluation]\nlast = 1\n")
    assert find_final_accuracy(read_runs([run]).runs[0]) == pytest.approx(30.0)


def test_studies_give_their_numbers(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", scale=0.5)
    for answer in (robustness.stored(), forgetting.stored(), *others()):
        write_answer(run, answer)
    (run / "provenance.json").write_text('{"format": 1, "flops": {"per_step": 470, "ratio": 2.35}}')
    (read,) = read_runs([run]).runs
    found = {name: measure.find(read) for name, measure in MEASURES.items()}
    assert found == pytest.approx(
        {
            "accuracy": 10.0,
            "flops": 2.35,
            "lambda_1": 15.0,
            "lambda_1_published": math.nan,
            "ratio": 3.0,
            "trace": math.nan,
            "local": 1.25,
            "everyone": 17.5,
            "sam": 0.75,
            "incompatibility": 0.02,
            "robust": 45.0,
            "forgetting": -30.0,
        },
        nan_ok=True,
    )


def test_the_published_eigenvalue_has_a_name_of_its_own(tmp_path: Path) -> None:
    run, answer = make_run(tmp_path / "run", "fedavg"), curvature.stored()
    data = answer.data.assign(
        published_eigenvalue=0.9 * answer.data["eigenvalue"], published_residual=answer.data["residual"]
    )
    write_answer(run, replace(answer, data=data))
    (read,) = read_runs([run]).runs
    assert MEASURES["lambda_1"].find(read) == pytest.approx(30.0)
    assert MEASURES["lambda_1_published"].find(read) == pytest.approx(27.0)


def others() -> list[Answer]:
    rounds, kinds = [5, 10], ["sam", "average"]
    values = variable(("round", "kind"), [[9.0, 9.0], [0.75, 0.5]], "sharpness")
    spread = variable("round", [0.5, 0.02], "variance")
    return [
        make_answer("sharpness", xr.Dataset({"global_model_value": values}, {"round": rounds, "kind": kinds})),
        make_answer("incompatibility", xr.Dataset({"rise_dispersion_corrected": spread}, {"round": rounds})),
    ]


def test_results_without_the_variable_are_not_known(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    write_answer(run, make_answer("curvature", xr.Dataset()))
    assert math.isnan(MEASURES["lambda_1"].find(read_runs([run]).runs[0]))


@pytest.mark.parametrize("text", [None, "{", '{"format": 1}', '{"format": 1, "flops": 3}', '{"flops": {"ratio": "x"}}'])
def test_operations_that_were_not_counted_are_not_known(tmp_path: Path, text: str | None) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    (run / "provenance.json").unlink(missing_ok=True)
    if text is not None:
        (run / "provenance.json").write_text(text)
    assert math.isnan(MEASURES["flops"].find(read_runs([run]).runs[0]))


def test_targets_count_from_the_server_and_from_its_average(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg", swa=True)
    write_answer(run, training.stored(swa=True))
    (read,) = read_runs([run]).runs
    assert list_targets([read]) == [0.1, 0.2, 0.9]
    assert find_target_cost(read, 0.1) == (1.0, 4e6)
    assert find_target_cost(read, 0.2) == (1.0, 4e6)  # SWA, a round before the server's model; the mean does not count
    assert all(math.isnan(value) for value in (*find_target_cost(read, 0.9), *find_target_cost(read, 0.7)))


def test_personal_accuracy_by_strategy(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    write_answer(run, personal.stored())
    (read,) = read_runs([run]).runs
    means = [list_personal_scores(read, way).mean() for way in (None, "finetune", "knn")]
    assert means == pytest.approx([50.0, 90.0, 70.0])  # the client without test examples is left out
    assert len(list_personal_scores(read, "local")) == 0


def test_bytes_of_a_round() -> None:
    records = [{"round": 1, "bytes_up": 3, "bytes_down": 1}, {"round": 2, "bytes_up": 5, "bytes_down": 1}]
    assert count_bytes_per_round(Run(Path("run"), {}, records)) == 5.0
    assert math.isnan(count_bytes_per_round(Run(Path("run"), {}, [{"round": 1}])))
