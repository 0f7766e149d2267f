"""Draw every figure for every section, on all cores, and collect what the page needs.

Processes, not threads: matplotlib holds the interpreter lock. They get stored numbers and return text, never canvases.
"""

from __future__ import annotations

import base64
import gc
import json
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas

from analysis.store import DEFAULT
from landscape.plotting.style import STYLE, join_caption, mark, shrink_letters, use_width
from reports.figure_type import Drawing, Figure, save
from reports.files import make_slug, make_slugs
from reports.inputs.runs import Collection, Run
from reports.names import name_data
from reports.plotting.svg import inline_svg
from reports.variants import find_variants, make_full_titles
from training.executors.parent import end_with_parent, without_main

LIMIT = 400_000  # characters of SVG in the page; above it a PNG weighs less and scrolls better
FEW = 6  # jobs that are done before a second process has started


@dataclass(frozen=True)
class Section:
    """Runs that are drawn together: of one data set and one partition, or of all partitions of a data set."""

    data: str
    heterogeneity: str | None = None
    slug: str = ""  # for names of folders and anchors: no other section of a report has the same

    @property
    def title(self) -> str:
        named = name_data(self.data), "all partitions" if self.heterogeneity is None else self.heterogeneity
        return ", ".join(one for one in named if one)

    def select(self, everything: Collection) -> list[Run]:
        """Select its runs."""
        if self.heterogeneity is not None:
            return everything.select(self.data, self.heterogeneity)
        return [run for run in everything.runs if run.data == self.data]

    def narrow(self, everything: Collection) -> Collection:
        """Select its runs, with the answers that compare runs."""
        return Collection(self.select(everything), everything.together, everything.problems)


@dataclass(frozen=True)
class Picture:
    """A drawing as text, as the page needs it."""

    folder: str  # from the page
    stem: str  # of its files
    caption: str
    html: str  # <svg> or <img>
    width: int  # pixels at which its letters have the size they were set in
    table: str  # the numbers, as CSV
    files: dict[str, str]  # format -> path from the page
    interactive: str | None  # plotly's JSON
    runs: tuple[str, ...] = ()  # that it shows; none: as many as the section has


@dataclass(frozen=True)
class Outcome:
    """The result of drawing a figure for a section: its pictures, or the problem that prevented them."""

    figure: Figure
    section: Section
    pictures: list[Picture]
    problem: str = ""


@dataclass(frozen=True)
class Job:
    """A figure to draw for a section, with the question that it shows of each study: study -> question."""

    figure: Figure
    section: Section
    questions: Mapping[str, str]
    alone: bool = True  # no other question is drawn

    @property
    def named_questions(self) -> list[str]:
        """The questions that are not the default one."""
        return [name for name in dict.fromkeys(self.questions.values()) if name != DEFAULT]

    @property
    def suffix(self) -> str:
        """The part of file names that distinguishes this question from others."""
        return "" if self.alone else "".join(f"-{name}" for name in self.named_questions)

    @property
    def description(self) -> str:
        """Which question it shows, for the caption."""
        return f"question {', '.join(self.named_questions)}" if self.named_questions else ""


def choose_questions(figure: Figure, everything: Collection) -> list[dict[str, str]]:
    """Choose the questions that a figure is drawn for: each that its study has.

    A figure of several studies is drawn once, from the default question of each, or else from the first.

    everything: what the figure may show.
    """
    known = {study: some for study in figure.needs if (some := everything.questions(study))}
    if len(figure.needs) != 1 or not known:
        return [{study: some[0] for study, some in known.items()}]
    ((study, names),) = known.items()
    return [{study: name} for name in names]


def list_sections(everything: Collection) -> list[Section]:
    """List the sections of a report: for each data set its partitions, then all of them together."""
    found = []
    for data in dict.fromkeys(run.data for run in everything.runs):
        found += [Section(data, partition) for name, partition in everything.settings if name == data]
        found.append(Section(data))
    names = make_slugs(f"{one.data} {one.heterogeneity or ''}" for one in found)
    return [replace(one, slug=name) for one, name in zip(found, names, strict=True)]


def draw_all(
    everything: Collection,
    figures: Iterable[Figure],
    out: Path,
    formats: Sequence[str],
    *,
    workers: int | None = None,
    strict: bool = False,
    width: float | None = None,
) -> Iterator[Outcome]:
    """Draw figures for every section of a report; yields outcomes in the order of sections and figures.

    out: the folder of the report.
    formats: of the pictures.
    workers: number of processes that draw; by default one per core.
    strict: whether a figure that fails is an error.
    width: of all figures, in inches; None: as each figure chooses.
    """
    figures = list(figures)
    jobs = [
        Job(figure, section, questions, alone=len(chosen) == 1)
        for section in list_sections(everything)
        for figure in figures
        if figure.across == (section.heterogeneity is None)
        for chosen in [choose_questions(figure, section.narrow(everything))]
        for questions in chosen
    ]
    renderer = Renderer(everything, out, tuple(formats), strict, width)
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    if workers < 2 or len(jobs) <= FEW:
        yield from map(renderer.draw, jobs)
        return
    done = 0
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker, (renderer,)) as pool:
            with without_main():  # a pool that spawns starts all its processes at the first call
                outcomes = pool.map(_draw, jobs)
            for outcome in outcomes:
                done += 1
                yield outcome
    except BrokenProcessPool:  # killed from outside, mostly for memory: the rest is drawn one after another
        yield from map(renderer.draw, jobs[done:])


@dataclass(frozen=True)
class Renderer:
    """Draws figures and saves them.

    everything: the runs of the report.
    out: the folder of the report.
    formats: of the pictures.
    strict: whether a figure that fails is an error.
    width: of all figures, in inches; None: as each figure chooses.
    """

    everything: Collection
    out: Path
    formats: tuple[str, ...]
    strict: bool
    width: float | None = None

    def draw(self, job: Job) -> Outcome:
        """Draw a figure, save it, and return what the page needs of it."""
        figure, section = job.figure, job.section
        everything = self.everything.narrow(job.questions)
        try:
            runs = section.select(everything)
            with use_width(self.width):
                drawn = figure.draw(runs, everything)
            stems = make_slugs(f"{figure.name}{one.suffix}{job.suffix}" for one in drawn)
            pictures = []
            for one, stem in zip(drawn, stems, strict=True):
                _mark_legends(one.canvas, {variant.label: variant.names for variant in find_variants(runs, everything)})
                named = replace(one, caption=join_caption([one.caption, job.description]))
                final = replace(named, caption=_add_progress(named, runs, everything))
                pictures.append(self._save(final, figure, section, stem))
            return Outcome(figure, section, pictures)
        except OSError:  # a full disk is full for all figures
            raise
        except Exception as error:  # one figure must not sink the report
            if self.strict:
                raise
            return Outcome(figure, section, [], f"{type(error).__name__}: {error}")

    def _save(self, drawn: Drawing, figure: Figure, section: Section, stem: str) -> Picture:
        """Save a drawing under this name, and take what the page shows of it."""
        folder = self.out / "figures" / section.slug
        if self.width is not None:
            shrink_letters(drawn.canvas)
        _lay_out(drawn.canvas)
        first, *others = dict.fromkeys(("svg", *self.formats))
        paths = save(drawn, folder, stem, [first])
        label = f"{figure.title}. {drawn.caption}"
        html = inline_svg(paths[0].read_text(encoding="utf-8"), make_slug(f"{section.slug}-{stem}"), label)
        if len(html) > LIMIT and "png" not in others:
            others.append("png")
        if others:
            save(drawn, folder, stem, others)
        if len(html) > LIMIT:
            html = _embed_image((folder / f"{stem}.png").read_bytes(), label)
        for extra in {"svg", *others} - set(self.formats):
            (folder / f"{stem}.{extra}").unlink()
        return Picture(
            folder=f"figures/{section.slug}",
            stem=stem,
            caption=drawn.caption,
            html=html,
            width=round(96 * drawn.canvas.get_size_inches()[0]),
            table=paths[-1].read_text(encoding="utf-8"),
            files={kind: f"figures/{section.slug}/{stem}.{kind}" for kind in self.formats},
            interactive=None if drawn.interactive is None else json.dumps(drawn.interactive, allow_nan=False),
            runs=_find_shown_runs(drawn, self.everything),
        )


def _find_shown_runs(drawn: Drawing, everything: Collection) -> tuple[str, ...]:
    """Find the runs of a drawing, if all its numbers name theirs: the page hides it together with them."""
    named = {str(row.get("run")) for row in drawn.rows}
    return tuple(sorted(named)) if named <= {run.name for run in everything.runs} else ()


def _add_progress(drawn: Drawing, runs: Sequence[Run], everything: Collection) -> str:
    """The caption, and which of the runs that are shown diverged or are unfinished."""
    shown = set(_find_shown_runs(drawn, everything)) or {run.name for run in runs}
    named = make_full_titles(everything.runs, everything)
    open_ = [
        f"{named[run.name]}: {run.progress.description}"
        for run in runs
        if run.name in shown and run.progress.description
    ]
    return join_caption([drawn.caption, f"not final: {'; '.join(open_)}" if open_ else ""])


def _mark_legends(canvas: Canvas, methods: Mapping[str, Sequence[str]]) -> None:
    """Mark the lines of legends with the runs that they belong to."""
    legends = [*canvas.legends, *(axes.get_legend() for axes in canvas.axes)]
    for legend in legends:
        if legend is None:
            continue
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            said = text.get_text()
            name = next((name for name in methods if said == name or said.startswith(f"{name}:")), None)
            if name is not None:
                mark([handle, text], methods[name])


def _lay_out(canvas: Canvas) -> None:
    """Lay the figure out once for all formats: matplotlib would do it again for each, and draw everything twice."""
    engine = canvas.get_layout_engine()
    if engine is not None:
        with rc_context(STYLE):
            engine.execute(canvas)
            canvas.set_layout_engine(None)


def _embed_image(png: bytes, label: str) -> str:
    from markupsafe import escape

    return f'<img src="data:image/png;base64,{base64.b64encode(png).decode()}" alt="{escape(label)}">'


_renderer: Renderer | None = None  # of a worker process


def _start_worker(renderer: Renderer) -> None:
    global _renderer
    _renderer = renderer
    end_with_parent()
    gc.freeze()
    gc.set_threshold(100_000)  # looking for garbage after every 700 objects took a quarter of the time


def _draw(job: Job) -> Outcome:
    assert _renderer is not None
    return _renderer.draw(job)
