"""What can be named in a recipe, as tables: `landscape list algorithms`, `landscape list models`, ...

The README holds the table of algorithms too; `python -m training.console.listings README.md` writes it there.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import RenderableType

from landscape.errors import choose
from training import config
from training.console.tables import FittingTable, add_notes, make_table, show_settings, show_value
from training.data import datasets, partition
from training.methods import catalog
from training.methods.method import Method
from training.models import networks
from training.rules.base import Rule
from training.storage.atomic_files import write_atomically

RULES = "perturbation + correction → server"
ALGORITHM_NOTES = (
    "down/up: vectors of the model's size sent to and by each participant. grads: gradients per local step.",
    'Another perturbation goes with any of them: name = "feddyn+sam", "scaffold+asam". So does averaging: [swa].',
)
NEUTRAL = ("NoPerturbation", "Plain")  # rules that leave the gradient as it is
BEGIN, END = (
    "<!-- algorithms: written by python -m training.console.listings README.md -->",
    "<!-- end of algorithms -->",
)


def make_listing(kind: str) -> RenderableType:
    """Make the table of one kind of name, one of LISTS, with a line on what else may be written."""
    return LISTS[choose("list", kind, LISTS)]()


def algorithms() -> RenderableType:
    """Every method: its rules, what it remembers, sends and computes, and its settings."""
    traffic = ("client\nstate", "down/\nup", "grads")
    wide = make_table("name", RULES, *traffic, "settings", "paper")
    narrow = make_table("name", f"{RULES}\nsettings", *traffic, "paper")
    narrow.columns[2].max_width, narrow.columns[5].max_width = 13, 16  # the rules and settings need the most room
    for name, what, *costs, values, paper in algorithm_rows():
        short = paper.replace(" et al.", "")
        wide.add_row(name, what, *costs, values, short)
        narrow.add_row(name, f"{what}\n{values}", *costs, short)
    return add_notes(FittingTable(wide, narrow), *ALGORITHM_NOTES)


def algorithm_rows() -> list[tuple[str, ...]]:
    """Name, rules, client state, traffic, gradients per step, settings and paper of every method, as text."""
    return [
        (
            name,
            rules(method),
            ", ".join(method.client_vectors).replace("_", " ") or "-",
            "/".join(str(vectors) for vectors in method.traffic),
            str(method.gradients_per_step),
            show_settings(catalog.read_settings(method)),
            method.paper,
        )
        for name, method in catalog.ALGORITHMS.items()
    ]


def algorithms_markdown() -> str:
    """The table of algorithms for the README, with its notes."""
    titles = ("name", RULES, "client state", "down/up", "grads", "settings", "paper")
    lines = [titles, ("---",) * len(titles)]
    lines += [(f"`{name}`", *between, paper) for name, *between, paper in algorithm_rows()]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *ALGORITHM_NOTES])


def with_algorithms(text: str) -> str:
    """A Markdown text with the table of algorithms between its two markers brought up to date."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected the table of algorithms between two lines, '{BEGIN}' and '{END}': write them first")
    return f"{before}{BEGIN}\n\n{algorithms_markdown()}\n\n{END}{after}"


def data_sets() -> RenderableType:
    """Every data set, where it comes from and what it can be told."""
    table = make_table("name", "comes from", "settings", "what it is")
    for name, function in datasets.DATASETS.items():
        parameters = inspect.signature(function).parameters
        source = "--data-root or --download" if "root" in parameters else "the package itself"
        table.add_row(name, source, arguments(function, without=("root", "download")), first_line(function))
    return add_notes(
        table,
        "All of them take mean and std, one number a channel, and pooled = true (train and test in one pool).",
        'Your own: name = "module:function", found in the current folder; it returns ((images, labels), (images, '
        "labels)) for training and testing.",
    )


def partitions() -> RenderableType:
    """Every way to deal examples to clients."""
    table = make_table("name", "settings", "what it does")
    for name, function in partition.PARTITIONS.items():
        table.add_row(name, arguments(function, without=("labels", "clients", "generator")), first_line(function))
    return add_notes(
        table,
        "Every one takes clients, the number of clients. A setting without a value must be given, except coarse, which "
        "comes with the data.",
    )


def model_rows() -> RenderableType:
    """Every model with its number of parameters for the images it was made for."""
    table = make_table("name", "images", "parameters", "settings", "what it is")
    table.columns[2].justify = "right"
    for name, function in networks.MODELS.items():
        parameters = inspect.signature(function).parameters
        channels, size = (int(parameters[key].default) for key in ("channels", "size"))
        with torch.device("meta"):  # shapes without numbers: nothing is initialised
            model = networks.build(name, classes=10, channels=channels, size=size, seed=0)
        count = sum(parameter.numel() for parameter in model.parameters())
        known = arguments(function, without=("classes", "channels", "size"))
        table.add_row(name, f"{channels}x{size}x{size}", f"{count:,}", known, first_line(function))
    return add_notes(
        table,
        "parameters: for 10 classes and these images; other sizes and classes follow the data.",
        'Your own: name = "module:function", found in the current folder; it is called with classes, channels and size '
        "and returns a torch.nn.Module.",
    )


def recipes() -> RenderableType:
    """Every recipe that ships with the package."""
    table = make_table("name", "runs", "what it trains")
    table.columns[1].justify = "right"
    for path in sorted(config.RECIPES.glob("*.toml")):
        table.add_row(path.stem, str(len(config.load(path))), first_comment(path))
    return add_notes(
        table,
        "Start one: landscape train NAME. Those named digits_... take seconds and need no data.",
        f"Adapt one: copy it from {config.RECIPES}, change it, and give the file to landscape train.",
    )


LISTS: dict[str, Callable[[], RenderableType]] = {
    "algorithms": algorithms,
    "datasets": data_sets,
    "partitions": partitions,
    "models": model_rows,
    "recipes": recipes,
}


def rules(method: Method) -> str:
    """The rules of a method without the neutral ones: SAM + client momentum → mean."""
    local = [words(rule) for rule in (method.perturbation, method.correction) if type(rule).__name__ not in NEUTRAL]
    local += [f"{words(method.loss_term)} loss"] if method.loss_term is not None else []
    return " ".join([" + ".join(local), "→", words(method.server)]).strip()


def words(rule: Rule) -> str:
    """A rule's name as people say it: ClientMomentum -> client momentum, MixedSAM -> mixed SAM."""
    parts = re.findall(r"[A-Z][a-z]+|[A-Z]+", type(rule).__name__)
    return " ".join(part if len(part) > 1 and part.isupper() else part.lower() for part in parts)


def arguments(function: Callable[..., Any], *, without: Iterable[str]) -> str:
    """The settings of a function; those without a default must be given, those with None choose for themselves."""
    known = {key: one for key, one in inspect.signature(function).parameters.items() if key not in without}
    texts = [
        key if one.default is one.empty else f"{key}={'auto' if one.default is None else show_value(one.default)}"
        for key, one in known.items()
    ]
    return ", ".join(texts) or "-"


def first_line(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]


def first_comment(path: Path) -> str:
    """What a recipe says it is: its first line, a comment."""
    return path.read_text().partition("\n")[0].removeprefix("#").strip()


def main(arguments: Sequence[str]) -> None:
    """Bring the table of algorithms in Markdown files up to date."""
    if not arguments:
        raise SystemExit("expected a Markdown file: python -m training.console.listings README.md")
    for path in map(Path, arguments):
        write_atomically(path, with_algorithms(path.read_text(encoding="utf-8")).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
