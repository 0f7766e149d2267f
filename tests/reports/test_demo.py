"""The demo in small: every stage runs, every figure that it promises is drawn, nothing is done twice."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from reports import demo
from reports.catalog import FIGURES

SMALL = ("rounds.count=4", "checkpoints.every=2", "sweep.partition.alpha=[0.0]", 'sweep.algorithm=[{name="fedavg"}]')
STUDIES = {
    **demo.STUDIES,
    "forgetting": {"clients": 2, "limit": 50},
    "personal": {"clients": 3},
    "features": {"count": 60},
    "robustness": {"corruptions": ("brightness",), "severities": (1,), "limit": 50},
    "curvature": {"top": 5, "density": 1, "limit": 100},
    "surface": {"steps": 3, "limit": 50},
    "sharpness": {"kinds": ("sam",), "clients": 1, "limit": 50},
    "local_global": {"rounds": "all", "clients": 1, "limit": 20, "tol": 0.1},
    "incompatibility": {"steps": 0, "batches": 2, "limit": 30},
    "drift": {"limit": 50},
    "sensitivity": {"clients": 2, "limit": 50},
    "plane": {"steps": 3, "limit": 50},
    "interpolation": {"steps": 3, "low": 0.0, "high": 1.0, "clients": 2, "limit": 50},
}
# these compare settings of runs, or need surfaces of clients or recorded quantities, which the demo has not
ABSENT = {"setting", "two_settings", "local_surfaces", "flatness", "recorded"}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    said = io.StringIO()
    console = Console(width=200, file=said)
    page = demo.run(tmp_path_factory.mktemp("demo") / "runs", settings=SMALL, studies=STUDIES, console=console)
    return page, said.getvalue()


def test_every_figure_of_real_results_is_drawn(done: tuple[Path, str]) -> None:
    page, said = done
    assert "could not be drawn" not in said
    drawn = {path.stem for path in page.parent.glob("figures/*/*.png")}
    for name in set(FIGURES) - ABSENT:
        assert any(stem == name or stem.startswith(f"{name}_") for stem in drawn), name


def test_it_ends_with_the_page_and_the_three_numbers(done: tuple[Path, str]) -> None:
    page, said = done
    assert page.exists()
    assert str(page) in said.replace("\n", "")
    for words in ("accuracy", "sharpness of the result", "own data → all", "FedASAM + SWA", "one class"):
        assert words in said


def test_a_second_call_does_nothing_twice(done: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from analysis import runner

    def never(*_: object, **__: object) -> None:
        raise AssertionError("done before")

    monkeypatch.setattr("training.engine.run.train", never)
    monkeypatch.setattr(runner, "carry_out", never)
    out = done[0].parents[1]
    paths = demo.train(out, [*SMALL, "seed=0"], Console(quiet=True))
    assert len(paths) == 2
    demo.analyze(paths, STUDIES, Console(quiet=True))


def test_the_quick_demo_ends_with_a_page_of_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "training": {},
        "curvature": {**demo.QUICK_STUDIES["curvature"], "top": 1, "limit": 30},
        "surface": {**demo.QUICK_STUDIES["surface"], "steps": 3, "limit": 30},
        "local_global": {**demo.QUICK_STUDIES["local_global"], "clients": 1, "limit": 20, "tol": 0.1},
    }
    assert set(small) == set(demo.QUICK_STUDIES)
    monkeypatch.setattr(demo, "QUICK", (*demo.QUICK, "rounds.count=2"))
    monkeypatch.setattr(demo, "QUICK_STUDIES", small)
    console = Console(width=200, file=io.StringIO())
    page = demo.run_quickly(tmp_path / "quick", console=console)
    said = console.file.getvalue()
    assert f"Open {page} in a browser" in said
    assert said.count("one class") == 2
    assert {path.stem.partition("_")[0] for path in page.parent.glob("figures/*/*.png")} >= {"accuracy", "surface"}
