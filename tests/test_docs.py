"""The documentation builds without a warning, running every example, and says something of everything there is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html import unescape
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

import analysis
import landscape
import reports
import training
from analysis.catalog import STUDIES
from reports.catalog import FIGURES
from training.methods.catalog import ALGORITHMS
from training.settings import fields

pytest.importorskip("sphinx_gallery")
ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
LIMIT = 900  # seconds, on a busy machine


def read(site: Path, page: str) -> str:
    return unescape((site / f"{page}.html").read_text(encoding="utf-8"))


def test_the_site_builds_without_warnings_and_runs_every_example(tmp_path):
    """One test, since building takes a minute: pages are then read where they are."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "trees", "docs", tmp_path]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    environment.pop("LANDSCAPE_EXAMPLES", None)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(EXAMPLES) >= 12
    for path in EXAMPLES:
        assert "Total running time of the script" in read(tmp_path, f"gallery/{path.stem}"), path.name
    methods = read(tmp_path, "generated/methods")
    assert methods.count("<math") > 300
    for name in ALGORITHMS:
        assert f'id="{name}"' in methods
    studies = read(tmp_path, "generated/studies")
    for name, study in STUDIES.items():
        assert f'id="{name.replace("_", "-")}-study"' in studies
        assert all(f">{setting}<" in studies for setting in fields(study.settings))
    figures = read(tmp_path, "generated/figures")
    for figure in FIGURES.values():
        assert figure.title in figures
    for package in (landscape, training, analysis, reports):
        shown = read(tmp_path, f"generated/api_{package.__name__}")
        for name in set(package.__all__) - {"results", "directions"}:
            assert f'id="{package.__name__}.{name}"' in shown, name


def test_a_picture_of_an_example_is_shown_once(tmp_path, monkeypatch):
    """Pyplot's scraper closes its figures, whose names live on: the other scraper must not take them for its own."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    from building.pictures import save_reports

    of_pyplot, alone = plt.figure(), Figure()
    images = iter(tmp_path / f"{number}.png" for number in range(4))
    variables = {"example_globals": {"one": of_pyplot, "other": alone}, "image_path_iterator": images}
    shown = save_reports(None, variables, {"src_dir": str(tmp_path)})
    plt.close(of_pyplot)
    save_reports(None, variables, {"src_dir": str(tmp_path)})
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["0.png"]
    assert "0.png" in shown


def test_arguments_that_share_a_text_share_all_of_it(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from building.docstrings import process

    def draw(low: float, high: float, steps: int) -> None: ...

    lines = [
        "Draw.",
        "",
        "low, high: the ends of the grid,",
        "    both on it. steps: of the grid.",
        "",
        "Nothing more.",
    ]
    process(None, "function", "draw", draw, None, lines)
    shared = "the ends of the grid, both on it."
    assert lines[3:6] == [f":param low: {shared}", f":param high: {shared}", ":param steps: of the grid."]
    assert [line for line in lines if line][-1] == "Nothing more."


def test_an_example_becomes_a_notebook_that_runs_and_shows_tables_and_a_picture(tmp_path):
    import nbformat
    from nbclient import NotebookClient
    from sphinx_gallery.gen_gallery import DEFAULT_GALLERY_CONF
    from sphinx_gallery.notebook import jupyter_notebook
    from sphinx_gallery.py_source_parser import split_code_and_text_blocks

    _, blocks = split_code_and_text_blocks(str(ROOT / "docs" / "examples" / "first_notebook.py"))
    made = jupyter_notebook(blocks, DEFAULT_GALLERY_CONF, str(tmp_path))
    notebook = nbformat.reads(json.dumps(made), as_version=4)
    NotebookClient(notebook, timeout=LIMIT, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [kind for cell in notebook.cells for out in cell.get("outputs", []) for kind in out.get("data", {})]
    assert shown.count("text/html") >= 3
    assert "image/png" in shown
