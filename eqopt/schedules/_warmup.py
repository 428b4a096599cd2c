"""Schedules that begin with a linear warm-up."""

from typing import Any, Literal

import equinox as eqx
from jaxtyping import Array

from .._core.arithmetic import safe_sqrt
from .._core.data import known
from .._core.hyperparam import Number, PositiveNumber, Steps, WarmupSteps
from .._core.phases import fraction, half_cosine, interpolate, joined, line
from .._core.schedule import AbstractSchedule, check_warmup
from ._basic import Constant
from ._cosine import CosineDecay
from ._decay import ExponentialDecay


class WarmupConstant(AbstractSchedule):
    r"""From one value to another in a straight line, then constant:
    $v(t) = v_0 + (v_1 - v_0) \min(t / w, 1)$.

    It is `Linear`, but for a warm-up that may be 0 steps long and for having no end: it comes last
    in a sequence.

    - `init_value`: $v_0$, the value at 0, unless `warmup_steps` is 0.
    - `peak_value`: $v_1$, the value at `warmup_steps` and after.
    - `warmup_steps`: $w$, at least 0. At 0 the schedule starts at the peak.

    >>> from eqopt import schedules
    >>> schedule = schedules.WarmupConstant(0.0, 1.0, warmup_steps=4)
    >>> [float(schedule(t)) for t in (0, 1, 2, 4, 5)]
    [0.0, 0.25, 0.5, 1.0, 1.0]
    """

    init_value: Number
    peak_value: Number
    warmup_steps: WarmupSteps

    @property
    def steps(self) -> None:
        """No end."""

    def _value(self, count: Array) -> Array:
        return interpolate(self.init_value, self.peak_value, fraction(count, self.warmup_steps))


class WarmupCosineDecay(AbstractSchedule):
    """A linear warm-up, then decay along half a cosine: `Linear` to `warmup_steps`, then
    `CosineDecay` to `steps`.

    - `init_value`: the value at 0, unless `warmup_steps` is 0.
    - `peak_value`: the value at `warmup_steps`.
    - `warmup_steps`: the length of the warm-up, at least 0. At 0 the schedule starts at the peak.
    - `steps`: the length of the whole, warm-up included (as optax's `decay_steps`), positive.
    - `end_value`: the value at `steps` and after.
    - `exponent`: of the decay, as in `CosineDecay`, positive.

    **Raises** `ValueError` if `warmup_steps` is not below `steps`.

    >>> from eqopt import schedules
    >>> schedule = schedules.WarmupCosineDecay(0.0, 1.0, warmup_steps=2, steps=6)
    >>> [round(float(schedule(t)), 6) for t in (0, 1, 2, 3, 4, 6, 7)]
    [0.0, 0.5, 1.0, 0.853553, 0.5, 0.0, 0.0]
    """

    init_value: Number
    peak_value: Number
    warmup_steps: WarmupSteps
    steps: Steps
    end_value: Number = 0.0
    exponent: PositiveNumber = 1.0

    def __check_init__(self) -> None:
        check_warmup(self, self.warmup_steps, self.steps, "steps")

    def _value(self, count: Array) -> Array:
        warmup = WarmupConstant(self.init_value, self.peak_value, self.warmup_steps)
        length = self.steps - self.warmup_steps
        decay = CosineDecay(self.peak_value, length, self.end_value, self.exponent)
        return joined([warmup, decay], [self.warmup_steps], count)


class WarmupExponentialDecay(AbstractSchedule):
    """A linear warm-up, then exponential decay: `Linear` to `warmup_steps`, then
    `ExponentialDecay`, whose steps are counted from there.

    - `init_value`: the value at 0, unless `warmup_steps` is 0.
    - `peak_value`: the value at `warmup_steps`.
    - `warmup_steps`: the length of the warm-up, at least 0. At 0 the schedule starts at the peak.
    - `transition_steps`: the number of steps in which the value changes by `decay_rate`, positive.
    - `decay_rate`: positive; above 1 for growth.
    - `staircase`: whether the value changes only at multiples of `transition_steps`. Static.
    - `end_value`: where the value stops, on the side to which it moves; `None`: it goes on.

    **Raises** `ValueError` if `end_value` is on the other side of `peak_value`.

    >>> from eqopt import schedules
    >>> schedule = schedules.WarmupExponentialDecay(0.0, 1.0, 2, 4, decay_rate=0.25)
    >>> [round(float(schedule(t)), 6) for t in (0, 1, 2, 3, 4, 6, 7)]
    [0.0, 0.5, 1.0, 0.707107, 0.5, 0.25, 0.176777]
    """

    init_value: Number
    peak_value: Number
    warmup_steps: WarmupSteps
    transition_steps: Steps
    decay_rate: PositiveNumber
    staircase: bool = eqx.field(default=False, static=True)
    end_value: Number | None = None

    def __check_init__(self) -> None:
        self._decay()

    @property
    def steps(self) -> None:
        """No end."""

    def _decay(self) -> ExponentialDecay:
        return ExponentialDecay(
            self.peak_value, self.transition_steps, self.decay_rate, self.staircase, self.end_value
        )

    def _value(self, count: Array) -> Array:
        warmup = WarmupConstant(self.init_value, self.peak_value, self.warmup_steps)
        return joined([warmup, self._decay()], [self.warmup_steps], count)


_SHAPES = {"linear": line, "cosine": half_cosine, "sqrt": safe_sqrt}


class WSD(AbstractSchedule):
    r"""A linear warm-up, a stable phase at the peak, and decay in the last steps (Hu et al. 2024,
    section 4.2; with these shapes Hägele et al. 2024, section 3):
    $v = v_1 + (v_2 - v_1) e(x)$ at the fraction $x$ of the decay, with $e(x) = x$ (linear),
    $\tfrac12 (1 - \cos \pi x)$ (cosine) or $\sqrt x$ (sqrt).

    - `init_value`: the value at 0, unless `warmup_steps` is 0.
    - `peak_value`: $v_1$, the value from `warmup_steps` to `steps - decay_steps`.
    - `warmup_steps`: the length of the warm-up, at least 0. At 0 the schedule starts at the peak.
    - `steps`: the length of the whole, positive.
    - `decay_steps`: the length of the decay, positive.
    - `end_value`: $v_2$, the value at `steps` and after.
    - `shape`: `"linear"`, `"cosine"` or `"sqrt"`. Static.

    **Raises** `ValueError` if warm-up and decay are longer than the whole.

    >>> from eqopt import schedules
    >>> schedule = schedules.WSD(0.0, 1.0, warmup_steps=2, steps=10, decay_steps=4)
    >>> [float(schedule(t)) for t in (0, 1, 2, 5, 6, 7, 10, 11)]
    [0.0, 0.5, 1.0, 1.0, 1.0, 0.75, 0.0, 0.0]
    """

    init_value: Number
    peak_value: Number
    warmup_steps: WarmupSteps
    steps: Steps
    decay_steps: Steps
    end_value: Number = 0.0
    shape: Literal["linear", "cosine", "sqrt"] = eqx.field(default="linear", static=True)

    def __check_init__(self) -> None:
        if self.shape not in _SHAPES:
            raise ValueError(
                f"`WSD(shape=...)` must be 'linear', 'cosine' or 'sqrt'; got {self.shape!r}."
            )
        check_warmup(self, self.warmup_steps, self.steps, "steps")
        warmup, decay, steps = map(known, (self.warmup_steps, self.decay_steps, self.steps))
        if warmup is None or decay is None or steps is None:
            return
        if warmup + decay > steps:
            raise ValueError(
                "`WSD(steps=...)` must be at least `warmup_steps + decay_steps`; got "
                f"steps={steps}, warmup_steps={warmup} and decay_steps={decay}."
            )

    def _decay(self, count: Array) -> Array:
        weight = _SHAPES[self.shape](fraction(count, self.decay_steps))
        return interpolate(self.peak_value, self.end_value, weight)

    def _value(self, count: Array) -> Array:
        warmup = WarmupConstant(self.init_value, self.peak_value, self.warmup_steps)
        stable: Any = self.steps - self.warmup_steps - self.decay_steps
        phases = [warmup, Constant(self.peak_value), self._decay]
        return joined(phases, [self.warmup_steps, stable], count)
