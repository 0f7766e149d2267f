"""Every method has formulas, and they speak of every setting."""

from __future__ import annotations

import re

import pytest
from docutils.utils.math import latex2mathml

from training.console.formulas import FORMULAS, collect_formulas
from training.methods.catalog import ALGORITHMS
from training.settings import fields

RULES = dict.fromkeys(type(rule) for method in ALGORITHMS.values() for rule in method.slots.values())


def test_every_rule_of_the_catalog_has_formulas_and_no_other():
    assert {kind.__name__ for kind in FORMULAS} == {kind.__name__ for kind in RULES}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_method_says_how_a_step_is_made_and_how_the_server_moves(name):
    found = collect_formulas(ALGORITHMS[name])
    assert any(line.startswith("u =") for line in found.step)
    assert any(r"\tilde g =" in line for line in found.step)
    assert sum(line.startswith("w^{t+1} =") for line in found.server) == 1


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
def test_formulas_can_be_drawn_and_speak_of_every_setting(kind):
    one = FORMULAS[kind]
    lines = (*one.sent, *one.step, *one.client, *one.server)
    for line in (*lines, *re.findall(r"\$(.+?)\$", one.note)):
        assert latex2mathml.tex2mathml(line).startswith("<math")
    text = re.sub(r"[\\{}_]", "", " ".join((*lines, one.note)))
    for setting in fields(kind):
        assert re.search(rf"{setting.replace('_', '')}(?![a-z])", text), setting
