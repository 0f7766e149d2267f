"""A method, a study and a figure of a user's own, in files outside the package: trained, measured and drawn."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import analysis.catalog
import reports.catalog
from analysis import command, store
from analysis.runner import find_source
from analysis.study import Study
from reports.command import report, tabulate_figures
from reports.names import name_method
from training import config
from training.engine.run import train

DOCS = Path(__file__).parents[2] / "docs" / "own_method.md"
LENGTHS = '''"""The length of the global model over rounds."""

import analysis
from analysis.study import Piece, Study, scalar
from pydantic import Field
from training.settings import Positive, settings
import xarray as xr


@settings
class Settings:
    rounds: str = Field(default="all", description="rounds to measure")
    unit: Positive = Field(default=1.0, description="what a length of one is")


def pieces(run, settings):
    return [Piece(round) for round in run.select(settings.rounds)]


def measure(run, settings, piece, earlier):
    return xr.Dataset({"length": scalar(float(run.point(piece.round).norm()) / settings.unit, "length of the model")})


STUDY = Study("lengths", __doc__, Settings, pieces, measure)
analysis.register_study("lengths", STUDY)
'''
PICTURE = '''"""A figure of the study lengths."""

import reports
from matplotlib.figure import Figure as Canvas
from reports.figure_type import Drawing, Figure


def draw(runs, everything):
    canvas, rows = Canvas(), []
    axes = canvas.subplots()
    for run in runs:
        data = run.measured("lengths")
        axes.plot(data["round"], data["length"])
        rows += [{"run": run.name, "round": int(r), "length": float(v)} for r, v in zip(data["round"], data["length"])]
    return [Drawing(canvas, rows, "Lengths of models.")]


FIGURE = Figure("own_lengths", "flat", "Lengths", "Longer is farther from zero.", ("lengths",), draw)
reports.register_figure("own_lengths", FIGURE)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    found = re.search(r"^<!-- file: growing.py -->\n```python\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    (tmp_path / "growing.py").write_text(found[1].replace('training.register_method("growing", GROWING)', ""))
    (tmp_path / "lengths_of_mine.py").write_text(LENGTHS)
    (tmp_path / "picture_of_mine.py").write_text(PICTURE)
    monkeypatch.syspath_prepend(tmp_path)
    for point in (analysis.catalog.CATALOG, reports.catalog.CATALOG):
        monkeypatch.setattr(point, "registered", {})
    yield tmp_path
    for name in ("growing", "lengths_of_mine", "picture_of_mine"):
        sys.modules.pop(name, None)


def test_trained_measured_and_drawn(folder: Path) -> None:
    recipe = config.validate(
        {
            "data": {"name": "synthetic", "examples": 60, "test_examples": 10, "classes": 3, "shape": [1, 2, 2]},
            "partition": {"clients": 4},
            "model": {"name": "mlp", "hidden": [5]},
            "algorithm": {"name": "growing:GROWING", "mu": 0.5},
            "rounds": {"count": 2, "participants": 2},
            "checkpoints": {"every": 1},
        }
    )
    run = train(recipe, folder / "runs", backend="serial")
    console = Console(quiet=True)
    study, settings = "lengths_of_mine:STUDY", ["lengths.unit=2.0"]
    (path,) = command.analyze(command.open_subjects([run]), [study], settings, console=console)
    answer = store.read(path)
    assert answer.data["length"].shape == (3,)
    assert answer.settings["unit"] == 2.0
    assert answer.provenance["inputs"][-1]["file"] == "lengths_of_mine.py"
    source = folder / "lengths_of_mine.py"
    again = command.make_plans(command.open_subjects([run]), [study], {"lengths": {"unit": 2.0}}, console=console)
    assert [one.kept for one in again] == [True]
    source.write_text(source.read_text() + "# changed\n")
    again = command.make_plans(command.open_subjects([run]), [study], {"lengths": {"unit": 2.0}}, console=console)
    assert [one.kept for one in again] == [False], "measured with another text of the study"
    figure = reports.catalog.CATALOG.find("picture_of_mine:FIGURE")
    page = report([run], folder / "page", formats=("png",), console=console, figures=[figure], workers=1, strict=True)
    drawn = list((folder / "page").rglob("own_lengths*.csv"))
    assert len(drawn) == 1
    assert len(drawn[0].read_text().splitlines()) == 4
    assert "Lengths of models." in page.read_text()


def test_built_in_studies_are_known_by_their_names_alone() -> None:
    """Their answers must not be asked again because a file of the package changed."""
    assert not any(find_source(study) for study in analysis.catalog.STUDIES.values())


def test_what_is_registered_is_listed(folder: Path) -> None:
    import lengths_of_mine  # type: ignore[import-not-found]
    import picture_of_mine  # type: ignore[import-not-found]

    assert isinstance(lengths_of_mine.STUDY, Study)
    console = Console(width=300, no_color=True)
    with console.capture() as capture:
        console.print(command.list_studies())
        console.print(command.list_settings("lengths"))
        console.print(tabulate_figures())
    assert "The length of the global model over rounds." in capture.get()
    assert "what a length of one is" in capture.get()
    assert picture_of_mine.FIGURE.name in capture.get()


def test_mistakes_are_named(folder: Path) -> None:
    with pytest.raises(
        ValueError, match=r"study 'lengths_of_mine:pieces' must be an analysis.study.Study, got function"
    ):
        analysis.catalog.CATALOG.find("lengths_of_mine:pieces")
    with pytest.raises(
        ValueError, match=r"figure 'picture_of_mine:draw' must be a reports.figure_type.Figure, got function"
    ):
        reports.catalog.CATALOG.find("picture_of_mine:draw")
    with pytest.raises(ValueError, match="study: unknown 'curvatur'; did you mean 'curvature'"):
        command.select_studies(["curvatur"])
    path = folder / "lengths_of_mine.py"
    path.write_text(path.read_text().replace('Study("lengths"', 'Study("curvature"'))
    sys.modules.pop("lengths_of_mine")
    with pytest.raises(ValueError, match="is called 'curvature' like a built-in one: give it another name"):
        analysis.catalog.CATALOG.find("lengths_of_mine:STUDY")


def test_reports_leave_the_module_out() -> None:
    assert name_method("my.module:GROWING+sam") == "GROWING + SAM"
    assert name_method("feddyn+mine:Ascent") == "FedDyn + Ascent"
    assert name_method("unknown") == "unknown"
