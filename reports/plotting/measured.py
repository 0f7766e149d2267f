"""What a number was measured on, in a few words for captions."""

from __future__ import annotations

from collections.abc import Iterable

from analysis.store import Stored
from reports.runs import Run


def setting(runs: Iterable[Run]) -> list[str]:
    """The data and how they were dealt out, and the seeds of the runs."""
    known = list(runs)
    seeds = sorted({run.seed for run in known})
    word = "seed" if len(seeds) == 1 else "seeds"
    return [known[0].data, known[0].heterogeneity, f"{word} {', '.join(map(str, seeds))}"]


def measured(results: Iterable[Stored]) -> list[str]:
    """How many examples a study saw, and what it did with norm layers; both where they are on record."""
    known = list(results)
    limits = {stored.settings["limit"] for stored in known if "limit" in stored.settings}
    policies = sorted({str(one) for stored in known for one in stored.provenance.get("batchnorm", ())})
    said = [", ".join(sorted("all examples" if one is None else f"at most {one} examples" for one in limits))]
    return [*(one for one in said if one), *(["BatchNorm " + ", ".join(policies)] if policies else [])]


def of_study(runs: Iterable[Run], study: str) -> list[Stored]:
    """What the study found in these runs, where it was run."""
    return [run.results[study] for run in runs if study in run.results]
