"""Messages quote files and command lines, which may hold anything: what is printed stays readable and short."""

from __future__ import annotations

import os

from training.console.messages import LONGEST, printable


def test_letters_that_act_on_a_terminal_are_spelled_out():
    assert printable("a\x1b[31mb\x00c\rd\u2028") == "a\\x1b[31mb\\x00c\\rd\\u2028"


def test_names_that_are_not_utf8_show_their_bytes():
    assert printable(os.fsdecode(b"caf\xe9")) == "caf\\xe9"


def test_what_is_fit_to_be_printed_stays_as_it_is():
    assert printable("café [red] ± 0.1\n  second line") == "café [red] ± 0.1\n  second line"


def test_an_endless_line_is_cut_in_its_middle():
    found = printable("begin" + "x" * 10**6 + "end\nnext")
    first, second = found.split("\n")
    assert len(first) < LONGEST + 10
    assert first.startswith("begin")
    assert first.endswith("end")
    assert second == "next"
