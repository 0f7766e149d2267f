"""Bars: silent where nobody looks, shown where asked for, one at a time."""

from __future__ import annotations

import inspect

import pytest
import torch

import landscape
from landscape import progress
from landscape.progress import Bar, with_bar, without_bars


@with_bar("inner")
def inner(*, progress=None):
    if progress is not None:
        progress(1, 1)
    return progress is not None


@with_bar("outer")
def outer(*, progress=None):
    return progress is not None, inner()


@pytest.fixture
def wanted():
    yield landscape.show_progress
    landscape.show_progress(None)


def test_nothing_is_shown_where_there_is_no_terminal(capfd):
    assert not inner()
    assert capfd.readouterr().err == ""


def test_a_bar_is_shown_where_asked_for_but_none_inside_another(wanted):
    wanted(True)
    assert outer() == (True, False)
    assert inner()
    with without_bars():
        assert not inner()
    wanted(False)
    assert not inner()


def test_a_callback_replaces_the_bar(wanted):
    wanted(True)
    seen = []
    assert outer(progress=lambda *done: seen.append(done)) == (True, True)
    assert seen == []  # of the outer function, which reports nothing


def test_short_work_shows_nothing_and_long_work_a_line(capfd):
    bar = Bar("work", delay=100)
    bar.move(1, 2)
    bar.close()
    assert capfd.readouterr().err == ""
    bar = Bar("work", delay=0)
    bar.move(1, 2)
    bar.move(2, 2)
    bar.close()
    assert capfd.readouterr().err == "\rwork 1/2\rwork 2/2\n"


def test_every_long_computation_has_a_bar(monkeypatch, wanted):
    public = [getattr(landscape, name) for name in landscape.__all__]
    long = [one for one in public if inspect.isfunction(one) and "progress" in inspect.signature(one).parameters]
    assert len(long) >= 10
    assert all(hasattr(one, "__wrapped__") for one in long)
    wanted(True)
    seen = []
    monkeypatch.setattr(progress.Bar, "move", lambda self, done, total: seen.append((self.name, done, total)))
    landscape.eigenpairs(landscape.MatrixOperator(torch.diag(torch.tensor([3.0, 2.0, 1.0]))), k=1)
    assert seen[0][0] == "eigenpairs"
