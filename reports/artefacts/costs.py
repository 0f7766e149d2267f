"""What artefacts take on this kind of machine, before anything is run: runs, hours, disk, and what is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rich.console import RenderableType
from rich.markup import escape

from reports.artefact import Artefact, NotReproduced, Paper
from reports.artefacts.parts import read_part
from reports.artefacts.plan import Wanted, list_keys, plan_paper
from reports.artefacts.scales import SCALES, Scale
from reports.artefacts.sizes import size_method, size_network
from reports.artefacts.stand_ins import Content
from training.console.tables import FittingTable, add_notes, make_table

STEP = 1e-3  # seconds of a local step beside its arithmetic; of clients that are stacked a few share them
RATE = 6e10  # floating-point operations a second of one core in training, measured with LeNet64
CORES = 2  # of the machine that hours are told for
NOTE = "time: of training on two cores, estimated; disk: of checkpoints; measuring comes on top"
TRAINING_SIZES = {
    "digits": 1437,
    "cifar10": 50000,
    "cifar100": 50000,
    "cinic10": 90000,
    "fashion_mnist": 60000,
    "mnist": 60000,
    "svhn": 73257,
    "pathmnist": 89996,
    "tissuemnist": 165466,
    "tiny_imagenet": 100000,
    "landmarks": 164172,
    "cityscapes": 2975,
    "idda": 4320,
    "dbpedia14": 140000,
    "brain": 100,
    "speeches": 1280,
}
POOLED_SHARE = 0.7 * 7 / 6  # of the training set: pooled data keep 70 % of train and test


@dataclass(frozen=True)
class Cost:
    """What some runs take: their number, hours of training on all cores, bytes of disk."""

    runs: int
    hours: float
    size: float

    def __str__(self) -> str:
        return f"{self.time}, {self.disk}" if self.runs else "-"

    @property
    def time(self) -> str:
        """The hours, as people say them."""
        if self.hours < 1:
            return f"{60 * self.hours:.0f} min" if self.hours > 1 / 60 else "1 min"
        return f"{self.hours:.0f} h" if self.hours < 100 else f"{self.hours / 24:,.0f} days"

    @property
    def disk(self) -> str:
        """The bytes, as people say them."""
        for unit, name in ((1e12, "TB"), (1e9, "GB")):
            if self.size >= unit:
                return f"{self.size / unit:.{0 if self.size >= 10 * unit else 1}f} {name}"
        return f"{max(self.size / 1e6, 1):.0f} MB"


def estimate(runs: Mapping[str, Wanted]) -> Cost:
    """Estimate how long runs take to train on two cores, and how much disk they need."""
    hours = sum(estimate_seconds(one.content) for one in runs.values()) / 3600 / CORES
    return Cost(len(runs), hours, sum(estimate_bytes(one.content) for one in runs.values()))


def estimate_seconds(content: Content) -> float:
    """Estimate the seconds that training takes on one core."""
    data, local, rounds = content.get("data", {}), content.get("local", {}), content.get("rounds", {})
    examples = data.get("examples") or TRAINING_SIZES[data.get("name", "digits")]
    examples *= POOLED_SHARE if data.get("pooled") else 1.0
    own = examples / content.get("partition", {}).get("clients", 10)
    visits = rounds.get("count", 10) * rounds.get("participants", 5)
    seen = visits * own * local.get("epochs", 1)
    steps = seen / min(local.get("batch_size", 64), own)
    gradients, _ = size_method(content)
    flops, _ = size_network(content)
    return float(gradients * (3 * seen * flops / RATE + steps * STEP))


def estimate_bytes(content: Content) -> float:
    """Estimate the bytes that a run's checkpoints take."""
    _, parameters = size_network(content)
    rounds, kept = content.get("rounds", {}), content.get("checkpoints", {})
    saved = rounds.get("count", 10) / kept.get("every", 5)
    locals_ = rounds.get("participants", 5) + 1
    vectors = 2 * saved + locals_ * (saved if kept.get("keep_locals") == "all" else 1)
    _, own = size_method(content)
    clients = content.get("partition", {}).get("clients", 10)
    vectors += own * clients * (saved if kept.get("keep_clients") == "all" else 2)
    return float(4 * parameters * vectors)


def list_costs(chosen: Sequence[tuple[Paper, Sequence[Artefact]]], scale: Scale, folder: Path) -> RenderableType:
    """List what artefacts would take at a scale, and what is done.

    folder: of the scale's runs and results.
    """
    table = make_table("artefact", "what it shows", "runs", "time", "disk", "state")
    total = Cost(0, 0.0, 0.0)
    for paper, artefacts in chosen:
        for one in artefacts:
            cost = _cost(paper, [one], scale)
            state = _tell_state(paper, one, folder)
            table.add_row(f"{paper.key}/{one.name}", _describe(one), *_tell(cost), state)
        total = _add(total, _cost(paper, artefacts, scale))
    table.add_section()
    table.add_row("all", "shared runs counted once", *_tell(total), "")
    return add_notes(table, NOTE)


def _cost(paper: Paper, artefacts: Sequence[Artefact], scale: Scale) -> Cost:
    """Estimate what some artefacts of a paper take together."""
    prices = _price(paper, scale)
    chosen = [prices[key] for key in list_keys(paper, artefacts, scale)]
    return Cost(len(chosen), sum(one.hours for one in chosen), sum(one.size for one in chosen))


@cache
def _price(paper: Paper, scale: Scale) -> dict[str, Cost]:
    """Estimate what each run of a paper takes, by its key."""
    return {key: estimate({key: one}) for key, one in plan_paper(paper, scale).items()}


def _add(one: Cost, other: Cost) -> Cost:
    return Cost(one.runs + other.runs, one.hours + other.hours, one.size + other.size)


def _tell(cost: Cost) -> tuple[str, str, str]:
    return (str(cost.runs), cost.time, cost.disk) if cost.runs else ("-", "-", "-")


def _describe(artefact: Artefact) -> str:
    """Say what an artefact shows, and where runs give nothing, why."""
    shape = artefact.shape
    why = f" (nothing to reproduce: {shape.why})" if isinstance(shape, NotReproduced) else ""
    return escape(f"{artefact.title}{why}")


def _tell_state(paper: Paper, artefact: Artefact, folder: Path) -> str:
    if isinstance(artefact.shape, NotReproduced):
        return "-"
    made = read_part(folder / paper.key, artefact.name)
    return "not made" if made is None else f"made, but {made.missing}" if made.missing else "made"


def list_artefacts(papers: Mapping[str, Paper], out: Path) -> RenderableType:
    """List every artefact of every paper: its data, what it takes at each scale, and what is done.

    out: folder of `landscape reproduce`.
    """
    wide = make_table("artefact", "what it shows", "data", *SCALES, "state")
    narrow = make_table("artefact", "what it shows, of which data", *SCALES)
    for paper in papers.values():
        totals = [_cost(paper, paper.artefacts, scale) for scale in SCALES.values()]
        narrow.add_section()
        narrow.add_row(paper.key, "all, shared runs counted once", *map(_stack, totals), style="bold")
        for one in paper.artefacts:
            costs = [_cost(paper, [one], scale) for scale in SCALES.values()]
            states = [_tell_state(paper, one, out / name) for name in SCALES]
            data = ", ".join(list_data(paper, one))
            made = "; ".join(
                f"{name}: {state}" for name, state in zip(SCALES, states, strict=True) if state.startswith("made")
            )
            wide.add_row(f"{paper.key}/{one.name}", _describe(one), data or "-", *map(str, costs), made or states[0])
            cells = (_stack(cost, state) for cost, state in zip(costs, states, strict=True))
            narrow.add_row(f"  {one.name}", "\n".join(filter(None, (_describe(one), data))), *cells)
    return add_notes(FittingTable(wide, narrow), NOTE, *(f"{one.name}: {one.about}" for one in SCALES.values()))


def _stack(cost: Cost, state: str = "") -> str:
    """Write hours, disk and what is done below each other."""
    done = ["made" if state == "made" else "in part"] if state.startswith("made") else []
    return "\n".join([*((cost.time, cost.disk) if cost.runs else ("-",)), *done])


def list_data(paper: Paper, artefact: Artefact) -> list[str]:
    """List the data sets that an artefact needs at full scale, by their names in recipes."""
    plan = plan_paper(paper, SCALES["full"])
    contents = (plan[key].content for key in list_keys(paper, [artefact], SCALES["full"]))
    return list(dict.fromkeys(str(one.get("data", {}).get("name", "digits")) for one in contents))
