"""One colour, marker and kind of line per method, the same in every figure, safe for colour-blind readers and in grey.

>>> assign_looks(["fedavg", "my method"])["fedavg"]
Look(color='#0072B2', marker='o', line='-')
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from landscape.plotting.style import OKABE_ITO

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STEP = 3  # a colour that is used again has another marker, because points have no kind of line
LINES = ("-", "--", "-.", ":")
# methods that most figures show keep their colour whatever else is in the picture
FIXED = ("fedavg", "fedsam", "fedasam + SWA", "fedgloss", "fedasam", "fedvssam", "fedfsa", "fedsol")


@dataclass(frozen=True)
class Look:
    """How a method is drawn.

    color: as a hexadecimal code.
    marker, line: matplotlib's codes of a marker and of a kind of line.
    """

    color: str
    marker: str
    line: str


def assign_looks(names: Iterable[str]) -> dict[str, Look]:
    """Give every method a look, the same in every figure of a report on these methods.

    names: of methods. The result has them in the order of legends: those of FIXED first, then by alphabet.
    """
    known = list(dict.fromkeys(names))
    order = [*(name for name in FIXED if name in known), *sorted(name for name in known if name not in FIXED)]
    taken = {FIXED.index(name) for name in known if name in FIXED}
    free = iter(number for number in range(len(FIXED) + len(known)) if number not in taken)
    found = {}
    for name in order:
        found[name] = _make_look(FIXED.index(name) if name in FIXED else next(free))
    return found


def spread_looks(names: Sequence[str]) -> dict[str, Look]:
    """Give every name a colour and a marker of its own, in their order: variants of one method.

    >>> [look.color for look in spread_looks(["ρ = 0.5", "ρ = 1"]).values()] == list(OKABE_ITO[:2])
    True
    """
    return {name: _make_look(number) for number, name in enumerate(names)}


def _make_look(number: int) -> Look:
    cycle, place = divmod(number, len(OKABE_ITO))
    return Look(OKABE_ITO[place], MARKERS[(place + STEP * cycle) % len(MARKERS)], LINES[cycle % len(LINES)])
