"""Every recipe that ships loads, says what it is, holds the papers' numbers, and trains."""

from __future__ import annotations

import json
import re

import pytest

from training import catalog, config, partition
from training.executor import Serial
from training.rounds import Federation, train

NAMES = sorted(path.stem for path in config.RECIPES.glob("*.toml"))
DIGITS = [name for name in NAMES if name.startswith("digits_")]
PAPERS = [name for name in NAMES if name not in DIGITS]
TINY = [
    "data.name=synthetic",
    "data.shape=[3, 32, 32]",
    "data.examples=1500",  # pathological: 20 clients of 15 classes each need 300
    "data.test_examples=20",
    "rounds.count=1",
    "rounds.participants=1",
    "local.steps=1",
    "local.batch_size=4",
]


def test_the_recipes_are_there():
    assert {"digits_fedavg", "digits_heterogeneity", "digits_centralised", "fedsam_cifar10", "fedsol_cifar10"} <= set(
        NAMES
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_loads_and_says_what_it_is(name):
    text = (config.RECIPES / f"{name}.toml").read_text()
    assert re.match(r"# [A-Z].{30,}[^.]\n", text)
    assert max(map(len, text.splitlines())) <= 120
    runs = config.load(name)
    assert len({run.digest for run in runs}) == len(runs)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_recipe_advises_to_set_can_be_set(name):
    comments = " ".join(line for line in (config.RECIPES / f"{name}.toml").read_text().splitlines() if line[0:1] == "#")
    advised = re.findall(r"--set (\"[^\"]+\"|\S+)", comments)
    assert len(advised) == comments.count("--set")
    plain = config.load(name)
    for words in advised:
        override = words.strip('"').rstrip(".,;):")
        assert {run.digest for run in config.load(name, [override])} != {run.digest for run in plain}


# FedSAM paper, Tables 10-12: rho of SAM, rho of ASAM and the SWA cycle by data set and alpha
RADII = {
    ("cifar10", 0.0): (0.1, 0.7, 10, 10_000),
    ("cifar10", 0.05): (0.1, 0.7, 10, 10_000),
    ("cifar10", 100.0): (0.02, 0.05, 10, 10_000),
    ("cifar100", 0.0): (0.02, 0.5, 20, 20_000),
    ("cifar100", 0.5): (0.05, 0.5, 20, 20_000),
    ("cifar100", 1000.0): (0.05, 0.5, 20, 20_000),
}


def test_the_fedsam_paper():
    names = ("cifar10", "cifar10_homogeneous", "cifar100", "cifar100_one_class")
    runs = [run for name in names for run in config.load(f"fedsam_{name}")]
    found = {}
    for run in runs:
        key = (run.data.name, run.partition.settings["alpha"], run.algorithm.name, run.swa is not None)
        assert key not in found
        found[key] = run
        assert (run.local.lr, run.local.batch_size, run.local.weight_decay, run.local.epochs) == (0.01, 64, 4e-4, 1)
        assert (run.local.momentum, run.local.lr_decay, run.local.clip) == (0, 1, None)
        assert (run.partition.name, run.partition.clients, run.rounds.participants) == ("dirichlet_total", 100, 5)
        assert (run.model.name, run.augment.padding, run.augment.flip) == ("lenet64", 4, True)
        assert run.evaluation.every * run.evaluation.last == 100
    for (data, alpha), (sam, asam, cycle, count) in RADII.items():
        for swa in (False, True):
            plain, flat, adaptive = (found.pop((data, alpha, name, swa)) for name in ("fedavg", "fedsam", "fedasam"))
            assert {run.rounds.count for run in (plain, flat, adaptive)} == {count}
            assert flat.algorithm.settings["rho"] == sam
            assert (adaptive.algorithm.settings["rho"], adaptive.algorithm.settings["eta"]) == (asam, 0.2)
            assert not swa or (plain.swa.start, plain.swa.cycle, plain.swa.lr_end) == (0.75, cycle, 1e-4)
    assert not found


def test_the_fedgloss_paper():
    for data, alphas, rho, count in (("cifar10", {0.0, 0.05}, 0.15, 10_000), ("cifar100", {0.0, 0.5}, 0.01, 20_000)):
        runs = config.load(f"fedgloss_{data}")
        assert {run.partition.settings["alpha"] for run in runs} == alphas
        radii = {run.algorithm.settings["rho"] for run in runs if "sam" in run.algorithm.name}
        assert radii == {rho}
        assert {run.rounds.count for run in runs} == {count}
    for data, alpha in (("cifar10", 0.05), ("cifar100", 0.5)):
        run, *others = config.load(f"fedgloss_{data}_resnet18")
        assert {run.algorithm.name, *(other.algorithm.name for other in others)} == {
            "fedavg",
            "fedprox",
            "feddyn",
            "scaffold",
            "fedsam",
            "feddyn+sam",
        }
        assert (run.data.name, run.partition.settings["alpha"], run.model.name) == (data, alpha, "resnet18_gn")
        assert (run.local.lr, run.local.weight_decay, run.local.momentum, run.local.batch_size) == (0.01, 1e-5, 0.7, 64)
        assert (run.rounds.count, run.rounds.participants, run.partition.clients) == (10_000, 10, 100)


def test_the_fedsol_paper():
    runs = config.load("fedsol_cifar10")
    splits = {(run.partition.name, *run.partition.settings.values()) for run in runs}
    assert {split[:2] for split in splits} == {
        *(("shards", s) for s in (2, 5, 10)),
        *(("dirichlet_by_class", alpha) for alpha in (0.05, 0.1, 0.5)),
    }
    local = runs[0].local
    assert (local.lr, local.lr_decay, local.batch_size, local.epochs) == (0.01, 0.99, 50, 5)
    assert (local.momentum, local.weight_decay) == (0.9, 1e-5)
    assert (runs[0].rounds.count, runs[0].rounds.participants, runs[0].augment.cutout) == (300, 10, 16)


def test_the_fedfsa_paper():
    for data, s, beta in (("cifar10", 5, 0.5), ("cifar100", 15, 0.3)):
        runs = config.load(f"fedfsa_{data}")
        assert all(run.data.pooled and run.seed == 23 and run.model.name == "fsa_cnn" for run in runs)
        splits = {(run.partition.name, *run.partition.settings.values()) for run in runs}
        assert splits == {("pathological", s), ("dirichlet_per_class", beta)}
        local = runs[0].local
        assert (local.lr, local.batch_size, local.epochs, local.clip, local.weight_decay) == (0.1, 48, 10, 10.0, 0)


def test_fl_simulator():
    run, *others = config.load("fl_simulator_cifar10")
    betas = [other.partition.settings.get("beta") for other in others if other.algorithm.name == "fedavg"]
    assert betas == [0.6, 0.3, 0.1]
    local = run.local
    assert (local.lr, local.lr_decay, local.batch_size, local.epochs) == (0.1, 0.998, 50, 5)
    assert (local.weight_decay, local.clip, run.rounds.sampling) == (1e-3, 10.0, "bernoulli")
    assert (run.rounds.count, run.rounds.aggregation, run.model.name) == (1000, "uniform", "resnet18_gn")


def test_a_baseline_is_one_client_with_everything():
    for name in ("digits_centralised", "cifar10_centralised"):
        runs = config.load(name)
        assert all(run.partition.clients == run.rounds.participants == 1 for run in runs)
        kinds = {(type(catalog.method(run.algorithm.name).perturbation).__name__, bool(run.swa)) for run in runs}
        assert kinds == {(kind, swa) for kind in ("NoPerturbation", "SAM", "ASAM") for swa in (False, True)}


QUICK = ("lenet64", "fedavg_net", "fsa_cnn")  # a residual network takes seconds for one step and one evaluation


def ends(runs):
    """The first and the last run of a sweep, so that all models and most methods have their turn."""
    return {run.digest: run for run in (runs[0], runs[-1])}.values()


@pytest.mark.parametrize("name", DIGITS)
def test_a_digits_recipe_trains(name, tmp_path):
    for run in ends(config.load(name, ["rounds.count=1", "local.steps=2"])):
        path = train(run, tmp_path, backend="serial", say=lambda _: None)
        status = json.loads((path / "status.json").read_text())
        assert (status["state"], status["round"]) == ("finished", 1)


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_recipe_trains_on_images_of_the_same_shape(name):
    first = config.load(name)[0]
    overrides = [*TINY, f"data.classes={100 if first.data.name == 'cifar100' else 10}"]
    overrides += [f"partition.clients={min(20, first.partition.clients)}"]
    if first.partition.name == "pachinko":
        overrides.append(f"partition.coarse={[label // 5 for label in range(100)]}")
    runs = config.load(name, overrides)
    for run in ends(runs if first.model.name in QUICK else runs[-1:]):
        federation = Federation(run)  # without a directory: the big networks would fill the disk
        state, record, local_models = federation.advance(federation.begin(), Serial(federation.shop))
        assert state.round == 1
        assert record["participants"] == len(local_models) >= 1
        assert record["update"] > 0
        assert 0 <= record["accuracy"] <= 1


def test_every_partition_has_a_recipe():
    used = {run.partition.name for name in NAMES for run in config.load(name)}
    assert used == set(partition.PARTITIONS)
