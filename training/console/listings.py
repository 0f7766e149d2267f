"""What can be named in a recipe, as tables: `landscape list algorithms`, `landscape list models`, ...

The README holds the table of algorithms too; `python -m training.console.listings README.md` writes it there.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from landscape.errors import choose
from training import config
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


def listing(kind: str) -> RenderableType:
    """The table of one kind of name, with a line on what else may be written."""
    return LISTS[choose("list", kind, LISTS)]()


def algorithms() -> RenderableType:
    """Every method: its rules, what it remembers, sends and computes, and its settings."""
    traffic = ("client\nstate", "down/\nup", "grads")
    wide = framed("name", RULES, *traffic, "settings", "paper")
    narrow = framed("name", f"{RULES}\nsettings", *traffic, "paper")
    narrow.columns[2].max_width, narrow.columns[5].max_width = 13, 16  # the rules and settings need the most room
    for name, what, *costs, values, paper in algorithm_rows():
        short = paper.replace(" et al.", "")
        wide.add_row(name, what, *costs, values, short)
        narrow.add_row(name, f"{what}\n{values}", *costs, short)
    return noted(Fitting(wide, narrow), *ALGORITHM_NOTES)


def algorithm_rows() -> list[tuple[str, ...]]:
    """Name, rules, client state, traffic, gradients per step, settings and paper of every method, as text."""
    return [
        (
            name,
            rules(method),
            ", ".join(method.client_vectors).replace("_", " ") or "-",
            "/".join(str(vectors) for vectors in method.traffic),
            str(method.gradients_per_step),
            settings(catalog.read_settings(method)),
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


def model_rows() -> RenderableType:
    """Every model with its number of parameters for the images it was made for."""
    table = framed("name", "images", "parameters", "settings", "what it is")
    table.columns[2].justify = "right"
    for name, function in networks.MODELS.items():
        parameters = inspect.signature(function).parameters
        channels, size = (int(parameters[key].default) for key in ("channels", "size"))
        with torch.device("meta"):  # shapes without numbers: nothing is initialised
            model = networks.build(name, classes=10, channels=channels, size=size, seed=0)
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
    "models": model_rows,
    "recipes": recipes,
}


def framed(*titles: str) -> Table:
    """An empty table with these columns; the first never breaks."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for place, title in enumerate(titles):
        table.add_column(title, no_wrap=place == 0, overflow="fold")
    return table


@dataclass(frozen=True)
class Fitting:
    """A table with a line for each row where the screen is wide enough for that, another one where it is not."""

    wide: Table
    narrow: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = Measurement.get(console, options.update(max_width=sys.maxsize), self.wide).maximum
        yield self.wide if needed <= options.max_width else self.narrow


def noted(table: RenderableType, *lines: str) -> RenderableType:
    """A table with remarks below it, taken literally: a bracket in them is no markup."""
    return Group(table, "", *(Text(line) for line in lines))


def rules(method: Method) -> str:
    """The rules of a method without the neutral ones: SAM + client momentum → mean."""
    local = [words(rule) for rule in (method.perturbation, method.correction) if type(rule).__name__ not in NEUTRAL]
    local += [f"{words(method.loss_term)} loss"] if method.loss_term is not None else []
    return " ".join([" + ".join(local), "→", words(method.server)]).strip()


def words(rule: Rule) -> str:
    """A rule's name as people say it: ClientMomentum -> client momentum, MixedSAM -> mixed SAM."""
    parts = re.findall(r"[A-Z][a-z]+|[A-Z]+", type(rule).__name__)
    return " ".join(part if len(part) > 1 and part.isupper() else part.lower() for part in parts)


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


def main(arguments: Sequence[str]) -> None:
    """Bring the table of algorithms in Markdown files up to date."""
    if not arguments:
        raise SystemExit("expected a Markdown file: python -m training.console.listings README.md")
    for path in map(Path, arguments):
        write_atomically(path, with_algorithms(path.read_text(encoding="utf-8")).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
