"""Settings of cells: which layer wins, which cells there are."""

from __future__ import annotations

import pytest

from reports.artefact import get_key, list_cells, merge
from tests.reports.artefacts.sample import ACCURACIES, COLUMNS, DRAWING, PAPER, ROWS


def test_a_cell_has_the_settings_of_its_row_and_column() -> None:
    cells = {(cell.row.label, getattr(cell.column, "label", "")): cell for cell in list_cells(PAPER, ACCURACIES)}
    assert list(cells) == [
        ("FedAvg", "α = 0"),
        ("FedAvg", "α = 1"),
        ("FedAvg", "all"),
        ("FedSAM", "α = 0"),
        ("FedSAM", "all"),
    ]
    settings = cells["FedSAM", "α = 0"].settings
    assert settings["algorithm"] == {"name": "fedsam", "rho": 0.1}
    assert (settings["partition.alpha"], settings["local.lr"]) == (0.0, 0.01)
    assert cells["FedAvg", "all"].settings["data.name"] == "landmarks"


def test_later_layers_win_and_a_table_replaces_its_single_settings() -> None:
    merged = merge(PAPER, ACCURACIES, {"local.lr": 0.1, "algorithm.rho": 1.0}, {"algorithm": {"name": "fedavg"}})
    assert merged["local.lr"] == 0.1
    assert merged["algorithm"] == {"name": "fedavg"}
    assert "algorithm.rho" not in merged


def test_keys_name_the_group() -> None:
    assert [get_key(one) for one in (*ROWS, *COLUMNS[:1])] == ["avg", "sam", "CIFAR10: α = 0"]


def test_a_drawing_has_no_cells_and_an_unknown_name_is_refused() -> None:
    assert list(list_cells(PAPER, DRAWING)) == []
    with pytest.raises(ValueError, match=r"artefact of sample: unknown 'tabel1'; did you mean 'table1'\?"):
        PAPER.find("tabel1")
