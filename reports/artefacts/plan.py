"""What artefacts take: their runs, shared wherever the settings agree, and the questions to ask of them.

A run is known by its settings without what it merely keeps (checkpoints, evaluations, records). What it keeps is the
union of what all artefacts of the paper want of it, so that asking for one artefact first never makes a run useless for
the next. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from landscape.errors import choose
from reports.artefact import Artefact, Cell, Layout, NotReproduced, Paper, Question, list_cells
from reports.artefacts.scales import SCALES, Scale, scale_settings
from reports.artefacts.stand_ins import Content
from training.storage import toml

KEPT = ("none", "last", "all")  # how much of local models or clients' vectors is kept, rising
KEEPS = ("checkpoints", "evaluation", "record")  # settings that decide what a run keeps, not what it computes


@dataclass(frozen=True)
class Wanted:
    """A run that artefacts need.

    key: of its settings, without what it keeps. content: nested settings of the recipe.
    questions: asked of it, by (study, name).
    """

    key: str
    content: Content
    questions: Mapping[tuple[str, str], Question] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """A question about several runs at once: those of a panel's series, of one seed.

    panel: its place in the figure. name: of the answer. runs: keys of the runs, in the order of the series.
    """

    panel: int
    name: str
    question: Question
    runs: tuple[str, ...]


def read_keys(paper: Paper, cell: Cell, scale: Scale) -> list[str]:
    """List the keys of a cell's runs, one per seed."""
    return list(_make_runs(paper, cell, scale))


def _make_runs(paper: Paper, cell: Cell, scale: Scale) -> dict[str, Content]:
    """Make the settings of a cell's runs by their keys, one per seed."""
    seeds = list_seeds(paper, cell.artefact, scale)
    contents = [make_content(paper, cell, scale, seed) for seed in seeds[:1]]  # seeds share all other settings
    contents += [{**contents[0], "seed": seed} for seed in seeds[1:]]
    return dict(zip(_make_keys(contents), contents, strict=True))


@cache
def _list_runs(paper: Paper, artefact: Artefact, scale: Scale) -> tuple[dict[str, Content], ...]:
    """List the runs of an artefact's cells by their keys; every question about costs asks for all of them."""
    return tuple(_make_runs(paper, cell, scale) for cell in _list_cells(paper, artefact))


@cache
def _list_cells(paper: Paper, artefact: Artefact) -> tuple[Cell, ...]:
    return tuple(list_cells(paper, artefact))


def list_keys(paper: Paper, artefacts: Iterable[Artefact], scale: Scale) -> list[str]:
    """List the keys of the runs of some artefacts; shared ones once."""
    cells = (cell for one in artefacts for cell in _list_runs(paper, one, scale))
    return list(dict.fromkeys(key for cell in cells for key in cell))


def list_seeds(paper: Paper, artefact: Artefact, scale: Scale) -> tuple[int, ...]:
    """List the seeds of an artefact's runs at a scale."""
    return (artefact.seeds or paper.seeds)[: paper.most_seeds.get(scale.name, scale.seeds)]


@cache
def plan_paper(paper: Paper, scale: Scale) -> dict[str, Wanted]:
    """Plan every run of a paper at a scale, by its key: what it must keep, and what is asked of it."""
    found: dict[str, Wanted] = {}
    for artefact in paper.artefacts:
        asked = {(one.study, one.name): one for one in artefact.questions}
        for cell in _list_runs(paper, artefact, scale):
            for key, content in cell.items():
                old = found.get(key)
                if old is None:
                    found[key] = Wanted(key, content, asked)
                    continue
                _refuse_another_question(old, asked, artefact)
                found[key] = Wanted(key, unite_keeps(old.content, content), {**old.questions, **asked})
    return found


def select_runs(paper: Paper, artefacts: Sequence[Artefact], scale: Scale) -> dict[str, Wanted]:
    """Select the runs of some artefacts, by key; each with the questions of these artefacts only."""
    plan = plan_paper(paper, scale)
    found: dict[str, Wanted] = {}
    for artefact in artefacts:
        asked = {(one.study, one.name): one for one in artefact.questions}
        for key in list_keys(paper, [artefact], scale):
            old = found.get(key, replace(plan[key], questions={}))
            found[key] = replace(old, questions={**old.questions, **asked})
    return found


def list_comparisons(paper: Paper, artefact: Artefact, scale: Scale) -> list[Comparison]:
    """List the questions of an artefact that compare runs; of each panel the first seed comes first."""
    if not isinstance(artefact.shape, Layout):
        return []
    found = []
    for place, panel in enumerate(artefact.shape.panels):
        if panel.question is None:
            continue
        keys = [read_keys(paper, cell, scale) for cell in list_cells(paper, artefact) if cell.column is panel]
        by_seed = list(zip(*keys, strict=True)) if all(keys) else []
        for number, runs in enumerate(by_seed if panel.every_seed else by_seed[:1]):
            name = f"{paper.key}-{artefact.name}-{place + 1}" + (f"-{number + 1}" if panel.every_seed else "")
            found.append(Comparison(place, name, panel.question, runs))
    return found


def can_be_made(artefact: Artefact) -> bool:
    """Whether an artefact is something that runs give."""
    return not isinstance(artefact.shape, NotReproduced)


def make_content(paper: Paper, cell: Cell, scale: Scale, seed: int) -> Content:
    """Make the nested settings of a cell's run at a scale."""
    content = scale_settings(cell.settings, choose_scale(paper, scale), get_usual_lr(paper))
    for key, value in paper.at_digits.items() if scale.name == "digits" else ():
        toml.set_key(content, key, value)
    return {**content, "seed": seed}


def choose_scale(paper: Paper, scale: Scale) -> Scale:
    """Return the scale that changes a paper's settings: none does at the scale that they were made for."""
    return SCALES["full"] if scale.name == paper.made_for else scale


def get_usual_lr(paper: Paper) -> float:
    """Return the paper's usual local rate."""
    lr = paper.settings.get("local.lr", 0.01)
    assert isinstance(lr, float)
    return lr


def _make_keys(contents: Sequence[Content]) -> list[str]:
    """Make the keys of runs that differ in nothing but their seeds."""
    aside = (*KEEPS, "seed")
    shared = [{key: value for key, value in one.items() if key not in aside and value != {}} for one in contents[:1]]
    text = json.dumps(shared, sort_keys=True)
    return [hashlib.sha256(f"{one['seed']} {text}".encode()).hexdigest()[:16] for one in contents]


def unite_keeps(one: Content, other: Content) -> Content:
    """Unite what two recipes of the same run keep: the more of each."""
    if one == other:
        return one
    flat = dict(toml.flatten(one))
    for key, value in toml.flatten(other):
        if key not in flat:
            flat[key] = value
        elif key in ("checkpoints.every", "evaluation.every"):
            flat[key] = math.gcd(flat[key], value)
        elif key == "evaluation.last":
            flat[key] = max(flat[key], value)
        elif key in ("checkpoints.keep_locals", "checkpoints.keep_clients"):
            flat[key] = max(flat[key], value, key=KEPT.index)
        elif key == "record":
            flat[key] = list(dict.fromkeys([*flat[key], *value]))
        elif key.startswith("evaluation."):
            flat[key] = flat[key] or value
    united: Content = {}
    for key, value in flat.items():
        toml.set_key(united, key, value)
    return united


def _refuse_another_question(run: Wanted, asked: Mapping[tuple[str, str], Question], artefact: Artefact) -> None:
    """Refuse two questions of one study and name with different settings: their answers would share a file."""
    for place, question in asked.items():
        if run.questions.get(place, question) != question:
            raise ValueError(
                f"{artefact.name}: question '{question.name}' of {question.study} has other settings elsewhere; "
                "give it another name"
            )


def select_artefacts(papers: Mapping[str, Paper], wanted: str) -> list[tuple[Paper, Artefact]]:
    """Select artefacts by PAPER or PAPER/ARTEFACT, or "all"; ValueError with the nearest name where there is none."""
    if wanted == "all":
        return [(paper, one) for paper in papers.values() for one in paper.artefacts]
    key, slash, name = wanted.partition("/")
    paper = papers[choose("paper", key, papers)]
    return [(paper, paper.find(name))] if slash else [(paper, one) for one in paper.artefacts]


def group_by_paper(chosen: Iterable[tuple[Paper, Artefact]]) -> list[tuple[Paper, list[Artefact]]]:
    """Group artefacts by their paper, in order."""
    found: dict[str, tuple[Paper, list[Artefact]]] = {}
    for paper, artefact in chosen:
        found.setdefault(paper.key, (paper, []))[1].append(artefact)
    return list(found.values())
