"""Decay without an end: exponential, and with the inverse square root."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Real

from .._core.data import known
from .._core.hyperparam import Number, PositiveNumber, Steps
from .._core.phases import alike
from .._core.schedule import AbstractSchedule


class ExponentialDecay(AbstractSchedule):
    r"""Multiplied by a rate again and again: $v(t) = v_0 r^{t / \tau}$, or
    $v_0 r^{\lfloor t / \tau \rfloor}$ as a staircase.

    - `init_value`: $v_0$, the value at 0.
    - `transition_steps`: $\tau$, the number of steps in which the value changes by $r$, positive.
    - `decay_rate`: $r$, positive; above 1 for growth, which stops at 1.8e19 (the root of the
      largest float).
    - `staircase`: whether the value changes only at multiples of $\tau$. Static.
    - `end_value`: where the value stops, on the side to which it moves; `None`: it goes on.

    **Raises** `ValueError` if `end_value` is on the other side of `init_value`.

    >>> from eqopt import schedules
    >>> schedule = schedules.ExponentialDecay(1.0, transition_steps=4, decay_rate=0.25)
    >>> [round(float(schedule(t)), 6) for t in (0, 1, 2, 4, 5, 8)]
    [1.0, 0.707107, 0.5, 0.25, 0.176777, 0.0625]
    >>> stairs = schedules.ExponentialDecay(1.0, 4, 0.25, staircase=True, end_value=0.1)
    >>> [round(float(stairs(t)), 6) for t in (0, 3, 4, 7, 8, 9)]
    [1.0, 1.0, 0.25, 0.25, 0.1, 0.1]
    """

    init_value: Number
    transition_steps: Steps
    decay_rate: PositiveNumber
    staircase: bool = eqx.field(default=False, static=True)
    end_value: Number | None = None

    def __check_init__(self) -> None:
        start, rate, end = map(known, (self.init_value, self.decay_rate, self.end_value))
        if start is None or rate is None or end is None:
            return
        if (end - start) * start * (rate - 1) < 0:
            raise ValueError(
                "`ExponentialDecay(end_value=...)` must be on the side of `init_value` to which "
                f"the value moves; got init_value={start}, decay_rate={rate}, end_value={end}."
            )

    @property
    def steps(self) -> None:
        """No end."""

    def _value(self, count: Array) -> Array:
        start, rate = jnp.asarray(self.init_value, float), jnp.asarray(self.decay_rate, float)
        periods = _periods(count, self.transition_steps, self.staircase)
        value = start * rate ** jnp.minimum(periods, _most_periods(start, rate))
        if self.end_value is None:
            return value
        end = jnp.asarray(self.end_value, float)
        return jnp.clip(value, jnp.minimum(start, end), jnp.maximum(start, end))


def _periods(count: Real[Array, "*counts"], steps: Any, staircase: bool) -> Float[Array, "*counts"]:
    """`count / steps`, or the whole part of it; as after a long time where `steps` is a traced 0.
    Whole numbers are divided as such, so that no stair begins one count too late."""
    if not staircase:
        count, steps = count.astype(float), jnp.asarray(steps, float)
    count, steps = alike(count, steps)
    safe = jnp.where(steps > 0, steps, 1)
    periods = jnp.floor_divide(count, safe) if staircase else count / safe
    return jnp.where(steps > 0, periods.astype(float), jnp.iinfo(jnp.int32).max)


def _most_periods(start: Array, rate: Array) -> Array:
    """After how many periods a growing value is at the root of the largest float, so that its
    derivatives are finite too."""
    largest = jnp.log(jnp.finfo(start.dtype).max) / 2
    growth = jnp.log(jnp.where(rate > 1, rate, 2))
    most = jnp.maximum(largest - jnp.log(jnp.maximum(jnp.abs(start), 1)), 0) / growth
    return jax.lax.stop_gradient(jnp.where(rate > 1, most, jnp.inf))


class InverseSqrt(AbstractSchedule):
    r"""Decay with the inverse square root: $v(t) = v_0 / \sqrt{1 + t / \tau}$.

    After a warm-up of the same length, `Linear(0.0, peak, w) >> InverseSqrt(peak, w)`, the value
    is $v_0 \sqrt{w / t}$ at the count $t$ of the whole (Vaswani et al. 2017, equation 3).

    - `init_value`: $v_0$, the value at 0.
    - `transition_steps`: $\tau$, positive; the value is half of $v_0$ at $3 \tau$.

    >>> from eqopt import schedules
    >>> schedule = schedules.InverseSqrt(1.0, transition_steps=4)
    >>> [round(float(schedule(t)), 6) for t in (0, 1, 4, 5, 12, 60)]
    [1.0, 0.894427, 0.707107, 0.666667, 0.5, 0.25]
    """

    init_value: Number
    transition_steps: Steps

    @property
    def steps(self) -> None:
        """No end."""

    def _value(self, count: Array) -> Array:
        scale = jnp.asarray(self.transition_steps, float)
        ratio = count.astype(float) / jnp.where(scale > 0, scale, 1)
        return self.init_value * jnp.where(scale > 0, jax.lax.rsqrt(1 + ratio), 0)
