"""Accuracy over rounds: what is mixed into one line, and what is not."""

from __future__ import annotations

from pathlib import Path

from reports.figures.accuracy import FIGURE
from reports.inputs.runs import Collection, read_runs
from tests.reports.conftest import make_run
from tests.reports.results.seeds_and_settings import varied


def test_lines_and_bands_say_whose_they_are(collection: Collection) -> None:
    (drawn,) = FIGURE.draw(collection.runs, collection)
    left = drawn.canvas.axes[0]
    assert [line.get_gid() for line in left.get_lines()] == ["runs:run_a run_b", "runs:run_c"]
    assert [band.get_gid() for band in left.collections] == ["runs:run_a run_b"]
    first = drawn.rows[0]
    assert (first["mean"], first["lowest"], first["highest"], first["seeds"]) == (7.5, 5.0, 10.0, 2)


def test_another_setting_is_not_another_seed(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(rho), "fedsam", scale=rho, studies=()) for rho in (0.5, 0.1)]
    for path in runs:
        varied(path, algorithm_rho=float(path.name))
    found = read_runs(runs)
    (drawn,) = FIGURE.draw(found.runs, found)
    lines = drawn.canvas.axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["FedSAM, ρ = 0.1", "FedSAM, ρ = 0.5"]
    assert len({line.get_color() for line in lines}) == 2
    assert not drawn.canvas.axes[0].collections


def test_runs_without_a_finished_round_are_no_picture(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    (run / "metrics.jsonl").write_text("")
    bare = read_runs([run])
    assert FIGURE.draw(bare.runs, bare) == []
