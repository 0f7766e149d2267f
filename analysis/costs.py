"""What studies will take: time, memory, and what would shorten a long one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape

from analysis import runner
from analysis.advice import Advice, advise
from analysis.runner import Plan
from landscape.runtime.memory import allowance, parse_bytes
from training.console.tables import make_table, print_line


@dataclass(frozen=True)
class Cost:
    """What one plan will take.

    study: its name.
    of: the run, or how many runs.
    pieces: units of work in all. done: those that are there already.
    seconds: that are left, roughly. bytes: held beside the data and the kept graphs.
    advice: settings that would shorten it, if it is long.
    """

    study: str
    of: str
    pieces: int
    done: int
    seconds: float
    bytes: int
    advice: Sequence[Advice]


def name_subjects(planned: Plan) -> str:
    """Name the subject of a plan, or say how many there are."""
    return planned.subjects[0].name if len(planned.subjects) == 1 else f"{len(planned.subjects)} runs"


def estimate_costs(plans: Sequence[Plan]) -> list[Cost]:
    """Estimate what each plan takes, from the speed of the subject's model on this machine."""
    rates: dict[int, float] = {}
    found = []
    for planned in plans:
        left = [] if planned.kept else planned.pieces[planned.done :]
        subject = planned.subjects[0]
        seconds, advice = 0.0, list[Advice]()
        if left:
            if id(subject) not in rates:
                rates[id(subject)] = runner.measure_rate(subject)
            rate = rates[id(subject)]
            seconds, advice = sum(piece.passes for piece in left) / rate, advise(planned, rate)
        vectors = max((piece.vectors for piece in left), default=0)
        size = sum(parameter.numel() for parameter in subject.model.parameters()) * vectors * 4
        count = len(planned.pieces)
        found.append(
            Cost(planned.study.name, name_subjects(planned), count, count - len(left), seconds, int(size), advice)
        )
    return found


def show_costs(costs: Sequence[Cost], plans: Sequence[Plan], console: Console) -> None:
    """Show what will be done, roughly what it takes, and what would shorten it if that is long."""
    table = make_table("study", "of", "pieces", "done already", "about", "memory")
    for one in costs:
        there = "all" if one.done == one.pieces else str(one.done)
        memory = f"{one.bytes / 2**20:.0f} MB"
        table.add_row(one.study, escape(one.of), str(one.pieces), there, write_duration(one.seconds), memory)
    console.print(table)
    print_line(console, f"memory: needed beside the data and the stored graphs, {_describe_graph_memory(plans)}")
    for one in costs:
        for way in one.advice:
            print_line(
                console, f"{one.study}, {one.of}: --set {way.setting} takes {write_duration(way.seconds)}: {way.cost}"
            )


def _describe_graph_memory(plans: Sequence[Plan]) -> str:
    """Describe how much memory kept graphs may take."""
    subjects = [subject for plan in plans for subject in plan.subjects]
    given = next((subject.limits.memory for subject in subjects), None)
    if given is not None:
        return f"which take up to {parse_bytes(given) / 2**30:.1f} GB (--memory)"
    free = allowance(*(subject.device for subject in subjects[:1]))
    return f"which take up to a quarter of what is free, {free / 2**30:.1f} GB now (--memory changes that)"


def write_duration(seconds: float) -> str:
    """Write a duration with the precision of an estimate: 7 s, 1.5 min, 2.0 h."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "-" if seconds == 0 else "< 1 s"
