"""What belongs into one line: seeds do, settings do not."""

from __future__ import annotations

from pathlib import Path

from reports.inputs.runs import Collection, read_runs
from reports.palette import assign_looks
from reports.variants import (
    choose_shown,
    describe_seeds,
    describe_shown,
    find_numeric_settings,
    find_variants,
    make_titles,
    sort_by_title,
)
from tests.reports.conftest import make_run
from tests.reports.results.seeds_and_settings import varied


def swept(folder: Path) -> Collection:
    paths = [make_run(folder / "plain", "fedavg")]
    for rho in (0.5, 0.05, 0.1):
        paths.append(varied(make_run(folder / f"rho{rho}", "fedsam"), algorithm_rho=rho))
    paths.append(varied(make_run(folder / "again", "fedsam", seed=3), algorithm_rho=0.5))
    return read_runs(paths)


def test_seeds_belong_together_and_settings_do_not(tmp_path: Path) -> None:
    found = swept(tmp_path)
    made = find_variants(found.runs, found)
    assert [one.name for one in made] == ["FedAvg", "FedSAM, ρ = 0.05", "FedSAM, ρ = 0.1", "FedSAM, ρ = 0.5"]
    assert made[3].names == ["rho0.5", "again"]
    assert made[1].look == assign_looks(["fedavg", "fedsam"])["fedsam"]
    assert len({one.look.color for one in made}) == 4
    assert len({one.look.line for one in made[1:]}) == 3  # for grey print
    assert describe_seeds(made) == "mean and range over up to 2 seeds"
    assert describe_seeds(made[:2]) == ""


def test_a_setting_along_an_axis_is_no_difference(tmp_path: Path) -> None:
    found = swept(tmp_path)
    assert find_numeric_settings(found.runs) == ["algorithm.rho"]
    made = find_variants(found.runs, found, apart=["algorithm.rho"])
    assert [(one.name, len(one.runs)) for one in made] == [("FedAvg", 1), ("FedSAM", 4)]


def test_panels_are_named_and_ordered_alike(tmp_path: Path) -> None:
    found = swept(tmp_path)
    named = make_titles(found.runs, found)
    assert named["again"] == "FedSAM, ρ = 0.5, seed 3"
    assert named["plain"] == "FedAvg"
    assert [run.name for run in sort_by_title(found.runs, named)] == ["plain", "rho0.05", "rho0.1", "rho0.5", "again"]


def test_names_that_would_be_mixed_up_are_written_out(tmp_path: Path) -> None:
    paths = []
    for place in (1, 2):
        path = make_run(tmp_path / str(place), "fedavg")
        paths.append(varied(path, local_lr=0.1 * place, server_lr=1.0 * place, partition_clients=place))
    found = read_runs(paths)
    assert find_variants(found.runs, found)[0].name == "FedAvg, clients = 1, local.lr = 0.1, server.lr = 1"


def test_checkpoints_and_switches_are_no_numbers(tmp_path: Path) -> None:
    paths = [
        varied(make_run(tmp_path / str(place), "fedavg"), checkpoints_every=place, algorithm_flag=bool(place))
        for place in (0, 1)
    ]
    assert find_numeric_settings(read_runs(paths).runs) == []


def test_of_many_runs_each_variant_is_shown_by_one_seed(tmp_path: Path) -> None:
    seeds = [("fedsam", seed) for seed in range(1, 7)] + [("fedavg", seed) for seed in range(7)]
    found = read_runs([make_run(tmp_path / f"{name}_{seed}", name, seed=seed, studies=()) for name, seed in seeds])
    shown = choose_shown(found.runs, found)
    assert [run.name for run in shown] == ["fedavg_1", "fedsam_1"]  # seed 0 is one that only one of them has
    assert describe_shown(shown, found.runs) == "2 of 13 runs shown, one seed each"
    few = choose_shown(found.runs[:12], found)
    assert len(few) == 12
    assert describe_shown(few, found.runs[:12]) == ""
