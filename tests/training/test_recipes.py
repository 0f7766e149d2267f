"""Every recipe that ships loads, says what it is, holds the papers' numbers, and trains; and every method learns."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from training import config
from training.data import datasets, partition
from training.engine.federation import Federation
from training.engine.run import train
from training.executors.serial import Serial
from training.methods import catalog
from training.personal.evaluation import options_class
from training.tasks.segmentation import compute_ious
from training.tasks.task import count_confusion

NAMES = sorted(path.stem for path in config.RECIPES.glob("*.toml"))
DIGITS = [name for name in NAMES if name.startswith("digits_")]
EMBEDDED = ["brain_methods", "plays_methods", "speeches_methods"]
PAPERS = [name for name in NAMES if name not in (*DIGITS, *EMBEDDED)]
TINY = [
    "rounds.count=1",
    "rounds.participants=1",
    "local.steps=1",
    "local.batch_size=4",
]

# the rows of the papers' tables, by the recipe that trains them
GLOSS_SGD = ("fedavg", "fedprox", "feddyn", "scaffold", "fedgloss+none")
GLOSS_SAM = ("fedsam", "feddyn+sam", "fedspeed", "fedgamma", "fedsmoo", "fedgloss")
FLAT = ("fedavg", "fedsam", "fedasam")
OTHERS = ("fedavgm", "fedprox", "scaffold", "feddyn", "adabest")
SOL = ("fedavg", "fedprox", "fednova", "scaffold", "fedntd", "fedsam", "fedasam", "fedsol")
CORRECTED = ("fedprox", "fednova", "scaffold", "feddyn", "moon", "fedsol", "fedsol-nova")
STRATEGIES = ("fedavg", "perfedavg", "fedbabu", "fedsol")
VSSAM = ("fedavg", "fedprox", "fedadam", "scaffold", "fedacg", "fedcm", "feddyn", "fedsam", "mofedsam", "fedgamma")
ROWS: dict[str, tuple[str, ...]] = {
    "fedgloss_cifar10": (*GLOSS_SGD, *GLOSS_SAM, "naivefedgloss"),
    "fedgloss_cifar100": (*GLOSS_SGD, *GLOSS_SAM, "naivefedgloss"),
    "fedgloss_cifar10_resnet18": (*GLOSS_SGD, *GLOSS_SAM),
    "fedgloss_cifar100_resnet18": (*GLOSS_SGD, *GLOSS_SAM),
    **dict.fromkeys(
        ("fedgloss_cifar10_homogeneous", "fedgloss_cifar100_homogeneous"),
        ("fedavg", "fedsam", "feddyn", "feddyn+sam", "fedsmoo", "fedgloss+none", "fedgloss"),
    ),
    **dict.fromkeys(("fedsam_cifar10", "fedsam_cifar10_homogeneous"), FLAT),
    **dict.fromkeys(("fedsam_cifar100", "fedsam_cifar100_one_class"), FLAT),
    **dict.fromkeys(("fedsam_cifar100_pachinko", "fedsam_cifar100_pachinko_mixup"), FLAT),
    **dict.fromkeys(("fedsam_cifar10_two_epochs", "fedsam_cifar100_two_epochs"), ("fedavg",)),
    **dict.fromkeys(("fedsam_cifar10_swa", "fedsam_cifar100_swa"), ("fedavg",)),
    "fedsam_cifar10_sota": (*OTHERS, *(f"{name}+{'sam' if name == 'feddyn' else 'asam'}" for name in OTHERS)),
    "fedsam_cifar100_sota": (*OTHERS, *(f"{name}+asam" for name in OTHERS)),
    "fedsam_cifar100_servers": ("fedavg", "fedadam", "fedadagrad"),
    **dict.fromkeys(
        ("fedfsa_cifar10", "fedfsa_cifar100", "fedfsa_fashion_mnist"),
        ("fedavg", "fedcr", "fedala", "fedsam", "mofedsam", "fedfsa"),
    ),
    **dict.fromkeys(
        ("fedfsa_cifar10_duals", "fedfsa_cifar100_duals", "fedfsa_fashion_mnist_duals"), ("fedsmoo", "fedspeed")
    ),
    "fedfsa_resnet18": ("mofedsam", "fedfsa"),
    "fedvssam_cifar10": (*VSSAM, "fedsmoo", "fedlesam", "fedvssam"),
    "fedvssam_cifar100": (*VSSAM, "fedsmoo", "fedlesam", "fedvssam"),
    "fedsol_cifar10": SOL,
    "fedsol_svhn": SOL,
    **dict.fromkeys(("fedsol_cifar10_proximal", "fedsol_svhn_proximal"), CORRECTED),
    **dict.fromkeys(("fedsol_cifar10_networks", "fedsol_svhn_networks"), ("fedavg", "fedprox", "fedntd", "fedsol")),
    **dict.fromkeys(("fedsol_cifar10_personal", "fedsol_svhn_personal"), STRATEGIES),
    # without norm layers, as here, SiloBN is FedAvg
    "digits_algorithms": tuple(name for name in catalog.ALGORITHMS if name != "silobn"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_table_has_all_its_rows(name):
    found = list(dict.fromkeys(run.algorithm.name for run in config.load(name)))
    assert sorted(found) == sorted(ROWS[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_loads_and_says_what_it_is(name):
    text = (config.RECIPES / f"{name}.toml").read_text()
    assert re.match(r"# [A-Z].{30,}[^.]\n", text)
    assert max(map(len, text.splitlines())) <= 120
    runs = config.load(name)
    assert len({run.digest for run in runs}) == len(runs)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_recipe_advises_to_set_can_be_set(name):
    lines = [line for line in (config.RECIPES / f"{name}.toml").read_text().splitlines() if line[0:1] == "#"]
    comments = " ".join(line for line in lines if "landscape personal" not in line)
    advised = re.findall(r"--set (\"[^\"]+\"|\S+)", comments)
    assert len(advised) == comments.count("--set")
    plain = config.load(name)
    for words in advised:
        override = words.strip('"').rstrip(".,;):")
        assert {run.digest for run in config.load(name, [override])} != {run.digest for run in plain}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_recipe_advises_for_personal_models_can_be_asked(name):
    lines = [
        line for line in (config.RECIPES / f"{name}.toml").read_text().splitlines() if "landscape personal" in line
    ]
    for line in lines:
        way = re.search(r"--strategy (\w+)", line).group(1)
        known = options_class(way).model_fields
        assert all(key in known for key in re.findall(r"--set (\w+)=", line))


def test_personal_models_as_the_papers_make_them():
    """FedFSA's last round trains the head alone, 10 epochs at 0.1; FedSoL's table has kNN-Per with k = 5."""
    for name in ("cifar10", "cifar100", "fashion_mnist"):
        for more in ("", "_duals"):
            text = (config.RECIPES / f"fedfsa_{name}{more}.toml").read_text()
            assert "--strategy finetune --set part=head --set epochs=10 --set lr=0.1" in text
    for name in ("cifar10", "svhn"):
        text = (config.RECIPES / f"fedsol_{name}_personal.toml").read_text()
        assert "--strategy knn --set epochs=1 --set k=5" in text


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
    for (data, alpha), (sam, asam, cycle, count) in RADII.items():
        for swa in (False, True):
            plain, flat, adaptive = (found.pop((data, alpha, name, swa)) for name in ("fedavg", "fedsam", "fedasam"))
            assert {run.rounds.count for run in (plain, flat, adaptive)} == {count}
            assert flat.algorithm.settings["rho"] == sam
            assert (adaptive.algorithm.settings["rho"], adaptive.algorithm.settings["eta"]) == (asam, 0.2)
            assert not swa or (plain.swa.start, plain.swa.cycle, plain.swa.lr_end) == (0.75, cycle, 1e-4)
    assert not found


@pytest.mark.parametrize("name", [name for name in PAPERS if name.startswith(("fedsam_", "fedgloss_"))])
def test_the_result_is_the_mean_of_the_last_hundred_rounds(name):
    assert {run.evaluation.last for run in config.load(name)} == {100}  # each of which is evaluated


def row(runs, name, **changes):
    """The settings of a method in a recipe; there is one such row."""
    rows = {run.algorithm.model_dump_json(): run.algorithm.settings for run in runs if run.algorithm.name == name}
    (found,) = (one for one in rows.values() if all(one[key] == value for key, value in changes.items()))
    return found


# FedGloSS paper, Table 13 and scripts: the radii of FedSAM and FedSMOO, then rho_s, rho, beta and T_s of FedGloSS
GLOSS = {
    "cifar10": (0.15, 0.15, (0.15, 0.15, 10.0, 2000), {0.0, 0.05}, 10_000),
    "cifar100": (0.01, 0.1, (0.01, 0.2, 100.0, 15_000), {0.0, 0.5}, 20_000),
    "cifar10_resnet18": (0.01, 0.01, (0.01, 0.01, 1.0, 0), {0.05}, 10_000),
    "cifar100_resnet18": (0.01, 0.01, (0.5, 0.01, 100.0, 0), {0.5}, 10_000),
}
# where Table 13 has lost its bold type: mu of FedProx, lam of FedSpeed, rho of FedDyn + SAM
UNMARKED = {
    "cifar10": (0.1, 100.0, 0.15),
    "cifar100": (0.1, 1000.0, 0.02),
    "cifar10_resnet18": (0.01, 1000.0, 0.01),
    "cifar100_resnet18": (0.1, 1000.0, 0.01),
}


@pytest.mark.parametrize("name", GLOSS)
def test_the_fedgloss_paper(name):
    rho, shared, (rho_s, rho_l, beta, warmup), alphas, count = GLOSS[name]
    runs = config.load(f"fedgloss_{name}")
    assert {run.partition.settings["alpha"] for run in runs} == alphas
    assert {run.rounds.count for run in runs} == {count}
    assert all(row(runs, method)["rho"] == rho for method in ("fedsam", "fedspeed", "fedgamma"))
    assert UNMARKED[name] == (
        row(runs, "fedprox")["mu"],
        row(runs, "fedspeed")["lam"],
        row(runs, "feddyn+sam")["rho"],
    )
    assert row(runs, "fedsmoo", warmup=0)["rho"] == shared
    if warmup:  # "+wp" of Figures 15 and 16
        assert row(runs, "fedsmoo", warmup=warmup) == {**row(runs, "fedsmoo", warmup=0), "warmup": warmup}
    gloss = row(runs, "fedgloss", rho_s=rho_s)
    assert [gloss[key] for key in ("rho_s", "rho", "beta", "warmup")] == [rho_s, rho_l, beta, warmup]
    plain = row(runs, "fedgloss+none", rho_s=rho_s)
    assert (plain["rho_s"], plain["beta"], "rho" in plain) == (rho_s, beta, False)
    if name == "cifar100_resnet18":  # Figure 19a finds a small radius best
        assert row(runs, "fedgloss", rho_s=0.01) == {**gloss, "rho_s": 0.01}
    if "resnet18" in name:
        run = runs[0]
        assert (run.model.name, run.rounds.participants, run.partition.clients) == ("resnet18_gn", 10, 100)
        assert (run.local.lr, run.local.weight_decay, run.local.momentum, run.local.batch_size) == (0.01, 1e-5, 0.7, 64)
    else:
        assert row(runs, "naivefedgloss") == gloss
        homogeneous = config.load(f"fedgloss_{name}_homogeneous")
        for clients in ("fedgloss", "fedgloss+none"):  # Table 9: with ADMM and without
            assert {row(homogeneous, clients, beta=one)["beta"] for one in (beta, float("inf"))} == {beta, float("inf")}


def test_other_methods_in_the_fedsam_paper():
    for data, beta, rho, cycle in (("cifar10", 0.9, 0.7, 10), ("cifar100", 0.8, 0.5, 20)):
        runs = config.load(f"fedsam_{data}_sota")
        assert (row(runs, "adabest+asam")["beta"], row(runs, "adabest")["mu"]) == (beta, 0.02)
        assert all(row(runs, f"{one}+asam")["rho"] == rho for one in ("fedavgm", "fedprox", "scaffold", "adabest"))
        assert (row(runs, "fedprox")["mu"], row(runs, "feddyn")["alpha"], row(runs, "fedavgm")["beta"]) == (
            0.1,
            0.01,
            0.9,
        )
        assert {run.swa.cycle if run.swa else None for run in runs} == {None, cycle}
        clipped = {run.algorithm.name for run in runs if run.local.clip is not None}
        assert clipped == {name for name in {run.algorithm.name for run in runs} if name.startswith("feddyn")}
        assert len(runs) == 40
    rates = {(run.algorithm.name, run.algorithm.settings["eta_g"]) for run in config.load("fedsam_cifar100_servers")}
    assert len(rates) == 12


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
    svhn = config.load("fedsol_svhn")[0]
    assert (svhn.rounds.count, svhn.local, svhn.augment.cutout) == (200, local, 0)
    for found in (runs, config.load("fedsol_svhn")):
        assert (row(found, "fedsol")["rho"], row(found, "fedsam")["rho"], row(found, "fedprox")["mu"]) == (
            2.0,
            0.1,
            1.0,
        )


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("fedsol_")])
def test_fedsol_averages_as_its_algorithm_does(name):
    assert {run.rounds.aggregation for run in config.load(name)} == {"uniform"}


@pytest.mark.parametrize(
    "name", [name for name in PAPERS if name.startswith(("fedfsa_", "fedsol_", "fedvssam_", "fedgloss_"))]
)
def test_a_recipe_says_how_to_repeat_it(name):
    assert '--set "sweep.seed=[' in (config.RECIPES / f"{name}.toml").read_text()


def test_the_ablations_of_fedsol():
    combined = [run.algorithm.settings for run in config.load("fedsol_cifar10_combinations")]
    assert [one["combine"] for one in combined] == [f"A{number}" for number in range(7)]
    partial = {
        (run.algorithm.settings["part"], run.algorithm.settings["rho"]) for run in config.load("fedsol_cifar10_partial")
    }
    assert partial == {(part, rho) for part in ("all", "head", "body") for rho in (0.5, 1.0, 1.5, 2.0)}
    runs = config.load("fedsol_cifar10_proximal")
    rows = [(run.algorithm.name, run.algorithm.settings.get("proximal")) for run in runs]
    base, climbed = rows[:5], rows[5:]
    assert [name for name, _ in base] == ["fedprox", "fednova", "scaffold", "feddyn", "moon"]
    assert [kind for _, kind in climbed] == ["distance", "kl", "control", "dual", "contrast"]
    assert [name for name, _ in climbed] == ["fedsol", "fedsol-nova", "fedsol", "fedsol", "fedsol"]
    assert all(run.algorithm.settings["rho"] == 2.0 for run in runs[5:])
    assert all(run.partition.settings["alpha"] == 0.1 for run in runs)
    models = {(run.model.name, *run.model.settings.values()) for run in config.load("fedsol_cifar10_networks")}
    assert models == {("vgg11",), ("resnet18_bn", False), ("sl_vit",)}


def test_fedvssam_has_other_coefficients_under_severe_heterogeneity():
    for data, classes in (("cifar10", (6, 3)), ("cifar100", (20, 10))):
        runs = config.load(f"fedvssam_{data}")
        assert len(runs) == 13 * 4
        own = {
            tuple(run.partition.settings.values()): (run.algorithm.settings["a"], run.algorithm.settings["gamma"])
            for run in runs
            if run.algorithm.name == "fedvssam"
        }
        moderate, severe = (0.2, 0.5), (0.1, 0.5)
        level = {key[0]: value for key, value in own.items()}
        assert level == {0.6: moderate, 0.1: severe, classes[0]: moderate, classes[1]: severe}
        assert {run.evaluation.every for run in runs} == {1}  # rounds to a target


def test_recipes_keep_what_their_papers_figures_need():
    inside = {name: config.load(name) for name in NAMES if name.endswith("_mechanism")}
    for run in inside[
        "fedvssam_mechanism"
    ]:  # 001 F7, F8 every 80 rounds; F6 rounds 400, 800; F1 local models at the end
        assert (run.checkpoints.every, run.rounds.count, run.checkpoints.keep_locals) == (80, 800, "last")
    for run in inside["fedgloss_mechanism"]:  # 002 F4, with and without ADMM
        assert "delta_epsilon" in run.record
        assert (run.checkpoints.keep_locals, run.checkpoints.keep_clients) == ("all", "all")
    betas = {run.algorithm.settings["beta"] for run in inside["fedgloss_mechanism"]}
    assert betas == {10.0, 100.0, float("inf")}
    for name in ("fedsam_cifar100", "fedsam_cifar100_one_class"):  # 003 F3, F4, F16
        for run in config.load(name):
            assert run.checkpoints.keep_locals == "all"
            assert all(round % run.checkpoints.every == 0 for round in (1000, 2000, 5000, 10_000, 15_000, 20_000))
    for run in inside["fedsol_mechanism"]:  # 004 F3a, F8b, F9, F10
        assert "proximal_cosine" in run.record
        assert (run.checkpoints.keep_locals, 200 % run.checkpoints.every) == ("all", 0)
    for run in inside["fedfsa_mechanism"]:  # every client's newest model: personal --strategy own
        assert (run.checkpoints.keep_locals, run.checkpoints.every) == ("all", 1)


def test_the_ablation_of_fedvssam():
    runs = config.load("fedvssam_cifar10_ablation")
    switches = [tuple(run.algorithm.settings[key] for key in ("lf", "lu", "gu")) for run in runs]
    assert sorted(map(sum, switches)) == [0, 1, 1, 1, 3]
    assert len(set(switches)) == 5


def test_the_fedfsa_paper():
    for data, s, beta, count, radii in (
        ("fashion_mnist", 5, 0.5, 250, (0.1, 0.2)),
        ("cifar10", 5, 0.5, 500, (0.1, 0.2)),
        ("cifar100", 15, 0.3, 500, (0.05, 0.9)),
        ("tiny_imagenet", 50, 0.3, 500, (0.05, 0.9)),
    ):
        runs = config.load(f"fedfsa_{data}")
        for measure in ("square", "minmax"):  # the paper's rank of layers, and its code's
            fsa = row(runs, "fedfsa", a=0.1, measure=measure)
            assert (fsa["rho"], fsa["rho_larger"], fsa["layers"], fsa["select"]) == (*radii, 2, "top")
        assert row(runs, "mofedsam")["rho"] == 0.1  # appendix, Table 4
        decayed = config.load(f"fedfsa_{data}_duals")
        assert {run.local.lr_decay for run in decayed} == {0.998}
        runs = [*runs, *decayed]
        assert all((run.augment.padding, run.augment.flip) == (4, True) for run in runs)  # appendix B.1
        assert all(run.data.pooled and run.seed == 23 and run.model.name == "fsa_cnn" for run in runs)
        splits = {(run.partition.name, *run.partition.settings.values()) for run in runs}
        assert splits == {("pathological", s), ("dirichlet_per_class", beta)}
        for local in (run.local for run in runs):
            assert (local.lr, local.batch_size, local.epochs, local.clip, local.weight_decay) == (0.1, 48, 10, 10.0, 0)
        assert {run.rounds.count for run in runs} == {count}
    for name in ("fedfsa_cifar10_selection", "fedfsa_cifar100_selection", "fedfsa_resnet18"):
        runs = [run for run in config.load(name) if run.algorithm.name == "fedfsa"]
        assert {run.algorithm.settings["select"] for run in runs} == {"top", "reverse", "random"}
        assert {run.partition.settings["beta"] for run in runs} == {0.3}


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
        kinds = {(type(catalog.find_method(run.algorithm.name).perturbation).__name__, bool(run.swa)) for run in runs}
        assert kinds == {
            (kind, swa) for kind in ("NoPerturbation", "SAM", "PreviousSAM", "ASAM") for swa in (False, True)
        }


QUICK = ("lenet64", "fedavg_net", "fsa_cnn")  # a residual network takes seconds for one step and one evaluation
SLOW = ("fedgloss_cifar10_resnet18", "fedvssam_cifar100", "fedsol_svhn_networks")  # one of each is enough
IMAGES = {"cifar10": (10, [3, 32, 32]), "cifar100": (100, [3, 32, 32]), "svhn": (10, [3, 32, 32])}
IMAGES |= {"fashion_mnist": (10, [1, 28, 28]), "tiny_imagenet": (200, [3, 64, 64]), "cinic10": (10, [3, 32, 32])}
IMAGES |= {"mnist": (10, [3, 28, 28]), "pathmnist": (9, [3, 28, 28]), "tissuemnist": (8, [3, 28, 28])}
# text, people and street scenes: their readers, networks and tasks have tests of their own
OTHER_DATA = {"fedgloss_landmarks", "fedsam_cityscapes", "fedsam_idda", "fedsam_landmarks", "fedvssam_dbpedia14"}


def ends(runs):
    """The first and the last run of a sweep, so that all models and most methods have their turn."""
    return {run.digest: run for run in (runs[0], runs[-1])}.values()


BASELINES = {  # of the test data: what the recipes state
    "brain_methods": ("miou", 0.1597),
    "plays_methods": ("accuracy", 0.2862),
    "speeches_methods": ("accuracy", 0.1),
}


def compute_baseline(name, fold=0):
    """What needs no network: the class of most pixels or texts everywhere, or the character that mostly follows."""
    data = datasets.load(config.load(name)[0].data.name, fold=fold)
    inputs, targets = data.test_inputs.long(), data.test_targets.long().flatten()
    likely = torch.bincount(data.train_targets.long().flatten()).argmax().expand(len(targets))
    if name == "plays_methods":
        pairs = data.train_inputs[:, -1].long() * data.classes + data.train_targets
        likely = torch.bincount(pairs, minlength=data.classes**2).view(data.classes, -1).argmax(dim=1)[inputs[:, -1]]
    if name == "brain_methods":
        return float(np.nanmean(compute_ious(count_confusion(likely, targets, data.classes))))
    return float((likely == targets).float().mean())


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_recipe_on_embedded_data_states_its_baseline(name):
    stated = BASELINES[name][1]
    assert compute_baseline(name) == pytest.approx(stated, abs=5e-4)
    assert f"{100 * stated:.1f} %" in (config.RECIPES / f"{name}.toml").read_text()
    assert [run.algorithm.name for run in config.load(name)] == ["fedavg", "fedsam", "fedgloss"]


@pytest.mark.parametrize(("name", "count"), [("brain_methods", 4), ("speeches_methods", 8)])
def test_segmentation_and_text_are_learned_to_above_the_baseline(name, count):
    """A part of the rounds of the recipe, FedAvg, tested on examples that none of its settings was chosen by."""
    metric, baseline = BASELINES[name][0], compute_baseline(name, fold=1)
    few = [f"rounds.count={count}", "evaluation.every=100", "evaluation.last=1", "data.fold=1"]
    federation = Federation(config.load(name, few)[0])
    state, executor = federation.begin(), Serial(federation.trainer)
    for _ in range(count):
        state, record, _ = federation.advance(state, executor)
    assert record[metric] > 1.3 * baseline


@pytest.mark.parametrize("name", DIGITS)
def test_a_digits_recipe_trains(name, tmp_path):
    for run in ends(config.load(name, ["rounds.count=1", "local.steps=2"])):
        path = train(run, tmp_path, backend="serial")
        status = json.loads((path / "status.json").read_text())
        assert (status["state"], status["round"]) == ("finished", 1)


@pytest.mark.parametrize("name", [name for name in PAPERS if name not in OTHER_DATA])
def test_a_paper_recipe_trains_on_images_of_the_same_shape(name):
    first = config.load(name)[0]
    classes, shape = IMAGES[first.data.name]
    # pathological: 20 clients of 20 classes each need 400, of 50 classes 1,000
    examples = 1600 if classes == 200 else 600
    data = f"name='synthetic', examples={examples}, test_examples=20, classes={classes}, shape={shape}"
    overrides = [*TINY, f"data={{{data}, pooled={str(first.data.pooled).lower()}}}"]
    overrides += [f"partition.clients={min(20, first.partition.clients)}"]
    if first.partition.name == "pachinko":
        overrides.append(f"partition.coarse={[label // 5 for label in range(100)]}")
    runs = config.load(name, overrides)
    for run in ends(runs if first.model.name in QUICK else runs[-1:]):
        federation = Federation(run)  # without a directory: the big networks would fill the disk
        if run.model.name not in QUICK and name not in SLOW:
            continue
        state, record, local_models = federation.advance(federation.begin(), Serial(federation.trainer))
        assert state.round == 1
        assert record["participants"] == len(local_models) >= 1
        assert record["update"] > 0
        assert 0 <= record["accuracy"] <= 1


def test_every_partition_has_a_recipe():
    used = {run.partition.name for name in NAMES for run in config.load(name)}
    assert used | {"natural", "file"} == set(partition.PARTITIONS)  # those two come with the data and with a file


# Settings under which a method learns on digits with a small perceptron within eight rounds, where its own do not.
SETTINGS = {
    "fedadam": {"algorithm": {"eta_g": 0.02}},  # the server's default rates are for thousands of rounds
    "fedadagrad": {"algorithm": {"eta_g": 0.05}},
    "fedspeed": {"algorithm": {"duals": "all"}},  # the mean over participants alone never settles while others are away
    "fedgmt": {"algorithm": {"duals": "all"}},
    "fedgf": {"algorithm": {"threshold": 0.1}, "local": {"lr": 0.05}},
    "fedfsa": {"algorithm": {"rho_larger": 0.1, "a": 0.3}},
    "fedvssam": {"algorithm": {"a": 0.5}},
    "fedsol": {"algorithm": {"rho": 0.5}},
    "fedsol-nova": {"algorithm": {"rho": 0.5}},
}
# Those that stay near chance with the settings of their papers, by nature, at the rate that suits the others.
FAILING = {
    "fedgf": "where the drift exceeds the threshold all local steps take the gradient at one point: one step, too long",
    "fedfsa": "a radius of 0.9 in two layers climbs out of the valley of so small a network",
    "fedsol": "so does a radius of 2",
    "fedsol-nova": "as fedsol",
}
GOOD = {0.5: 0.4, 0.0: 0.25}  # mean accuracy of the last three rounds; chance is 0.1


def accuracy(name, alpha, tables):
    """Mean accuracy of the last three of eight rounds on digits, 5 of 10 clients a round.

    Of the server's model; of the clients' own for FedCR, whose server has no trained head.
    """
    own = name == "fedcr"
    content = {
        "partition": {"name": "dirichlet_total", "clients": 10, "alpha": alpha},
        "model": {"name": "mlp", "hidden": [32]},
        "algorithm": {"name": name, **tables.get("algorithm", {})},
        "local": {"lr": 0.2, "batch_size": 32, "epochs": 2, **tables.get("local", {})},
        "rounds": {"count": 8, "participants": 5},
        "evaluation": {"personal": own, "draw": 30},
    }
    federation = Federation(config.validate(content))
    state, executor, found = federation.begin(), Serial(federation.trainer), []
    for _ in range(8):
        state, record, _ = federation.advance(state, executor)
        found.append(record["personal_accuracy" if own else "accuracy"])
    return sum(found[-3:]) / 3


@pytest.mark.parametrize("alpha", GOOD)
@pytest.mark.parametrize("name", catalog.ALGORITHMS)
def test_every_method_learns(name, alpha):
    assert accuracy(name, alpha, SETTINGS.get(name, {})) > GOOD[alpha]


@pytest.mark.parametrize("name", FAILING)
def test_what_does_not_learn_is_known(name):
    assert name in SETTINGS
    assert accuracy(name, 0.5, {}) < GOOD[0.5], f"{name} learns after all, although {FAILING[name]}"
