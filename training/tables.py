"""What can be named in a recipe, as tables: `landscape list algorithms`, `landscape list models`, ..."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from landscape.errors import choose
from training import catalog, config, datasets, models, partition
from training.parts import Method, Rule

NEUTRAL = ("NoPerturbation", "Plain")  # rules that leave the gradient as it is


def listing(kind: str) -> RenderableType:
    """The table of one kind of name, with a line on what else may be written."""
    return LISTS[choose("list", kind, LISTS)]()


def algorithms() -> RenderableType:
    """Every method: its three rules, what it remembers, sends and computes, and its settings."""
    table = framed(
        "name", "perturbation + correction → server", "client\nstate", "down/\nup", "grads", "settings", "paper"
    )
    table.columns[5].min_width = 14
    for name, method in catalog.ALGORITHMS.items():
        down, up = method.traffic
        table.add_row(
            name,
            rules(method),
            ", ".join(method.client_vectors) or "-",
            f"{down}/{up}",
            str(method.gradients_per_step),
            settings(catalog.values(method)),
            method.paper.replace(" et al.", ""),
        )
    return noted(
        table,
        "down/up: vectors of the model's size sent to and by each participant. grads: gradients per local step.",
        'Another perturbation goes with any of them: name = "feddyn+sam", "scaffold+asam". So does averaging: [swa].',
    )


def data_sets() -> RenderableType:
    """Every data set, where it comes from and what it can be told."""
    table = framed("name", "comes from", "settings", "what it is")
    for name, function in datasets.DATASETS.items():
        parameters = inspect.signature(function).parameters
        source = "--data-root or --download" if "root" in parameters else "the package itself"
        table.add_row(name, source, arguments(function, without=("root", "download")), first_line(function))
    return noted(
        table,
        "All of them take mean and std, one number a channel, and pooled = true (train and test in one pool).",
        'Your own: name = "module:function", found in the current folder; it returns ((images, labels), (images, '
        "labels)) for training and testing.",
    )


def partitions() -> RenderableType:
    """Every way to deal examples to clients."""
    table = framed("name", "settings", "what it does")
    for name, function in partition.PARTITIONS.items():
        table.add_row(name, arguments(function, without=("labels", "clients", "generator")), first_line(function))
    return noted(
        table,
        "Every one takes clients, the number of clients. A setting without a value must be given, except coarse, which "
        "comes with the data.",
    )


def networks() -> RenderableType:
    """Every model with its number of parameters for the images it was made for."""
    table = framed("name", "images", "parameters", "settings", "what it is")
    table.columns[2].justify = "right"
    for name, function in models.MODELS.items():
        parameters = inspect.signature(function).parameters
        channels, size = (int(parameters[key].default) for key in ("channels", "size"))
        with torch.device("meta"):  # shapes without numbers: nothing is initialised
            model = models.build(name, classes=10, channels=channels, size=size, seed=0)
        count = sum(parameter.numel() for parameter in model.parameters())
        known = arguments(function, without=("classes", "channels", "size"))
        table.add_row(name, f"{channels}x{size}x{size}", f"{count:,}", known, first_line(function))
    return noted(
        table,
        "parameters: for 10 classes and these images; other sizes and classes follow the data.",
        'Your own: name = "module:function", found in the current folder; it is called with classes, channels and size '
        "and returns a torch.nn.Module.",
    )


def recipes() -> RenderableType:
    """Every recipe that ships with the package."""
    table = framed("name", "runs", "what it trains")
    table.columns[1].justify = "right"
    for path in sorted(config.RECIPES.glob("*.toml")):
        table.add_row(path.stem, str(len(config.load(path))), first_comment(path))
    return noted(
        table,
        "Start one: landscape train NAME. Those named digits_... take seconds and need no data.",
        f"Adapt one: copy it from {config.RECIPES}, change it, and give the file to landscape train.",
    )


LISTS: dict[str, Callable[[], RenderableType]] = {
    "algorithms": algorithms,
    "datasets": data_sets,
    "partitions": partitions,
    "models": networks,
    "recipes": recipes,
}


def framed(*titles: str) -> Table:
    """An empty table with these columns; the first never breaks."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for place, title in enumerate(titles):
        table.add_column(title, no_wrap=place == 0, overflow="fold")
    return table


def noted(table: Table, *lines: str) -> RenderableType:
    """A table with remarks below it, taken literally: a bracket in them is no markup."""
    return Group(table, "", *(Text(line) for line in lines))


def rules(method: Method) -> str:
    """The three rules of a method without the neutral ones: SAM + client momentum → mean."""
    local = [words(rule) for rule in (method.perturbation, method.correction) if type(rule).__name__ not in NEUTRAL]
    return " ".join([" + ".join(local), "→", words(method.server)]).strip()


def words(rule: Rule) -> str:
    """A rule's name as people say it: ClientMomentum -> client momentum."""
    name = type(rule).__name__
    return name if name.isupper() else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def settings(values: dict[str, Any]) -> str:
    """Settings with their values as --set takes them: rho=0.05."""
    return ", ".join(f"{key}={shown(value)}" for key, value in values.items()) or "-"


def shown(value: Any) -> str:
    """A value as --set takes it, with no more digits than it needs."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(shown(part) for part in value) + "]"
    return str(value)


def arguments(function: Callable[..., Any], *, without: Iterable[str]) -> str:
    """The settings of a function; those without a default must be given, those with None choose for themselves."""
    known = {key: one for key, one in inspect.signature(function).parameters.items() if key not in without}
    texts = [
        key if one.default is one.empty else f"{key}={'auto' if one.default is None else shown(one.default)}"
        for key, one in known.items()
    ]
    return ", ".join(texts) or "-"


def first_line(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]


def first_comment(path: Path) -> str:
    """What a recipe says it is: its first line, a comment."""
    return path.read_text().partition("\n")[0].removeprefix("#").strip()
