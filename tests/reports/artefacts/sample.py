"""A paper of two methods on two partitions that can be trained in seconds."""

from __future__ import annotations

from reports.artefact import Artefact, Entry, Grid, NotReproduced, Paper, Question
from reports.quantities.catalog import ACCURACY

LAMBDA = Question("curvature", "lambda", {"rounds": "last", "top": 2}, digits={"top": 1})
ROWS = (
    Entry("FedAvg", {"algorithm": {"name": "fedavg"}}, key="avg"),
    Entry("FedSAM", {"algorithm": {"name": "fedsam", "rho": 0.1}}, key="sam"),
)
COLUMNS = (
    Entry("α = 0", {"partition.alpha": 0.0}, "CIFAR10"),
    Entry("α = 1", {"partition.alpha": 1.0}, "CIFAR10"),
    Entry("all", {"data.name": "landmarks", "partition": {"name": "natural", "clients": 1262}}, "Landmarks"),
)
ACCURACIES = Artefact(
    "table1", "Accuracy", Grid(ROWS, COLUMNS, ACCURACY, absent=frozenset({("sam", "CIFAR10: α = 1")}))
)
SHARPNESS = Artefact(
    "table2",
    "Sharpness",
    Grid(ROWS, COLUMNS[:1], ACCURACY),
    settings={"checkpoints.keep_locals": "all", "checkpoints.every": 200},
    questions=(LAMBDA,),
)
ONLY_LANDMARKS = Artefact("table3", "Landmarks", Grid(ROWS, COLUMNS[2:], ACCURACY))
DRAWING = Artefact("figure1", "A concept", NotReproduced("a concept drawing"))
PAPER = Paper(
    key="sample",
    name="Sample",
    title="A sample",
    where="nowhere",
    settings={
        "data.name": "cifar10",
        "partition.name": "dirichlet_total",
        "partition.clients": 100,
        "model.name": "lenet64",
        "local.lr": 0.01,
        "rounds.count": 1000,
        "rounds.participants": 5,
        "evaluation.last": 100,
        "checkpoints.every": 500,
    },
    seeds=(3, 4, 5),
    artefacts=(ACCURACIES, SHARPNESS, ONLY_LANDMARKS, DRAWING),
)
