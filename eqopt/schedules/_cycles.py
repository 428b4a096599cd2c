"""Up and down once, or again and again: one-cycle schedules and warm restarts."""

from itertools import pairwise
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._core.data import known
from .._core.hyperparam import Number, Portion, PositiveNumber, Steps, WarmupSteps
from .._core.phases import half_cosine, joined, line, through, total
from .._core.schedule import AbstractSchedule, check_warmup
from ._warmup import WarmupCosineDecay


class LinearOneCycle(AbstractSchedule):
    """Up to the peak, down again as far, and further down at the end, in three straight lines
    (Smith and Topin 2018).

    Where `pct_start * steps` is not whole, the peak lies between two counts; optax rounds it down.

    - `steps`: the length of the whole, positive.
    - `peak_value`: the value at `pct_start * steps`.
    - `pct_start`: the part of `steps` in which the value rises, in [0, 1]. At 0 the schedule
      starts at the peak.
    - `pct_final`: the part of `steps` after which the value is what it was at 0, in [0, 1].
    - `div_factor`: the value at 0 is `peak_value / div_factor`; positive.
    - `final_div_factor`: the value at `steps` and after is
      `peak_value / (div_factor * final_div_factor)`: 4e-6 for a peak of 1 and the defaults;
      positive.

    **Raises** `ValueError` if `pct_start` is above `pct_final`.

    >>> from eqopt import schedules
    >>> schedule = schedules.LinearOneCycle(20, 1.0)
    >>> [round(float(schedule(t)), 6) for t in (0, 3, 6, 7, 17, 18, 20, 21)]
    [0.04, 0.52, 1.0, 0.912727, 0.04, 0.026668, 4e-06, 4e-06]
    """

    steps: Steps
    peak_value: Number
    pct_start: Portion = 0.3
    pct_final: Portion = 0.85
    div_factor: PositiveNumber = 25.0
    final_div_factor: PositiveNumber = 1e4

    def __check_init__(self) -> None:
        start, final = known(self.pct_start), known(self.pct_final)
        if start is not None and final is not None and start > final:
            raise ValueError(
                "`LinearOneCycle(pct_start=...)` must be at most `pct_final`; got "
                f"pct_start={start} and pct_final={final}."
            )

    def _value(self, count: Array) -> Array:
        low = self.peak_value / self.div_factor
        values = (low, self.peak_value, low, low / self.final_div_factor)
        at = (0, self.pct_start * self.steps, self.pct_final * self.steps, self.steps)
        return through(values, [end - start for start, end in pairwise(at)], count, line)


class CosineOneCycle(AbstractSchedule):
    """Up to the peak and down to almost nothing, each along half a cosine (Smith and Topin 2018).

    Where `pct_start * steps` is not whole, the peak lies between two counts; optax rounds it down.

    - `steps`: the length of the whole, positive.
    - `peak_value`: the value at `pct_start * steps`.
    - `pct_start`: the part of `steps` in which the value rises, in [0, 1]. At 0 the schedule
      starts at the peak.
    - `div_factor`: the value at 0 is `peak_value / div_factor`; positive.
    - `final_div_factor`: the value at `steps` and after is
      `peak_value / (div_factor * final_div_factor)`: 4e-6 for a peak of 1 and the defaults;
      positive.

    >>> from eqopt import schedules
    >>> schedule = schedules.CosineOneCycle(20, 1.0)
    >>> [round(float(schedule(t)), 6) for t in (0, 3, 6, 7, 13, 20, 21)]
    [0.04, 0.52, 1.0, 0.987464, 0.500002, 4e-06, 4e-06]
    """

    steps: Steps
    peak_value: Number
    pct_start: Portion = 0.3
    div_factor: PositiveNumber = 25.0
    final_div_factor: PositiveNumber = 1e4

    def _value(self, count: Array) -> Array:
        low = self.peak_value / self.div_factor
        top = self.pct_start * self.steps
        values = (low, self.peak_value, low / self.final_div_factor)
        return through(values, [top, self.steps - top], count, half_cosine)


class SGDR(AbstractSchedule):
    r"""Cosine decay with warm restarts (Loshchilov and Hutter 2017, equation 5): `cycles` times
    `WarmupCosineDecay`, cycle $i$ with length $T_0 m^i$ and peak $v_0 q^i$.

    Cycles that have nothing in common are joined with `>>`.

    - `peak_value`: $v_0$, the peak of the first cycle.
    - `cycle_steps`: $T_0$, the length of the first cycle, its warm-up included, positive.
    - `cycles`: the number of cycles, at least 1. Static.
    - `length_factor`: $m$, by which each cycle is longer than the one before, positive. Restarts
      are at whole counts if it is whole.
    - `peak_factor`: $q$, by which each peak is multiplied, positive.
    - `warmup_steps`: the length of the linear warm-up of each cycle, at least 0. At 0 a cycle
      starts at its peak.
    - `init_value`: the value from which each warm-up starts.
    - `end_value`: the value at which each cycle ends, and which stays after the last.

    **Raises** `ValueError` if `warmup_steps` is not below the length of each cycle.

    >>> from eqopt import schedules
    >>> schedule = schedules.SGDR(1.0, cycle_steps=4, cycles=2, length_factor=2, peak_factor=0.5)
    >>> [round(float(schedule(t)), 6) for t in (0, 2, 3, 4, 5, 8, 12, 13)]
    [1.0, 0.5, 0.146447, 0.5, 0.48097, 0.25, 0.0, 0.0]
    """

    peak_value: Number
    cycle_steps: Steps
    cycles: int = eqx.field(static=True)
    length_factor: PositiveNumber = 1
    peak_factor: PositiveNumber = 1.0
    warmup_steps: WarmupSteps = 0
    init_value: Number = 0.0
    end_value: Number = 0.0

    def __check_init__(self) -> None:
        if isinstance(self.cycles, bool) or not isinstance(self.cycles, int) or self.cycles < 1:
            raise ValueError(f"`SGDR(cycles=...)` must be an int of at least 1; got {self.cycles}.")
        for length in self._lengths():
            check_warmup(self, self.warmup_steps, length, "cycle_steps * length_factor**i")

    @property
    def steps(self) -> Any:
        """The sum of the lengths of all cycles."""
        return total(self._lengths())

    def _lengths(self) -> list[Any]:
        return _geometric(self.cycle_steps, self.length_factor, self.cycles)

    def _value(self, count: Array) -> Array:
        lengths = self._lengths()
        peaks = _geometric(self.peak_value, self.peak_factor, self.cycles)
        cycles = [
            WarmupCosineDecay(self.init_value, peak, self.warmup_steps, length, self.end_value)
            for peak, length in zip(peaks, lengths, strict=True)
        ]
        return joined(cycles, lengths[:-1], count)


def _geometric(first: Any, factor: Any, number: int) -> list[Any]:
    """`first * factor**i`: of numbers, whole where they are; else as floats, which don't wrap."""
    if not (isinstance(first, int | float) and isinstance(factor, int | float)):
        first, factor = jnp.asarray(first, float), jnp.asarray(factor, float)
    terms = [first]
    for _ in range(number - 1):
        terms.append(terms[-1] * factor)
    return terms
