"""Values at given counts: steps from one to the next, or lines and cosines between them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._core.hyperparam import Boundaries, Numbers, Steps
from .._core.phases import alike, half_cosine, line, through
from .._core.schedule import AbstractSchedule

_EASES = {"linear": line, "cosine": half_cosine}


class PiecewiseConstant(AbstractSchedule):
    """One value until the first boundary, the next from there on, and so forth.

    optax and PyTorch's `MultiStepLR` have factors in place of values.

    - `values`: the values, in order.
    - `boundaries`: the counts at which the second, third, ... value begins: positive and
      increasing, one fewer than the values.
    - `steps`: how long it lasts in a sequence, positive; `None` without an end.

    **Raises** `ValueError` if the number or the order of the boundaries is wrong.

    >>> from eqopt import schedules
    >>> schedule = schedules.PiecewiseConstant([1.0, 0.5, 0.25], [2, 5])
    >>> [float(schedule(t)) for t in (0, 1, 2, 3, 4, 5, 6)]
    [1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25]
    """

    values: Numbers
    boundaries: Boundaries
    steps: Steps | None = None

    def __check_init__(self) -> None:
        _check_boundaries(self, self.values, self.boundaries)

    def _value(self, count: Array) -> Array:
        value = jnp.asarray(self.values[0], float)
        for boundary, after in zip(self.boundaries, self.values[1:], strict=True):
            now, start = alike(count, boundary)
            value = jnp.where(now >= start, jnp.asarray(after, float), value)
        return value


class PiecewiseInterpolate(AbstractSchedule):
    r"""From each value to the next between boundaries $b$:
    $v(t) = v_i + (v_{i+1} - v_i) e((t - b_i) / (b_{i+1} - b_i))$ with $b_0 = 0$, and
    $e(x) = x$ (linear) or $e(x) = \tfrac12 (1 - \cos \pi x)$ (cosine).

    - `values`: the values at 0 and at each boundary.
    - `boundaries`: the counts at which the second, third, ... value is reached: positive and
      increasing, one fewer than the values. After the last one the value stays.
    - `kind`: `"linear"` or `"cosine"`. Static.

    **Raises** `ValueError` if the number or the order of the boundaries is wrong.

    >>> from eqopt import schedules
    >>> schedule = schedules.PiecewiseInterpolate([0.0, 1.0, 0.5], [2, 6])
    >>> [float(schedule(t)) for t in (0, 1, 2, 3, 4, 6, 7)]
    [0.0, 0.5, 1.0, 0.875, 0.75, 0.5, 0.5]
    """

    values: Numbers
    boundaries: Boundaries
    kind: Literal["linear", "cosine"] = eqx.field(default="linear", static=True)

    def __check_init__(self) -> None:
        _check_boundaries(self, self.values, self.boundaries)
        if not self.boundaries:
            raise ValueError("`PiecewiseInterpolate(values=...)` must have two values at least.")
        if self.kind not in _EASES:
            raise ValueError(
                f"`PiecewiseInterpolate(kind=...)` must be 'linear' or 'cosine'; got {self.kind!r}."
            )

    @property
    def steps(self) -> Any:
        """The last boundary."""
        return self.boundaries[-1]

    def _value(self, count: Array) -> Array:
        lengths = [end - start for start, end in pairwise((0, *self.boundaries))]
        return through(self.values, lengths, count, _EASES[self.kind])


def _check_boundaries(
    schedule: AbstractSchedule, values: Sequence[Any], boundaries: Sequence[Any]
) -> None:
    if len(values) != len(boundaries) + 1:
        raise ValueError(
            f"`{type(schedule).__name__}(boundaries=...)` must have one boundary fewer than there "
            f"are values; got {len(boundaries)} boundaries for {len(values)} values."
        )
