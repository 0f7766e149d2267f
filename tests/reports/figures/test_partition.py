"""Who holds what: bubbles at clients and classes, areas as counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reports.figures.partition import FIGURE, SHOWN
from reports.inputs.runs import Collection, Run, read_runs
from tests.reports.conftest import make_run
from training.data.dealing import ClientIndices
from training.data.partition import Partition, partition, save


def test_areas_are_counts(tmp_path: Path) -> None:
    labels = np.array([0, 0, 0, 0, 2, 2, 1])
    parts = (np.array([0, 1, 2, 3]), np.array([4, 5, 6]))
    runs = [make_run(tmp_path / name, name) for name in ("fedavg", "fedsam")]
    for run in runs:
        save(Partition("iid", {}, 0, ClientIndices.of(parts), labels), run / "partition.npz")
    found = read_runs(runs)
    np.testing.assert_array_equal(found.runs[0].class_counts, [[4, 0, 0], [0, 1, 2]])
    (drawn,) = FIGURE.draw(found.runs, found)  # one picture: the methods share the partition
    bubbles = drawn.canvas.axes[0].collections[0]
    np.testing.assert_allclose(bubbles.get_offsets(), [[0, 0], [1, 1], [1, 2]])
    areas = bubbles.get_sizes()
    np.testing.assert_allclose(areas / areas[0], [1, 0.25, 0.5])
    assert bubbles.get_gid() == "runs:fedavg fedsam"
    assert drawn.rows == [
        {"client": 0, "class": 0, "examples": 4},
        {"client": 1, "class": 1, "examples": 1},
        {"client": 1, "class": 2, "examples": 2},
    ]
    assert "7 training examples of 2 clients; 3 to 4 examples a client; 1.5 classes a client" in drawn.caption


def test_where_pixels_have_classes_examples_are_counted_by_user() -> None:
    counts = np.array([[1, 0], [0, 2]])
    run = Run(Path("run"), {}, [{"round": 1, "miou": 0.3}], class_counts=counts, class_names=("grey", "white"))
    found = Collection([run], {}, [])
    (drawn,) = FIGURE.draw(found.runs, found)
    assert drawn.canvas.axes[0].get_ylabel() == "user"
    assert drawn.rows[-1] == {"client": 1, "user": 1, "examples": 2}
    assert "1 users a client" in drawn.caption


def test_it_agrees_with_the_partition_that_training_deals(tmp_path: Path) -> None:
    dealt = partition("dirichlet_total", np.arange(900) % 10, 300, seed=0, alpha=0.3)
    run = make_run(tmp_path / "run", "fedavg")
    save(dealt, run / "partition.npz")
    found = read_runs([run])
    np.testing.assert_array_equal(found.runs[0].class_counts, dealt.histogram)
    (drawn,) = FIGURE.draw(found.runs, found)
    assert {row["client"] for row in drawn.rows} == set(range(0, 300, 3))
    assert f"{SHOWN} of them are shown, evenly spaced" in drawn.caption


def test_another_seed_is_another_picture(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(seed), "fedavg", seed=seed) for seed in (0, 1)]
    for seed, run in enumerate(runs):
        save(partition("iid", np.arange(40) % 4, 5, seed=seed), run / "partition.npz")
    found = read_runs(runs)
    assert [one.suffix for one in FIGURE.draw(found.runs, found)] == ["", "_1"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short"])
def test_damage_is_one_line(tmp_path: Path, content: bytes) -> None:
    run = make_run(tmp_path / "run", "fedavg")
    (run / "partition.npz").write_bytes(content)
    found = read_runs([run])
    assert [problem.partition(": ")[0].rpartition("/")[2] for problem in found.problems] == ["partition.npz"]
    assert FIGURE.draw(found.runs, found) == []
