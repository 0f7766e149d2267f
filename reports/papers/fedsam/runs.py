"""The settings of the FedSAM paper as literal tables: data sets, radii, schedules. Its tables 9 to 12 show them.

Printed are neither the number of seeds nor the settings of centralised training: what stands in for them is said in the
notes of the artefacts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reports.artefact import Settings


@dataclass(frozen=True)
class Radii:
    """What was tuned for one split of a data set (Table 11).

    split: as printed. alpha: of the Dirichlet distribution; None where there is none.
    sam: radius of SAM. asam: radius of ASAM. etas: of ASAM; the first is for Mixup where there are two.
    """

    split: str
    alpha: float | None
    sam: float
    asam: float
    etas: tuple[float, ...] = (0.2,)


@dataclass(frozen=True)
class Schedule:
    """SWA on one data set (Table 12): rounds of a cycle, rates at its two ends, and the printed rounds to start at."""

    cycle: int
    first: float
    last: float
    starts: tuple[int, ...]


@dataclass(frozen=True)
class DataSet:
    """One data set with everything that is printed about it (Tables 9 to 12); None or empty where nothing is.

    name: in recipes. title: as printed. task: classification, segmentation (SS) or domain generalisation (DG).
    clients, train, test: how many clients, training and test examples. unequal: whether clients differ in size.
    lr, batch, decay, epochs, momentum, rounds, participants: of training.
    cutout: side of the square of Cutout.
    """

    name: str
    title: str
    task: str
    clients: int | None
    unequal: bool | None
    train: int | None
    test: int
    lr: float = 0.0
    batch: int = 0
    decay: float = 0.0
    epochs: tuple[int, ...] = ()
    momentum: float = 0.0
    rounds: int = 0
    participants: tuple[int, ...] = ()
    radii: tuple[Radii, ...] = ()
    swa: Schedule | None = None
    cutout: int = 0
    settings: Settings = field(default_factory=dict)


CIFAR10 = DataSet(
    "cifar10", "CIFAR10", "Classification", 100, False, 50_000, 10_000,
    0.01, 64, 4e-4, (1,), 0.0, 10_000, (5, 10, 20),
    (Radii("α = 0", 0.0, 0.1, 0.7), Radii("α = 0.05", 0.05, 0.1, 0.7), Radii("α = 100", 100.0, 0.02, 0.05)),
    Schedule(10, 1e-2, 1e-4, (7_500,)), 16,
    {"data": {"name": "cifar10", "std": [0.2023, 0.1994, 0.2010]}},  # std is the published code's
)  # fmt: skip
CIFAR100 = DataSet(
    "cifar100", "CIFAR100", "Classification", 100, False, 50_000, 10_000,
    0.01, 64, 4e-4, (1,), 0.0, 20_000, (5, 10, 20),
    (Radii("α = 0", 0.0, 0.02, 0.5), Radii("α = 0.5", 0.5, 0.05, 0.5), Radii("α = 1000", 1000.0, 0.05, 0.5)),
    Schedule(20, 1e-2, 1e-4, (15_000,)), 8, {"data": {"name": "cifar100"}},
)  # fmt: skip
PAM = DataSet(
    "cifar100-pam", "CIFAR100-PAM", "Classification", 500, False, 50_000, 10_000,
    0.01, 20, 4e-4, (1, 2), 0.9, 10_000, (10, 20),
    (Radii("α = 0.1", 0.1, 0.05, 0.5, (0.0, 0.2)),), Schedule(5, 1e-2, 1e-4, (15_000,)), 8,
    {
        "data": {"name": "cifar100"},
        "partition": {"name": "pachinko", "clients": 500, "alpha": 0.1, "beta": 10.0},
        "model.name": "resnet18_gn",
    },
)  # fmt: skip
LANDMARKS = DataSet(
    "landmarks", "LANDMARKS-USER-160K", "Classification", 1262, True, 164_172, 19_526,
    0.1, 64, 4e-5, (5,), 0.0, 5_000, (10,),
    (Radii("-", None, 0.05, 0.5, (0.0, 0.2)),), Schedule(5, 1e-1, 1e-3, (3_750, 5_000)), 0,
    {
        "data": {"name": "landmarks"},
        "partition": {"name": "natural", "clients": 1262},
        "model.name": "mobilenetv2_gn",
        "augment": {"flip": True, "area": [0.08, 1.0]},
    },
)  # fmt: skip
# the ranges and sizes are printed; how they are drawn is FedDrive's code
SCENE_AUGMENTATION: dict[str, Settings] = {
    "cityscapes": {"scale": [0.5, 1.5], "crop": [512, 1024], "jitter": 0.4},
    "idda": {"flip": True, "area": [0.5, 2.0], "crop": [512, 928]},
}
UNSEEN = ("country", "rainy")  # domains of IDDA that are left out of training
CITYSCAPES = {
    split: DataSet(
        "cityscapes", f"CITYSCAPES ({split})", "SS", clients, True, 2_975, 500,
        0.05, 8, 5e-4, (2,), 0.9, 1_500, (5,),
        (Radii("het./unif.", None, 0.01, 0.1),), Schedule(5, 5e-2, 5e-4, (1_125,)), 0,
        {
            "data": {"name": "cityscapes", "split": f"data/cityscapes/data/{split}"},
            "partition": {"name": "natural", "clients": clients},
            "model.name": "bisenet_v2",
            "augment": SCENE_AUGMENTATION["cityscapes"],
            "local.hard_pixels": 0.25,
            "local.drop_last": True,
        },
    )
    for split, clients in (("uniform", 146), ("heterogeneous", 144))
}  # fmt: skip
IDDA = {
    (split, unseen): DataSet(
        "idda", f"IDDA ({unseen})", "SS+DG", clients, False, train, test,
        0.1, 8, 0.0, (2,), 0.9, 1_500, (5,),
        (Radii("het./unif.", None, 0.01, 0.5),), Schedule(5, 1e-1, 1e-3, (1_125,)), 0,
        {
            "data": {
                "name": "idda", "split": f"data/idda/data/{split}/{unseen}", "height": 1024, "width": 1856
            },
            "partition": {"name": "natural", "clients": clients},
            "model": {"name": "bisenet_v2", "test_scale": 0.5},
            "augment": SCENE_AUGMENTATION["idda"],
            "local.hard_pixels": 0.25,
            "local.drop_last": True,
        },
    )
    for split in ("uniform", "heterogeneous")
    for unseen, clients, train, test in (("country", 90, 4_320, 1_920), ("rainy", 69, 3_312, 2_928))
}  # fmt: skip
CORRUPTED = tuple(
    DataSet(name, name.upper(), "DG", None, None, None, 10_000) for name in ("cifar10-c", "cifar100-c")
)  # test sets only
DATA_SETS = (
    CIFAR10,
    CIFAR100,
    PAM,
    *CORRUPTED,
    LANDMARKS,
    *CITYSCAPES.values(),
    *(IDDA["uniform", one] for one in UNSEEN),
)

SETTINGS: Settings = {
    "model.name": "lenet64",
    "partition.name": "dirichlet_total",
    "partition.clients": 100,
    "augment.padding": 4,
    "augment.flip": True,
    "local.lr": 0.01,
    "local.batch_size": 64,
    "local.weight_decay": 4e-4,
    "rounds.participants": 5,
    "evaluation.every": 10,
    "evaluation.last": 100,  # every reported accuracy is the mean of the last 100 rounds (appendix C)
    "checkpoints.every": 1000,  # as the maps of figures 4 and 16 need; the same for all, so that no scale makes it less
    "checkpoints.keep_locals": "none",
}
# one client that holds everything; the schedule of this baseline is not printed
CENTRALISED: Settings = {
    "partition": {"name": "iid", "clients": 1},
    "rounds.participants": 1,
    "rounds.count": 300,
    "evaluation.every": 1,
    "evaluation.last": 10,
    "checkpoints.every": 75,
}
CENTRALISED_RADII = Radii("centralised", None, 0.05, 0.5)
CENTRALISED_CYCLE = 5
NO_AUGMENTATION, MIXUP, CUTOUT = "no augmentation", "Mixup", "Cutout"


@dataclass(frozen=True)
class Training:
    """How the runs of a row are trained: fedavg, fedsam or fedasam, with or without SWA."""

    method: str
    swa: bool = False
    epochs: int = 1


def use_method(method: str, radii: Radii, augmentation: str = NO_AUGMENTATION) -> Settings:
    """Return the settings of fedavg, fedsam or fedasam at the radii of a split."""
    eta = radii.etas[0] if augmentation == MIXUP else radii.etas[-1]
    chosen: dict[str, Settings] = {
        "fedavg": {"name": "fedavg"},
        "fedsam": {"name": "fedsam", "rho": radii.sam},
        "fedasam": {"name": "fedasam", "rho": radii.asam, "eta": eta},
    }
    return {"algorithm": dict(chosen[method])}


def use_data(data: DataSet) -> Settings:
    """Return the settings that a data set brings: the data, and the length and rates of training."""
    return {
        **data.settings,
        "rounds.count": data.rounds,
        "local.lr": data.lr,
        "local.batch_size": data.batch,
        "local.weight_decay": data.decay,
        "local.momentum": data.momentum,
    }


def use_swa(data: DataSet, **changes: object) -> Settings:
    """Return the settings of SWA on a data set, from three quarters of the rounds on.

    changes: of single settings of SWA.
    """
    assert data.swa is not None
    return {"swa": {"cycle": data.swa.cycle, "start": 0.75, "lr_end": data.swa.last, **changes}}


def use_augmentation(data: DataSet, augmentation: str) -> Settings:
    """Return the settings of crop and flip with Mixup, Cutout or neither."""
    extra: dict[str, Settings] = {NO_AUGMENTATION: {}, MIXUP: {"mixup": 1.0}, CUTOUT: {"cutout": data.cutout}}
    return {"augment": {"padding": 4, "flip": True, **extra[augmentation]}}


def use_training(data: DataSet, place: int, training: Training, augmentation: str = NO_AUGMENTATION) -> Settings:
    """Return the settings of a run on one of the CIFAR data sets.

    place: of the split among those of the data set: 0 has one class a client, 2 has equal clients.
    """
    radii = data.radii[place]
    return {
        **use_data(data),
        "partition.alpha": radii.alpha,
        **use_method(training.method, radii),
        **use_augmentation(data, augmentation),
        **({"local.epochs": training.epochs} if training.epochs > 1 else {}),
        **(use_swa(data) if training.swa else {}),
    }


def use_centralised(training: Training, augmentation: str = NO_AUGMENTATION) -> Settings:
    """Return the settings of centralised training on CIFAR100."""
    return {
        **use_data(CIFAR100),
        **CENTRALISED,
        **use_method(training.method, CENTRALISED_RADII),
        **use_augmentation(CIFAR100, augmentation),
        **(use_swa(CIFAR100, cycle=CENTRALISED_CYCLE) if training.swa else {}),
    }
