"""Judge every finding by the runs of a scale, and write the verdicts as a table."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import get_args

from reports.artefact import Panel, list_cells
from reports.artefacts.plan import make_content
from reports.artefacts.scales import Scale, describe_changes
from reports.artefacts.typesetting import RunFinder
from reports.findings.catalog import FINDINGS
from reports.findings.experiments import PAPER
from reports.findings.finding import Evidence, Finding, Outcome, Place, Verdict
from reports.inputs.runs import Run
from reports.names import name_data, name_method
from training.storage.atomic_files import write_atomically

# the experiments of a data set: name of a finding's experiment -> artefact of the findings; the first is `methods`
SETTINGS: dict[str, Mapping[str, str]] = {
    "main": {name: name for name in ("methods", "admm", "ablation", "selection", "personal")},
    "CIFAR-10": {"methods": "cifar10"},
}
READING = (
    "An effect above zero, or a factor above one, goes the way of the claim; in brackets stands its 95 % interval over "
    "seeds. Confirmed and refuted: the whole interval lies on one side of zero, or of one."
)
COMPARED = {"methods": "basin"}  # experiment -> artefact whose panels compare its runs


@dataclass(frozen=True)
class Judged:
    """A finding with its verdict on one data set; scaled: what is smaller than in the paper."""

    finding: Finding
    data: str
    verdict: Verdict
    scaled: str


def judge_all(scale: Scale, paths: Mapping[str, Path]) -> list[Judged]:
    """Judge every finding on every data set of a scale.

    paths: directories of runs by key, as `reports.artefacts.experiments.find_runs` gives them.
    """
    found = []
    for setting, experiments in SETTINGS.items():
        if setting != "main" and scale.name == "digits":  # the digits would stand in for both
            continue
        data = setting if setting != "main" else "digits" if scale.name == "digits" else "Fashion-MNIST"
        evidence = {name: gather(artefact, scale, paths) for name, artefact in experiments.items()}
        for finding in FINDINGS.values():
            if finding.experiment in evidence:
                verdict = finding.judge(evidence[finding.experiment])
                found.append(Judged(finding, data, verdict, describe_scale(experiments[finding.experiment], scale)))
    return found


def gather(artefact: str, scale: Scale, paths: Mapping[str, Path]) -> Evidence:
    """Gather the runs of an experiment, with the answers that compare them."""
    chosen = PAPER.find(artefact)
    finder = RunFinder(PAPER, chosen, scale, paths)
    runs: dict[Place, list[Run]] = {}
    for cell in list_cells(PAPER, chosen):
        column = cell.column.title if isinstance(cell.column, Panel) else cell.column.group or cell.column.label
        runs[cell.row.label, column] = finder.find(cell.row, cell.column)
    compared = {}
    if artefact in COMPARED:
        name = COMPARED[artefact]
        compared[name] = RunFinder(PAPER, PAPER.find(name), scale, paths).read_answers(0)
    return Evidence(runs, compared)


def describe_scale(artefact: str, scale: Scale) -> str:
    """Say what is smaller than in the papers: the data set and network, and what the scale changed."""
    cell = next(list_cells(PAPER, PAPER.find(artefact)))
    changes = [" ".join(one) for one in describe_changes(cell.settings, make_content(PAPER, cell, scale, 0))]
    data = name_data(str(cell.settings.get("data.name")))
    base = f"{data}, {cell.settings.get('model.name')}, {cell.settings['rounds.count']} rounds"
    return f"{base}; scaled down: {'; '.join(changes)}" if changes else base


def write_findings(judged: list[Judged], folder: Path) -> list[Path]:
    """Write the verdicts as Markdown, CSV and JSON into a folder; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"findings.md": to_markdown(judged), "findings.csv": to_csv(judged), "findings.json": to_json(judged)}
    paths = []
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
        paths.append(folder / name)
    return paths


def describe_effect(verdict: Verdict) -> str:
    """Write the effect with its interval, and a logarithm of a ratio as a factor.

    >>> describe_effect(Verdict("confirmed", 0.52, 0.31, 0.73, seeds=5, unit="points"))
    '+0.52 [+0.31, +0.73] points, 5 seeds'
    >>> describe_effect(Verdict("confirmed", math.log(2), math.log(1.5), math.log(3), seeds=2, unit="λ₁", ratio=True))
    '2× [1.5×, 3×] in λ₁, 2 seeds'
    """
    if not math.isfinite(verdict.effect):
        return "not measured"
    write = _write_factor if verdict.ratio else _write_signed
    interval = f" [{write(verdict.low)}, {write(verdict.high)}]" if math.isfinite(verdict.low) else ""
    seeds = "1 seed" if verdict.seeds == 1 else f"{verdict.seeds} seeds"
    return f"{write(verdict.effect)}{interval} {'in ' if verdict.ratio else ''}{verdict.unit}, {seeds}"


def _write_signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")


def _write_factor(logarithm: float) -> str:
    return f"{math.exp(min(logarithm, 700.0)):.3g}×"  # exp(700) is nearly the largest number that there is


def count_outcomes(judged: list[Judged]) -> dict[str, str]:
    """Count the verdicts of every data set: "10 confirmed, 2 refuted, 8 undecided"."""
    datas = dict.fromkeys(one.data for one in judged)
    counts = {data: Counter(one.verdict.outcome for one in judged if one.data == data) for data in datas}
    outcomes = get_args(Outcome)
    return {data: ", ".join(f"{found[name]} {name}" for name in outcomes) for data, found in counts.items()}


def to_markdown(judged: list[Judged]) -> str:
    """Write the verdicts as a Markdown table: a row per claim, a column per data set."""
    datas = list(dict.fromkeys(one.data for one in judged))
    lines = [f"{data}: {counts}.\n" for data, counts in count_outcomes(judged).items()]
    lines += [f"| claim | paper | {' | '.join(datas)} |", f"|:---|:---|{':---|' * len(datas)}"]
    for name, finding in FINDINGS.items():
        own = {one.data: one.verdict for one in judged if one.finding.name == name}
        cells = [
            f"**{own[data].outcome}** {describe_effect(own[data])} ({own[data].detail})" if data in own else "—"
            for data in datas
        ]
        lines.append(f"| {finding.claim} | {name_method(finding.paper)}, {finding.where} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def to_html(judged: list[Judged]) -> str:
    """Write the verdicts as a section of a page: each claim, and what the runs of every data set say about it."""
    parts = [f'<section id="findings"><h2>What holds</h2><p class="note">{READING}</p>']
    usual = {data: find_usual_scale(judged, data) for data in dict.fromkeys(one.data for one in judged)}
    for data, counts in count_outcomes(judged).items():
        parts.append(f"<p><b>{escape(data)}</b>: {counts}. <small>Experiment: {escape(usual[data])}.</small></p>")
    for name, finding in FINDINGS.items():
        own = [one for one in judged if one.finding.name == name]
        if own:
            lines = "".join(_write_line(one, usual[one.data]) for one in own)
            source = escape(f"{name_method(finding.paper)}, {finding.where}")
            parts.append(
                f'<div class="finding"><h4>{escape(finding.claim)} <small>({source})</small></h4>{lines}</div>'
            )
    return "\n".join([*parts, "</section>"])


def find_usual_scale(judged: list[Judged], data: str) -> str:
    """Find what most findings on a data set were made with: said once, not at each of them."""
    return Counter(one.scaled for one in judged if one.data == data).most_common(1)[0][0]


def _write_line(one: Judged, usual: str) -> str:
    verdict = one.verdict
    outcome = f'<b class="{verdict.outcome}">{verdict.outcome}</b>'
    about = escape(verdict.detail if one.scaled == usual else f"{verdict.detail}; experiment: {one.scaled}")
    return f"<p>{escape(one.data)}: {outcome}, {escape(describe_effect(verdict))} <small>{about}</small></p>"


def to_csv(judged: list[Judged]) -> str:
    """Write the verdicts as CSV, numbers to the last digit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = ("finding", "claim", "paper", "where", "data", "outcome", "effect", "low", "high", "seeds", "unit", "log")
    writer.writerow([*heads, "compared", "scaled"])
    for one in judged:
        verdict, finding = one.verdict, one.finding
        numbers = [repr(value) if math.isfinite(value) else "" for value in (verdict.effect, verdict.low, verdict.high)]
        about = (finding.name, finding.claim, finding.paper, finding.where, one.data, verdict.outcome)
        writer.writerow([*about, *numbers, verdict.seeds, verdict.unit, verdict.ratio, verdict.detail, one.scaled])
    return text.getvalue()


def to_json(judged: list[Judged]) -> str:
    """Write outcomes and effects as JSON, for programs."""
    rows = [
        {
            "finding": one.finding.name,
            "data": one.data,
            "outcome": one.verdict.outcome,
            "effect": one.verdict.effect if math.isfinite(one.verdict.effect) else None,
            "log_of_ratio": one.verdict.ratio,
            "seeds": one.verdict.seeds,
        }
        for one in judged
    ]
    return json.dumps(rows, indent=1) + "\n"
