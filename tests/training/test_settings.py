"""The one settings mechanism: what it refuses, and in which words."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import Field

from training.settings import Count, Names, NonNegative, build, describe, replace, settings, values


@settings
class Radius:
    rho: NonNegative = Field(0.05, description="radius of the perturbation")
    steps: Count | None = Field(None, description="steps; none: one")
    scope: Literal["weights", "all"] = Field("weights", description="which tensors")
    names: Names = Field((), description="some names")


@settings
class Nothing:
    """No settings at all."""


def test_values_are_kept_in_their_types():
    made = build(Radius, {"rho": 1, "names": ["a", "b"]}, "sam")
    assert values(made) == {"rho": 1.0, "steps": None, "scope": "weights", "names": ("a", "b")}
    assert isinstance(made.rho, float)
    assert replace(made, {"steps": 3}, "sam").steps == 3
    assert replace(made, {"steps": 3}, "sam").rho == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rho": -1.0}, r"sam: rho must be at least 0, got -1.0"),
        ({"rho": "big"}, r'sam: rho must be a number, got "big"'),
        ({"rho": float("inf")}, r"sam: rho must be finite, got inf"),
        ({"rho": True}, r"sam: rho must be a number, got true"),
        ({"steps": 0}, r"sam: steps must be at least 1, got 0"),
        ({"steps": 1.5}, r"sam: steps must be a whole number, got 1.5"),
        ({"scope": "some"}, r"sam: scope must be 'weights' or 'all', got \"some\"$"),
        ({"scope": "wieghts"}, r"sam: scope must be 'weights' or 'all', got \"wieghts\"; did you mean 'weights'\?"),
        ({"roh": 0.1}, r"setting of sam: unknown 'roh'; did you mean 'rho'\? Known: names, rho, scope, steps"),
        ({"names": "a"}, r'sam: names must be a list, got "a"'),
    ],
)
def test_mistakes_are_told_in_words(given, message):
    with pytest.raises(ValueError, match=message):
        build(Radius, given, "sam")
    with pytest.raises(ValueError, match=message):
        replace(Radius(), given, "sam")


def test_all_mistakes_are_told_at_once():
    with pytest.raises(ValueError, match=r"rho must be.*\nsam: scope must be"):
        build(Radius, {"rho": -1.0, "scope": 3}, "sam")


def test_a_class_without_settings_says_so():
    with pytest.raises(ValueError, match="plain takes no settings, got 'rho'; leave it out"):
        build(Nothing, {"rho": 1.0}, "plain")


def test_settings_are_described():
    found = {about.name: about for about in describe(Radius)}
    assert found["rho"].allowed == "a number, at least 0"
    assert found["steps"].allowed == "a whole number, at least 1"
    assert found["scope"].allowed == "weights or all"
    assert found["rho"].description == "radius of the perturbation"
    assert found["rho"].default == 0.05
