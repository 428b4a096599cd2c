"""Constant, linear and polynomial schedules, and plain functions as schedules."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._core.arithmetic import safe_power
from .._core.hyperparam import Number, PositiveNumber, Steps
from .._core.phases import fraction, interpolate
from .._core.schedule import AbstractSchedule


class Constant(AbstractSchedule):
    """The same value at every count.

    - `value`: any number.
    - `steps`: how long it lasts in a sequence, positive; `None` without an end.

    >>> from eqopt import schedules
    >>> schedule = schedules.Constant(0.5)
    >>> [float(schedule(t)) for t in (0, 1, 1000)]
    [0.5, 0.5, 0.5]
    """

    value: Number
    steps: Steps | None = None

    def _value(self, count: Array) -> Array:
        return jnp.asarray(self.value, float)


class Linear(AbstractSchedule):
    r"""From one value to another in a straight line:
    $v(t) = v_0 + (v_1 - v_0) \min(t / T, 1)$.

    - `init_value`: $v_0$, the value at 0.
    - `end_value`: $v_1$, the value at `steps` and after.
    - `steps`: $T$, positive.

    >>> from eqopt import schedules
    >>> schedule = schedules.Linear(0.0, 1.0, steps=4)
    >>> [float(schedule(t)) for t in (0, 1, 2, 4, 5)]
    [0.0, 0.25, 0.5, 1.0, 1.0]
    """

    init_value: Number
    end_value: Number
    steps: Steps

    def _value(self, count: Array) -> Array:
        return interpolate(self.init_value, self.end_value, fraction(count, self.steps))


class Polynomial(AbstractSchedule):
    r"""From one value to another along a power:
    $v(t) = v_1 + (v_0 - v_1) (1 - \min(t / T, 1))^p$.

    - `init_value`: $v_0$, the value at 0.
    - `end_value`: $v_1$, the value at `steps` and after.
    - `power`: $p$, positive; 1 is a straight line.
    - `steps`: $T$, positive.

    >>> from eqopt import schedules
    >>> schedule = schedules.Polynomial(1.0, 0.0, power=2, steps=4)
    >>> [float(schedule(t)) for t in (0, 1, 2, 4, 5)]
    [1.0, 0.5625, 0.25, 0.0, 0.0]
    """

    init_value: Number
    end_value: Number
    power: PositiveNumber
    steps: Steps

    def _value(self, count: Array) -> Array:
        left = safe_power(1 - fraction(count, self.steps), self.power)
        return interpolate(self.end_value, self.init_value, left)


class FromFunction(AbstractSchedule):
    """A plain function of the count as a schedule.

    - `fn`: maps a count, an int32 scalar or an array of them, to the value; traceable. Static, so
      it is compared by identity: define it at module level.
    - `steps`: how long it lasts in a sequence, positive; `None` without an end.

    >>> from eqopt import schedules
    >>> schedule = schedules.FromFunction(lambda t: 1 / (1 + t))
    >>> [float(schedule(t)) for t in (0, 1, 3)]
    [1.0, 0.5, 0.25]
    """

    fn: Callable[[Array], Any] = eqx.field(static=True)
    steps: Steps | None = None

    def __check_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(f"`FromFunction(fn=...)` must be a function; got {self.fn!r}.")

    def _value(self, count: Array) -> Array:
        return self.fn(count)
