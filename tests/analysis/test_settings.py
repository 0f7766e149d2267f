"""Every setting of every study is explained, checked, and listed."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from analysis.catalog import STUDIES
from analysis.command import list_settings
from landscape.cli.read import list_
from training.settings import build, describe, fields

EVERY = [(study, about) for study in STUDIES for about in describe(STUDIES[study].settings)]
LIMITED = [name for name in STUDIES if "limit" in fields(STUDIES[name].settings)]


@pytest.mark.parametrize(("study", "about"), EVERY, ids=[f"{study}.{about.name}" for study, about in EVERY])
def test_every_setting_is_explained(study: str, about) -> None:
    assert len(about.description) > 5
    assert about.allowed
    if about.default is None:
        assert "none:" in about.description  # what none means, where none is allowed


@pytest.mark.parametrize("study", STUDIES)
def test_the_listing_names_them_all(study: str) -> None:
    console = Console(width=400, file=io.StringIO(), record=True)
    console.print(list_settings(study))
    text = console.export_text()
    for name in fields(STUDIES[study].settings):
        assert f"\n{name} " in text


def test_limit_means_the_same_in_every_study() -> None:
    texts = {about.description for _, about in EVERY if about.name == "limit"}
    assert len(texts) == 1


@pytest.mark.parametrize("study", LIMITED)
def test_no_examples_are_refused_everywhere(study: str) -> None:
    with pytest.raises(ValueError, match=f"{study}: limit must be at least 1, got 0"):
        build(STUDIES[study].settings, {"limit": 0}, study)


def test_words_that_are_not_known_are_named() -> None:
    with pytest.raises(ValueError, match="splits: unknown 'tets'; did you mean 'test'"):
        build(STUDIES["surface"].settings, {"splits": ["train", "tets"]}, "surface")
    with pytest.raises(ValueError, match="study: unknown 'curvatur'; did you mean 'curvature'"):
        list_settings("curvatur")


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    list_("studies", "curvature")
    assert "how many of the largest eigenvalues" in capsys.readouterr().out
    with pytest.raises(ValueError, match="only studies take a name"):
        list_("models", "curvature")
