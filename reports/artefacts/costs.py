"""What artefacts take on this kind of machine, before anything is run: runs, hours, disk, and what is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from rich.console import RenderableType

from reports.artefact import Artefact, NotReproduced, Paper
from reports.artefacts.page import read_part
from reports.artefacts.plan import Wanted, can_be_made, select_runs
from reports.artefacts.scales import SCALES, Scale
from reports.artefacts.stand_ins import Content
from training.console.tables import make_table
from training.storage.verified_files import Json

STEP = 4e-3  # seconds of a local step beside its arithmetic
RATE = 6e10  # floating-point operations a second of one core in training, measured with LeNet64
CORES = 2  # of the machine that hours are told for
TRAINING_SIZES = {
    "digits": 1437,
    "cifar10": 50000,
    "cifar100": 50000,
    "cinic10": 90000,
    "fashion_mnist": 60000,
    "mnist": 60000,
    "pathmnist": 89996,
    "tissuemnist": 165466,
    "tiny_imagenet": 100000,
    "landmarks": 164172,
    "cityscapes": 2975,
    "dbpedia": 560000,
    "brain": 100,
    "speeches": 1280,
}
POOLED_SHARE = 0.7 * 7 / 6  # of the training set: pooled data keep 70 % of train and test
SIDES = {  # channels, side
    "digits": (1, 8),
    "fashion_mnist": (1, 28),
    "mnist": (1, 28),
    "synthetic": (1, 8),
    "pathmnist": (3, 28),
    "tissuemnist": (1, 28),
    "tiny_imagenet": (3, 64),
    "landmarks": (3, 224),
    "cityscapes": (3, 512),
    "idda": (3, 512),
    "brain": (1, 64),
}
TOKENS, LENGTH = 5000, 64  # of texts


def estimate(runs: Mapping[str, Wanted]) -> str:
    """Tell about how long runs take to train on two cores, and how much disk they need."""
    hours = sum(estimate_seconds(one.content) for one in runs.values()) / 3600 / CORES
    size = sum(estimate_bytes(one.content) for one in runs.values()) / 1e9
    return f"about {_tell_hours(hours)} of training on two cores, {size:.1f} GB"


def _tell_hours(hours: float) -> str:
    return f"{60 * hours:.0f} min" if hours < 1 else f"{hours:.0f} h" if hours < 100 else f"{hours / 24:.0f} days"


def estimate_seconds(content: Content) -> float:
    """Estimate the seconds that training takes on one core."""
    from training.methods import catalog

    data, local, rounds = content.get("data", {}), content.get("local", {}), content.get("rounds", {})
    algorithm = content.get("algorithm", {})
    examples = data.get("examples") or TRAINING_SIZES.get(data.get("name", "digits"), 73257)
    examples *= POOLED_SHARE if data.get("pooled") else 1.0
    own = examples / content.get("partition", {}).get("clients", 10)
    visits = rounds.get("count", 10) * rounds.get("participants", 5)
    seen = visits * own * local.get("epochs", 1)
    steps = seen / min(local.get("batch_size", 64), own)
    gradients = catalog.find_method(algorithm.get("name", "fedavg")).gradients_per_step
    flops, _ = _measure_model(*_find_shape(content))
    return float(gradients * (3 * seen * flops / RATE + steps * STEP))


def estimate_bytes(content: Content) -> float:
    """Estimate the bytes that a run's checkpoints take."""
    from training.methods import catalog

    _, parameters = _measure_model(*_find_shape(content))
    rounds, kept = content.get("rounds", {}), content.get("checkpoints", {})
    saved = rounds.get("count", 10) / kept.get("every", 5)
    locals_ = rounds.get("participants", 5) + 1
    vectors = 2 * saved + locals_ * (saved if kept.get("keep_locals") == "all" else 1)
    own = len(catalog.find_method(content.get("algorithm", {}).get("name", "fedavg")).client_vectors)
    clients = content.get("partition", {}).get("clients", 10)
    vectors += own * clients * (saved if kept.get("keep_clients") == "all" else 2)
    return float(4 * parameters * vectors)


def _find_shape(content: Content) -> tuple[str, str, int, int, int]:
    model, data = content.get("model", {}), content.get("data", {})
    name = data.get("name", "digits")
    channels, side = SIDES.get(name, (3, 32))
    classes = data.get("classes") or (100 if name == "cifar100" else 10)
    settings = tuple(sorted((key, str(value)) for key, value in model.items() if key != "name"))
    return model.get("name", "digits_cnn"), repr(settings), classes, channels, side


@cache
def _measure_model(name: str, settings: str, classes: int, channels: int, side: int) -> tuple[float, float]:
    """Operations of a forward pass of one example, and parameters."""
    import ast

    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from training.models import networks

    given: Json = {key: _read_value(value) for key, value in ast.literal_eval(settings)}
    images = {"channels": channels, "size": side, "image_height": side, "image_width": side}
    reads_tokens = "vocabulary" in networks.list_facts(networks.MODELS[name])
    facts = {"vocabulary": TOKENS, "length": LENGTH} if reads_tokens else images
    model = networks.build(name, classes=classes, seed=0, **facts, **given)
    shape, dtype = ((2, LENGTH), torch.int64) if reads_tokens else ((2, channels, side, side), torch.float32)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval().to("meta")(torch.zeros(shape, dtype=dtype, device="meta"))  # counts without computing
    return counter.get_total_flops() / 2, sum(one.numel() for one in model.parameters())


def _read_value(text: str) -> object:
    import ast

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def list_costs(chosen: Sequence[tuple[Paper, Sequence[Artefact]]], scale: Scale, folder: Path) -> RenderableType:
    """List what artefacts would take at a scale, and what is done.

    folder: of the scale's runs and results.
    """
    table = make_table("artefact", "what it shows", "runs", "training, two cores", "disk", "state")
    everything: dict[str, Wanted] = {}
    for paper, artefacts in chosen:
        for one in artefacts:
            runs = select_runs(paper, [one], scale) if can_be_made(one) else {}
            everything |= {f"{paper.key} {key}": run for key, run in runs.items()}
            table.add_row(
                f"{paper.key}/{one.name}",
                one.title,
                str(len(runs)),
                *_tell_costs(runs),
                _tell_state(paper, one, folder),
            )
    table.add_section()
    table.add_row("all", "shared runs counted once", str(len(everything)), *_tell_costs(everything), "")
    return table


def _tell_costs(runs: Mapping[str, Wanted]) -> tuple[str, str]:
    if not runs:
        return "-", "-"
    hours = sum(estimate_seconds(one.content) for one in runs.values()) / 3600 / CORES
    return _tell_hours(hours), f"{sum(estimate_bytes(one.content) for one in runs.values()) / 1e9:.1f} GB"


def _tell_state(paper: Paper, artefact: Artefact, folder: Path) -> str:
    if isinstance(artefact.shape, NotReproduced):
        return f"n/a: {artefact.shape.why}"
    made = read_part(folder / paper.key, artefact)
    return "not made" if made is None else f"made, {made.missing}" if made.missing else "made"


def list_artefacts(papers: Mapping[str, Paper], out: Path) -> RenderableType:
    """List every artefact of every paper: its data, what it takes at each scale, and what is done.

    out: folder of `landscape reproduce`.
    """
    table = make_table("artefact", "what it shows", *(f"{name}: runs, time, disk" for name in SCALES), "state")
    for paper in papers.values():
        for one in paper.artefacts:
            cells, states = [], {}
            for scale in SCALES.values():
                runs = select_runs(paper, [one], scale) if can_be_made(one) else {}
                cells.append(f"{len(runs)}, {', '.join(_tell_costs(runs))}" if runs else "-")
                states[scale.name] = _tell_state(paper, one, out / scale.name)
            made = [f"{name}: {state}" for name, state in states.items() if state.startswith("made")]
            table.add_row(f"{paper.key}/{one.name}", one.title, *cells, "; ".join(made) or states["full"])
    return table
