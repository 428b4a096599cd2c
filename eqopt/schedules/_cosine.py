"""Decay along half a cosine."""

from jaxtyping import Array

from .._core.arithmetic import safe_power
from .._core.hyperparam import Number, PositiveNumber, Steps
from .._core.phases import fraction, half_cosine, interpolate
from .._core.schedule import AbstractSchedule


class CosineDecay(AbstractSchedule):
    r"""From one value to another along half a cosine (Loshchilov and Hutter 2017, equation 5):
    $v(t) = v_1 + (v_0 - v_1) \left(\tfrac12 (1 + \cos(\pi \min(t / T, 1)))\right)^p$.

    The end is reached at `steps`, not one before. optax's `alpha` is `end_value / init_value`.

    - `init_value`: $v_0$, the value at 0.
    - `steps`: $T$, positive.
    - `end_value`: $v_1$, the value at `steps` and after.
    - `exponent`: $p$, positive.

    >>> from eqopt import schedules
    >>> schedule = schedules.CosineDecay(1.0, steps=4)
    >>> [round(float(schedule(t)), 6) for t in (0, 1, 2, 3, 4, 5)]
    [1.0, 0.853553, 0.5, 0.146447, 0.0, 0.0]
    """

    init_value: Number
    steps: Steps
    end_value: Number = 0.0
    exponent: PositiveNumber = 1.0

    def _value(self, count: Array) -> Array:
        cosine = half_cosine(1 - fraction(count, self.steps))
        return interpolate(self.end_value, self.init_value, safe_power(cosine, self.exponent))
