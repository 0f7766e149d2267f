"""Tables of everything that a recipe can name: `landscape list algorithms`, `landscape list models`, ..."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import torch
from pydantic_core import PydanticUndefined
from rich.console import RenderableType
from rich.markup import escape

from landscape.errors import choose
from training import config
from training.console.tables import FittingTable, add_notes, make_table, show_settings, show_value
from training.data import datasets, partition
from training.methods import catalog
from training.methods.method import Method
from training.models import networks
from training.rules.base import Rule
from training.settings import Settings, describe, settings_of

RULES = "perturbation + correction → server"
ALGORITHM_NOTES = (
    "down/up: vectors of the model's size sent to and by each participant. grads: gradients per local step.",
    'Another perturbation goes with any of them: name = "feddyn+sam", "scaffold+asam". So does averaging: [swa].',
)
NEUTRAL = ("NoPerturbation", "Plain")  # rules that leave the gradient as it is
USUAL = {  # facts of data for models that do not say what they were designed for
    "classes": 10,
    "channels": 3,
    "size": 32,
    "image_height": 32,
    "image_width": 32,
    "vocabulary": 30_000,
    "length": 128,
}


def make_listing(kind: str) -> RenderableType:
    """Make the table of one kind of name, with notes below it.

    kind: one of LISTS.
    """
    return LISTS[choose("list", kind, LISTS)]()


def list_algorithms() -> RenderableType:
    """Make the table of methods: their rules, state, traffic, cost and settings."""
    traffic = ("client\nstate", "down/\nup", "grads")
    wide = make_table("name", RULES, *traffic, "settings", "paper")
    narrow = make_table("name", f"{RULES}\nsettings", *traffic, "paper")
    narrow.columns[2].max_width, narrow.columns[5].max_width = 13, 16  # the rules and settings need the most room
    for name, what, *costs, values, paper in make_algorithm_rows():
        short = paper.replace(" et al.", "")
        wide.add_row(name, what, *costs, values, short)
        narrow.add_row(name, f"{what}\n{values}", *costs, short)
    return add_notes(FittingTable(wide, narrow), *ALGORITHM_NOTES)


def make_algorithm_rows() -> list[tuple[str, ...]]:
    """Make a row of text for every method: name, rules, client state, traffic, gradients per step, settings, paper."""
    return [
        (
            name,
            describe_rules(method),
            ", ".join(method.client_vectors).replace("_", " ") or "-",
            "/".join(str(vectors) for vectors in method.traffic),
            str(method.gradients_per_step),
            show_settings(catalog.read_settings(method)),
            method.paper,
        )
        for name, method in catalog.METHODS.entries().items()
    ]


def list_datasets() -> RenderableType:
    """Make the table of data sets: where they come from, what they are, and their settings."""
    table = make_table("name", "comes from", "setting", "allowed", "what it is")
    for name, function in datasets.SOURCES.entries().items():
        parameters = inspect.signature(function).parameters
        source = "--data-root or --download" if "download" in parameters else "--data-root"
        source = source if "root" in parameters else "the package itself"
        table.add_row(name, source, "", "", find_summary(function))
        for row in make_setting_rows(settings_of(function, exclude=("root", "download"))):
            table.add_row("", "", *row)
    return add_notes(
        table,
        "All of them take mean and std, one number per channel, and pooled = true (train and test in one pool).",
        'Your own: name = "module:function", found in the current folder; it returns ((images, labels), (images, '
        "labels)) for training and testing.",
    )


def list_partitions() -> RenderableType:
    """Make the table of partitions: what they do, and their settings."""
    table = make_table("name", "setting", "allowed", "what it does")
    for name, function in partition.SCHEMES.entries().items():
        table.add_row(name, "", "", find_summary(function))
        for row in make_setting_rows(partition.settings_class(name)):
            table.add_row("", *row)
    return add_notes(
        table,
        "All of them take clients, the number of clients. A setting without a value must be given, except coarse, "
        "which comes with the data.",
    )


def make_setting_rows(kind: type[Settings]) -> Iterator[tuple[str, str, str]]:
    """Yield a row of text for each setting of a class: its name and default, its range, and its description."""
    for about in describe(kind):
        required = about.default is PydanticUndefined
        default = "" if required else f"={'auto' if about.default is None else show_value(about.default)}"
        yield escape(f"{about.name}{default}"), escape(about.allowed), escape(about.description)


def list_models() -> RenderableType:
    """Make the table of models, with their numbers of parameters for the data they were designed for."""
    table = make_table("name", "inputs", "parameters", "settings", "what it is")
    table.columns[2].justify = "right"
    for name, function in networks.NETWORKS.entries().items():
        parameters = inspect.signature(function).parameters
        asked = {fact: parameters[fact].default for fact in networks.list_facts(function)}
        facts = {fact: USUAL[fact] if given is inspect.Parameter.empty else given for fact, given in asked.items()}
        with torch.device("meta"):  # shapes without numbers: nothing is initialised
            model = networks.build(name, **facts, seed=0)
        count = sum(parameter.numel() for parameter in model.parameters())
        known = describe_arguments(function, without=facts)
        table.add_row(name, describe_inputs(facts), f"{count:,}", known, find_summary(function))
    return add_notes(
        table,
        "parameters: for these inputs and 10 classes, 62 for femnist_cnn and 80 for char_lstm; others follow the data.",
        "All of them take weights = FILE, a start of safetensors or torch.save: what fits by name and shape is loaded.",
        'Your own: name = "module:function", found in the current folder; it is called with those of '
        f"{', '.join(networks.FACTS)} that it takes and returns a torch.nn.Module.",
    )


def describe_inputs(facts: Mapping[str, int]) -> str:
    """Describe the inputs of a model.

    >>> describe_inputs({"classes": 10, "channels": 3, "size": 32}), describe_inputs({"classes": 2, "vocabulary": 80})
    ('3x32x32', 'tokens of 80')
    """
    if "vocabulary" in facts:
        length = f"{facts['length']} " if "length" in facts else ""
        return f"{length}tokens of {facts['vocabulary']:,}"
    sides = [facts[fact] for fact in ("channels", "image_height", "image_width") if fact in facts]
    sides += [facts["size"]] * 2 if "size" in facts else []
    return "x".join(map(str, sides)) or "-"


def list_recipes() -> RenderableType:
    """Make the table of the recipes that ship with the package."""
    table = make_table("name", "runs", "what it trains")
    table.columns[1].justify = "right"
    for path in sorted(config.RECIPES.glob("*.toml")):
        table.add_row(path.stem, str(len(config.load(path))), read_first_comment(path))
    return add_notes(
        table,
        "Start one: landscape train NAME. Those named digits_... take seconds and need no data.",
        f"Adapt one: copy it from {config.RECIPES}, change it, and give the file to landscape train.",
    )


LISTS: dict[str, Callable[[], RenderableType]] = {
    "algorithms": list_algorithms,
    "datasets": list_datasets,
    "partitions": list_partitions,
    "models": list_models,
    "recipes": list_recipes,
}


def describe_rules(method: Method) -> str:
    """Describe the rules of a method, without the neutral ones: SAM + client momentum → mean."""
    local = [name_rule(rule) for rule in (method.perturbation, method.correction) if type(rule).__name__ not in NEUTRAL]
    local += [f"{name_rule(term)} loss" for term in (method.loss_term, method.local_loss) if term is not None]
    return " ".join([" + ".join(local), "→", name_rule(method.server)]).strip()


def name_rule(rule: Rule) -> str:
    """Write the name of a rule's class as words: ClientMomentum -> client momentum, MixedSAM -> mixed SAM."""
    parts = re.findall(r"[A-Z][a-z]+|[A-Z]+", type(rule).__name__)
    return " ".join(part if len(part) > 1 and part.isupper() else part.lower() for part in parts)


def describe_arguments(function: Callable[..., object], *, without: Iterable[str]) -> str:
    """Write the parameters of a function with their defaults; a default of None is written as auto.

    function: whose parameters. without: names of parameters to leave out.
    """
    known = {key: one for key, one in inspect.signature(function).parameters.items() if key not in without}
    texts = [
        key if one.default is one.empty else f"{key}={'auto' if one.default is None else show_value(one.default)}"
        for key, one in known.items()
    ]
    return ", ".join(texts) or "-"


def find_summary(function: Callable[..., object]) -> str:
    """Return the first line of a function's docstring."""
    return (inspect.getdoc(function) or "").partition("\n")[0]


def read_first_comment(path: Path) -> str:
    """Read the comment in the first line of a recipe, which says what it trains."""
    return path.read_text().partition("\n")[0].removeprefix("#").strip()
