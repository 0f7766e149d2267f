"""One scale for several panels: limits, levels and ticks in plain numbers; what is clipped is said on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

Array = NDArray[np.float64]
Extend = Literal["neither", "min", "max", "both"]
WIDE = 10**1.5  # highest to lowest: from here on a scale is logarithmic
DEEP = 1e4  # as far as a logarithmic scale goes down from its top; lower values are clipped
FAR = 100.0  # times the median: higher values are clipped, or a diverged corner would flatten all else
STEPS = MaxNLocator(10, steps=[1, 2, 5, 10])
FEW, MANY = (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)  # levels in a decade


@dataclass(frozen=True, eq=False)
class Scale:
    """The range of values that is drawn, from its first level to its last; values beyond are drawn at its ends."""

    levels: Array
    log: bool = False
    below: bool = False
    above: bool = False

    @property
    def low(self) -> float:
        return float(self.levels[0])

    @property
    def high(self) -> float:
        return float(self.levels[-1])

    @property
    def extend(self) -> Extend:
        """As colour bars call it."""
        if self.below:
            return "both" if self.above else "min"
        return "max" if self.above else "neither"

    def shown(self, values: Array) -> Array:
        """Clip values for display; infinity counts as above, NaN stays missing."""
        return np.clip(values, self.low, self.high)

    def heights(self, values: Array) -> Array:
        """Turn values into coordinates of a linear axis."""
        return np.log10(self.shown(values)) if self.log else self.shown(values)

    def ticks(self, most: int = 8) -> tuple[Array, list[str]]:
        """Choose levels as ticks, 1, 2 and 5 or whole decades where all are too many; returns them with labels."""
        values = self.levels
        for steps in (FEW, FEW[:1]) if self.log else ():
            plain = values[[float(f"{value:e}".partition("e")[0]) in steps for value in values]]
            values = plain if len(values) > most and len(plain) > 2 else values
        values = values[:: -(-len(values) // most)]
        if self.above and values[-1] != self.high:
            values = np.append(values, self.high)
        if self.below and values[0] != self.low:
            values = np.insert(values, 0, self.low)
        texts = [f"{value:g}" for value in values]
        if self.above:
            texts[-1] = f"> {texts[-1]}"
        if self.below:
            texts[0] = f"< {texts[0]}"
        return values, texts

    def describe(self) -> str:
        """Describe for a caption what is clipped; empty where nothing is."""
        ends = [f"below {self.low:g}"] * self.below + [f"above {self.high:g}"] * self.above
        return f"clipped for display {' and '.join(ends)}" if ends else ""


def share_scale(values: Iterable[Array]) -> Scale:
    """Make one scale for several arrays, logarithmic where they span more than a decade and a half."""
    together = np.concatenate([np.ravel(one) for one in values])
    finite = together[np.isfinite(together)]
    positive = finite[finite > 0]
    if not len(positive) or finite.min() < 0:
        return make_linear_scale([together])
    high = min(float(finite.max()), FAR * float(np.median(positive)))
    low = max(float(positive.min()), 10 ** np.ceil(np.log10(high / DEEP)))  # a whole decade, where it clips
    if high / low <= WIDE:
        return _seen(STEPS.tick_values(float(finite.min()), high), together)
    return _seen(choose_decades(low, high, FEW if high / low > 3e3 else MANY), together, log=True)


def make_linear_scale(values: Iterable[Array]) -> Scale:
    """Make one linear scale for several arrays."""
    together = np.concatenate([np.ravel(one) for one in values])
    finite = together[np.isfinite(together)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    return _seen(STEPS.tick_values(low, high), together)


def choose_decades(low: float, high: float, steps: Sequence[float] = FEW) -> Array:
    """Choose plain numbers in equal steps of the logarithm, from one at or below low to one at or above high."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    all_ = np.array([float(f"{step}e{power}") for power in powers for step in steps])
    first, last = np.searchsorted(all_, low * (1 + 1e-9), "right") - 1, np.searchsorted(all_, high * (1 - 1e-9))
    return all_[max(first, 0) : last + 1]


def _seen(levels: Sequence[float] | Array, values: Array, log: bool = False) -> Scale:
    """A scale that knows what lies beyond it."""
    return Scale(np.asarray(levels), log, bool((values < levels[0]).any()), bool((values > levels[-1]).any()))
