"""`landscape personal`: personalise runs with some strategies and print one table of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from training.console.messages import printable
from training.console.progress import bars
from training.console.tables import add_notes, make_table, print_line, show_settings
from training.personal.client_evaluation import Subject, find_largest_draw, open_subject
from training.personal.evaluation import evaluate, parse_options
from training.personal.scores import PersonalResult
from training.storage import lock
from training.storage.atomic_files import remove_temporary_files
from training.storage.run_directory import PERSONAL, find_runs


def evaluate_runs(
    runs: Sequence[Path],
    strategies: Sequence[str],
    given: Sequence[str],
    *,
    console: Console,
    round: int | None = None,
    model: str = "server",
    sample: int | None = None,
    data_root: Path | None = None,
    device: str | None = None,
) -> list[tuple[Path, PersonalResult]]:
    """Personalise runs with some strategies, test every client, and print one table of results; returns them too.

    runs: run directories, folders of them, or patterns. strategies: names of STRATEGIES.
    given: options as "key=value", for every strategy that has them.
    round: after which round; by default the newest saved. model: server, mean or swa.
    console: where the table is printed. sample: test only so many clients, drawn by the run's seed.
    data_root: folder of the data, if not the one used in training. device: auto, cpu, cuda, cuda:1 or mps.
    """
    chosen, notes = parse_options(strategies, given), dict[str, None]()
    table = make_table("run", "strategy", "mean ± std", "worst tenth", "mean before", "clients", "round", "options")
    for column in table.columns[2:7]:
        column.justify, column.no_wrap = "right", True

    results: list[tuple[Path, PersonalResult]] = []

    def tell(text: str) -> None:
        print_line(console, text)

    with bars(console) as bar:
        for run in find_runs(runs):
            with lock.hold(run, "personal"):
                remove_temporary_files(run / PERSONAL)
                subject = open_subject(
                    run, round=round, model=model, data_root=data_root, device=device, on_message=tell
                )
                for strategy in strategies:
                    move = bar(f"{run.name} {strategy}") if console.is_terminal else lambda done, total: None
                    options = chosen[strategy]
                    found = evaluate(subject, strategy, options, sample=sample, on_progress=move, on_message=tell)
                    results.append((run, found))
                    table.add_row(escape(printable(run)), *_make_cells(found))
                    notes.update(dict.fromkeys(_make_notes(subject, found)))
    console.print(add_notes(table, *notes) if notes else table)
    return results


def _make_notes(subject: Subject, found: PersonalResult) -> Iterator[str]:
    if "draw" in found.options:
        most = find_largest_draw(subject.federation, [score.client for score in found.clients])
        if found.options["draw"] > most:
            yield (
                f"{subject.run}: draw={found.options['draw']} exceeds the test examples of some classes, so test sets "
                f"are less skewed than their clients. Up to draw={most} they follow them"
            )


def _make_cells(found: PersonalResult) -> tuple[str, ...]:
    left = f" ({found.left_out} left out)" if found.left_out else ""
    return (
        found.strategy,
        f"{100 * found.mean:.2f} ± {100 * found.std:.2f} %",
        f"{100 * found.worst_tenth:.2f} %",
        f"{100 * found.mean_before:.2f} %",
        f"{len(found.clients)}{left}",
        str(found.round),
        escape(show_settings({"model": found.model, **found.options})),
    )
