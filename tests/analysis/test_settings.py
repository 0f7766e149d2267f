"""Every setting of every study is explained, checked, and listed."""

from __future__ import annotations

import dataclasses
import io
from typing import get_type_hints

import pytest
from rich.console import Console

from analysis.catalog import STUDIES
from analysis.command import settings_listed
from analysis.study import about, choose_settings
from landscape.cli import list_

EVERY = [(study, field) for study in STUDIES for field in about(STUDIES[study].settings)]


@pytest.mark.parametrize(("study", "name"), EVERY, ids=[f"{study}.{name}" for study, name in EVERY])
def test_every_setting_is_explained(study: str, name: str) -> None:
    said = about(STUDIES[study].settings)[name]
    assert len(said.text) > 5
    optional = type(None) in getattr(get_type_hints(STUDIES[study].settings)[name], "__args__", ())
    assert bool(said.absent) == optional  # what none means, where none is allowed


@pytest.mark.parametrize("study", STUDIES)
def test_the_listing_names_them_all(study: str) -> None:
    console = Console(width=400, file=io.StringIO(), record=True)
    console.print(settings_listed(study))
    text = console.export_text()
    fields = dataclasses.fields(STUDIES[study].settings)
    for field in fields:
        assert f"\n{field.name} " in text
    assert ("a list of:" in text) == any(isinstance(field.default, tuple) for field in fields)


def test_limit_means_the_same_in_every_study() -> None:
    texts = {about(study.settings)["limit"] for study in STUDIES.values() if "limit" in about(study.settings)}
    assert len(texts) == 1


@pytest.mark.parametrize("study", [name for name in STUDIES if "limit" in about(STUDIES[name].settings)])
def test_no_examples_are_refused_everywhere(study: str) -> None:
    with pytest.raises(ValueError, match="limit must be a whole number, at least 1; got 0"):
        choose_settings(STUDIES[study], {"limit": 0})


def test_words_that_are_not_known_are_named() -> None:
    with pytest.raises(ValueError, match="splits: unknown 'tets'; did you mean 'test'"):
        choose_settings(STUDIES["surface"], {"splits": ["train", "tets"]})
    with pytest.raises(ValueError, match="study: unknown 'curvatur'; did you mean 'curvature'"):
        settings_listed("curvatur")


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    list_("studies", "curvature")
    assert "how many of the largest eigenvalues" in capsys.readouterr().out
    with pytest.raises(ValueError, match="only studies have a list of settings each"):
        list_("models", "curvature")
