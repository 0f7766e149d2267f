"""Moving pictures: surfaces that turn, and how the loss around a model changes over rounds. GIF, or MP4 with ffmpeg."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, PillowWriter, writers

from landscape.plotting.maps import draw_bar, draw_contour_lines, fill_contours, make_maps, mark_centre
from landscape.plotting.relief import VIEW, draw_colorbar, make_reliefs
from landscape.plotting.scales import share_scale
from landscape.plotting.style import MAGNITUDE, STYLE, label_axes
from reports.files import make_slug, name_path_in_errors
from reports.inputs.runs import Collection, Run
from reports.palette import assign_looks
from reports.plotting.loss.relief import Net, draw_solid, finish_axes, lay_over
from reports.plotting.loss.surfaces import (
    Surface,
    find_comparison,
    find_global_surfaces,
    find_surfaces,
    name_axes,
    name_surfaces,
)

FRAMES, DPI = 36, 80  # of one turn: ten degrees each, under two megabytes
TURNING, PASSING = 12, 3  # frames in a second: of a turn, of rounds
NAME = "training loss"


def animate(everything: Collection, folder: Path, kind: str = "gif") -> tuple[list[Path], list[str]]:
    """Animate all stored surfaces; returns the files, and one line for each animation that is missing.

    folder: where they go.
    kind: "gif" or "mp4".
    """
    paths: list[Path] = []
    missing: list[str] = []
    folder.mkdir(parents=True, exist_ok=True)
    for data, heterogeneity in everything.settings:
        runs = everything.select(data, heterogeneity)
        here = f"{data}, {heterogeneity}"
        try:
            paths += _animate_turns(runs, everything, folder, kind)
            found = _animate_rounds(runs, everything, folder, kind)
        except ValueError as error:  # there is no writer: the same for all
            return paths, [*missing, str(error)]
        paths += found
        if not find_global_surfaces(runs, everything):
            missing.append(f"{here}: no animation, for there is no surface; landscape analyze --study surface makes it")
        elif not found:
            missing.append(f"{here}: nothing to show over rounds; analyze with --set surface.rounds=all")
    return paths, missing


def _animate_turns(runs: Sequence[Run], everything: Collection, folder: Path, kind: str) -> list[Path]:
    """Every method over the baseline; a run alone where there is nothing to compare."""
    pair, single = find_comparison(runs, everything), find_global_surfaces(runs, everything)
    colors = {name: look.color for name, look in assign_looks(run.algorithm for run in everything.runs).items()}
    if pair is None:
        return [
            animate_turn(one, None, folder / f"surface_{make_slug(one.run.name)}.{kind}", "", everything)
            for one in single
        ]
    base, others = pair
    return [
        animate_turn(
            base, one, folder / f"overlay_{make_slug(one.run.name)}.{kind}", colors[one.run.algorithm], everything
        )
        for one in others
    ]


def _animate_rounds(runs: Sequence[Run], everything: Collection, folder: Path, kind: str) -> list[Path]:
    found = [find_surfaces(run, runs, everything, "train") for run in runs]
    return [
        animate_rounds(some, folder / f"rounds_{make_slug(some[0].run.name)}.{kind}", everything)
        for some in found
        if len(some) > 1
    ]


def animate_turn(base: Surface, one: Surface | None, path: Path, color: str, everything: Collection) -> Path:
    """Animate one turn around a surface, with another one as a net over it.

    base: the surface.
    one: the other one; None: the surface alone.
    color: of the net.
    """
    writer = choose_writer(path, TURNING)
    shown = [base] if one is None else [base, one]
    scale = share_scale(surface.loss for surface in shown)
    figure, (axes,) = make_reliefs(1, size=4.6)
    first, *others = name_surfaces(shown, everything)
    if one is None:
        draw_solid(axes, base, scale)
        finish_axes(axes, base, scale, first)
    else:
        looks = assign_looks(run.algorithm for run in everything.runs)
        lay_over(axes, base, [Net(one, color, others[0])], scale, first, looks[base.run.algorithm].color)
    draw_colorbar(figure, axes, scale, NAME)
    with rc_context(STYLE), name_path_in_errors(path):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # found once: the picture must not jump
        with writer.saving(figure, str(path), DPI):
            for frame in range(FRAMES):
                axes.view_init(elev=VIEW["elev"], azim=VIEW["azim"] + 360 * frame / FRAMES)
                writer.grab_frame()
    return path


def animate_rounds(surfaces: Sequence[Surface], path: Path, everything: Collection) -> Path:
    """Animate the map around one run's model, round after round, with the same levels."""
    writer = choose_writer(path, PASSING)
    scale = share_scale(one.loss for one in surfaces)
    figure, (axes,) = make_maps(1, size=4.2)
    (title,) = name_surfaces(surfaces[:1], everything)
    with rc_context(STYLE), name_path_in_errors(path), writer.saving(figure, str(path), DPI):
        for one in surfaces:
            axes.clear()
            drawn = fill_contours(axes, one.x, one.y, one.loss, scale.levels, scale.extend, MAGNITUDE)
            draw_contour_lines(axes, one.x, one.y, one.loss, scale.levels)
            mark_centre(axes)
            label_axes(axes, *name_axes(one), f"{title}, round {one.round}")
            if drawn is not None:
                draw_bar(figure, [axes], drawn, scale.ticks(12), NAME)
            writer.grab_frame()
    return path


def choose_writer(path: Path, speed: int) -> AbstractMovieWriter:
    """Choose a writer by the end of a file's name; an error says what is missing.

    speed: frames in a second.
    """
    if path.suffix == ".gif":
        return PillowWriter(fps=speed)
    if path.suffix != ".mp4":
        raise ValueError(f"{path.name}: animations end in .gif or .mp4")
    if not writers.is_available("ffmpeg"):
        raise ValueError(f"{path.name}: an MP4 needs the program ffmpeg, which is not installed; a GIF does not")
    return FFMpegWriter(fps=speed)
