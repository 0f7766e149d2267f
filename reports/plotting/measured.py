"""What a number was measured on, in a few words for captions."""

from __future__ import annotations

from collections.abc import Iterable

import xarray as xr

from analysis.store import Answer
from reports.inputs.runs import Run
from reports.inputs.subsets import describe_subsets


def describe_setting(runs: Iterable[Run]) -> list[str]:
    """Describe for a caption the data, how they were distributed over clients, and the seeds."""
    known = list(runs)
    seeds = sorted({run.seed for run in known})
    word = "seed" if len(seeds) == 1 else "seeds"
    return [known[0].data, known[0].heterogeneity, f"{word} {', '.join(map(str, seeds))}"]


def describe_measurement(results: Iterable[Answer]) -> list[str]:
    """Describe for a caption how many examples a study saw, and what it did with norm layers."""
    known = list(results)
    policies = sorted({str(one) for stored in known for one in stored.provenance.get("batchnorm", ())})
    said = describe_subsets(known)
    return [*([said] if said else []), *(["BatchNorm " + ", ".join(policies)] if policies else [])]


def select_runs(runs: Iterable[Run], study: str, name: str) -> list[Run]:
    """Select the runs in which a study measured a variable."""
    return [run for run in runs if (data := run.measured(study)) is not None and name in data]


def get_data(run: Run, study: str) -> xr.Dataset:
    """Return what a study found in a run that has an answer of it."""
    data = run.measured(study)
    assert data is not None
    return data


def find_answers(runs: Iterable[Run], study: str) -> list[Answer]:
    """Find the answers of a study in runs, where it was run."""
    return [answer for run in runs if (answer := run.answer(study)) is not None]


def find_reference(runs: Iterable[Run], study: str) -> str:
    """Find what local models were compared with: "sent", "global", "mixed", or "" where it is not on record."""
    found = {str(answer.data.attrs.get("reference", "")) for answer in find_answers(runs, study)}
    known = found & {"sent", "global"}
    return known.pop() if len(found) == len(known) == 1 else "mixed" if known else ""


REFERENCES = {
    "sent": "the point that was sent",
    "global": "the global model after the round, not the point that was sent",
    "mixed": "the point that was sent in some runs, the global model after the round in others",
    "": "a point that is not on record",
}
