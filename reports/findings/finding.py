"""What a finding is: a claim of a paper, and a function of our answers that returns a verdict.

Runs of the same seed share their partition, their cohorts and their first model, so methods are compared seed by seed;
the interval of an effect is Student's 95 % interval of the mean over seeds. One seed never decides anything, and runs
that are unfinished, diverged or near chance do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from analysis.store import Answer
from reports.findings.numbers import is_guessing
from reports.inputs.runs import Run

Outcome = Literal["confirmed", "refuted", "undecided"]
Place = tuple[str, str]  # labels of a row (method) and a column (partition) of an experiment
Number = Callable[[Run], float]  # NaN where it is not known
LEVEL = 0.95


@dataclass(frozen=True)
class Verdict:
    """What the runs say about a claim.

    effect: mean over seeds, in `unit`; positive where it goes the way of the claim.
    low, high: its interval. seeds: that it is a mean of. detail: what was compared, in a sentence.
    ratio: whether the effect is a natural logarithm of a ratio of `unit`.
    """

    outcome: Outcome
    effect: float = math.nan
    low: float = math.nan
    high: float = math.nan
    seeds: int = 0
    unit: str = ""
    detail: str = ""
    ratio: bool = False


@dataclass(frozen=True, eq=False)
class Evidence:
    """The finished runs of an experiment.

    runs: for every method and partition one run per seed.
    answers: of studies that compare runs, by the title of their panel.
    """

    runs: Mapping[Place, Sequence[Run]]
    answers: Mapping[str, Sequence[Answer]] = field(default_factory=dict)

    def find(self, place: Place) -> dict[int, Run]:
        """Return the finished runs of a method on a partition by their seed, without those that learned nothing."""
        return {run.seed: run for run in self.runs.get(place, ()) if run.progress.final and not is_guessing(run)}

    def measure(self, place: Place, number: Number) -> dict[int, float]:
        """Return a number of the runs of a method on a partition by their seed, where it is known."""
        values = {seed: number(run) for seed, run in self.find(place).items()}
        return {seed: value for seed, value in values.items() if math.isfinite(value)}

    def list_rows(self, column: str) -> list[str]:
        """List the methods of a partition, without those that ended and learned nothing in any run.

        A method that was not run yet is among them: a claim about all methods must wait for it.
        """
        return [row for row, other in self.runs if other == column and not self._is_hopeless((row, other))]

    def _is_hopeless(self, place: Place) -> bool:
        runs = self.runs[place]
        ended = all(run.progress.final or run.progress.state == "diverged" for run in runs)
        return bool(runs) and ended and not self.find(place)


@dataclass(frozen=True)
class Finding:
    """A claim of a paper.

    name: short, for tables and files. claim: in one sentence of our own. paper, where: whose claim, and its place.
    experiment: key of the experiment whose runs decide. judge: a function of its runs.
    """

    name: str
    claim: str
    paper: str
    where: str
    experiment: str
    judge: Callable[[Evidence], Verdict] = field(compare=False)


def judge_differences(differences: Sequence[float], unit: str, detail: str, *, ratio: bool = False) -> Verdict:
    """Judge a claim that says that differences are positive.

    differences: one per seed, positive where the claim holds.
    unit: of the differences. detail: what was compared. ratio: whether the differences are ln of ratios of `unit`.
    """
    known = np.asarray([one for one in differences if math.isfinite(one)], dtype=np.float64)
    if len(known) == 0:
        return Verdict("undecided", unit=unit, detail=f"{detail}; no finished run above chance", ratio=ratio)
    mean = float(known.mean())
    if len(known) == 1:
        why = f"{detail}; one seed has no interval"
        return Verdict("undecided", mean, seeds=1, unit=unit, detail=why, ratio=ratio)
    from scipy import stats  # here, because it takes a second to import

    half = float(stats.t.ppf((1 + LEVEL) / 2, len(known) - 1) * known.std(ddof=1) / math.sqrt(len(known)))
    outcome: Outcome = "confirmed" if mean - half > 0 else "refuted" if mean + half < 0 else "undecided"
    return Verdict(outcome, mean, mean - half, mean + half, len(known), unit, detail, ratio)


def compare(
    evidence: Evidence, more: Place, less: Place, number: Number, unit: str, detail: str, *, ratio: bool = False
) -> Verdict:
    """Judge the claim that a number is larger in one place than in another, seed by seed.

    more, less: where it should be larger, and where smaller.
    ratio: compare by ln(more / less); for numbers that are positive and vary by factors.
    """
    high, low = evidence.measure(more, number), evidence.measure(less, number)
    seeds = sorted(set(high) & set(low))
    differences = [_compare(high[seed], low[seed], ratio) for seed in seeds]
    return judge_differences(differences, unit, detail, ratio=ratio)


def _compare(more: float, less: float, ratio: bool) -> float:
    if not ratio:
        return more - less
    return math.log(more / less) if more > 0 and less > 0 else math.nan


def require_all(verdicts: Mapping[str, Verdict], detail: str) -> Verdict:
    """Join the parts of a claim: confirmed if all are, refuted if one is; the effect is the weakest part's.

    verdicts: by what each is about.
    """
    if not verdicts:
        return Verdict("undecided", detail=f"{detail}; not measured")
    known = {name: one for name, one in verdicts.items() if math.isfinite(one.effect)}
    if not known:
        return Verdict("undecided", detail=f"{detail}; not measured")
    weakest = min(known, key=lambda name: known[name].effect)
    if any(one.outcome == "refuted" for one in verdicts.values()):
        outcome: Outcome = "refuted"
        weakest = min((name for name in known if known[name].outcome == "refuted"), key=lambda name: known[name].effect)
    elif all(one.outcome == "confirmed" for one in verdicts.values()):
        outcome = "confirmed"
    else:
        outcome = "undecided"
    missing = ", ".join(name for name in verdicts if name not in known)
    parts = [detail, f"the weakest part: {weakest}", f"not measured: {missing}" if missing else ""]
    return replace(known[weakest], outcome=outcome, detail="; ".join(filter(None, parts)))
