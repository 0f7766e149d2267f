"""MATLAB files written by scipy come back as they went, packed or not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.io import savemat

from training.data.formats.matlab import read_arrays

ARRAYS = {
    "X": np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5),
    "y": np.array([[10], [1], [9]], dtype=np.float64),
    "one": np.array([[7]], dtype=np.uint8),
    "wide": np.arange(6, dtype=np.int16).reshape(2, 3),
    "long": np.arange(5, dtype=np.int64)[None],
    "single": np.linspace(0, 1, 7, dtype=np.float32)[None],
    "none": np.zeros((0, 3)),
    "a_rather_long_name_of_a_variable": np.eye(3),
}


@pytest.mark.parametrize("packed", [False, True])
def test_arrays_come_back(tmp_path, packed):
    others = {"text": "words", "cells": np.array([1, "a"], dtype=object), "complex": np.array([[1j]])}
    savemat(tmp_path / "x.mat", {**ARRAYS, **others}, do_compression=packed)
    found = read_arrays(tmp_path / "x.mat")
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype or name == "y"


def test_other_files_are_refused(tmp_path):
    savemat(tmp_path / "old.mat", {"x": np.eye(2)}, format="4")
    (tmp_path / "empty.mat").write_bytes(b"")
    (tmp_path / "text.mat").write_bytes(b"x" * 500)
    for name in ("old", "empty", "text"):
        with pytest.raises(ValueError, match="not a little-endian MATLAB 5 file"):
            read_arrays(tmp_path / f"{name}.mat")
