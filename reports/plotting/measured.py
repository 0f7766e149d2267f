"""What a number was measured on, in a few words for captions."""

from __future__ import annotations

from collections.abc import Iterable

from analysis.store import Stored
from reports.runs import Run
from reports.subsets import described


def setting(runs: Iterable[Run]) -> list[str]:
    """The data and how they were dealt out, and the seeds of the runs."""
    known = list(runs)
    seeds = sorted({run.seed for run in known})
    word = "seed" if len(seeds) == 1 else "seeds"
    return [known[0].data, known[0].heterogeneity, f"{word} {', '.join(map(str, seeds))}"]


def measured(results: Iterable[Stored]) -> list[str]:
    """How many examples a study saw, and what it did with norm layers; both where they are on record."""
    known = list(results)
    policies = sorted({str(one) for stored in known for one in stored.provenance.get("batchnorm", ())})
    said = described(known)
    return [*([said] if said else []), *(["BatchNorm " + ", ".join(policies)] if policies else [])]


def of_study(runs: Iterable[Run], study: str) -> list[Stored]:
    """What the study found in these runs, where it was run."""
    return [run.results[study] for run in runs if study in run.results]


def reference(runs: Iterable[Run], study: str, table: str) -> str:
    """What local models were compared with: "sent", "global", "mixed", or nothing where it is not on record."""
    found = set()
    for run in runs:
        inside = run.table(study, table)
        if inside is None:
            continue
        if isinstance(inside.attributes.get("reference"), str):
            found.add(str(inside.attributes["reference"]))
        elif "from_sent" in inside.variables:
            found |= {"sent" if known else "global" for known in inside["from_sent"] > 0}
    return found.pop() if len(found) == 1 else "mixed" if found else ""


REFERENCES = {
    "sent": "the point that was sent",
    "global": "the global model after the round (the point that was sent is not on record)",
    "mixed": "the point that was sent where it is on record, the global model after the round elsewhere",
    "": "a point that is not on record",
}
