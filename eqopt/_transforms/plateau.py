"""Reducing the learning rate when a measured value no longer improves."""

from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._core.arithmetic import increment
from .._core.elementwise import AbstractElementwise
from .._core.hyperparam import AtLeastOne, NonNegative, Numeric, Range, Schedule, UnitInterval
from .._core.leafwise import Stage
from .._core.norms import zero_of
from .._core.types import Count, Leaf, Params, Updates

_LARGEST = 2**30  # a whole float32 that fits into int32


class ReduceOnPlateauState(eqx.Module):
    """- `scale`: what updates are multiplied by; 1 at the start.
    - `best_value`: the least mean so far that counted as an improvement; infinity at the start.
    - `plateau_count`: the number of means without an improvement, outside a cooldown.
    - `cooldown_count`: the number of means for which the scale is left alone from now on.
    - `count`: the number of values in `avg_value`.
    - `avg_value`: the mean of the values since the last comparison.

    Scalars: the counts int32, the others in at least float32.
    """

    scale: Float[Array, ""]
    best_value: Float[Array, ""]
    plateau_count: Count
    cooldown_count: Count
    count: Count
    avg_value: Float[Array, ""]


class ReduceOnPlateau(AbstractElementwise):
    r"""Multiplies the updates by a scale that is reduced when the loss, given as `value`, no
    longer improves.

    Each `accumulation_size` values $v$ give a mean $\bar v$, which is an improvement if
    $\bar v < b - \mathrm{rtol}\, |b| - \mathrm{atol}$ for the best mean $b$ so far. The
    `patience`-th mean in a row without an improvement multiplies the scale by `factor`, in the
    same update already; the scale goes no lower than `min_scale`, and for the next `cooldown`
    means nothing is counted. A NaN is no improvement.

    As optax's `reduce_on_plateau`, except that optax's bound $(1 - \mathrm{rtol})\, b -
    \mathrm{atol}$ is above $b$ for a negative one, so that a loss which stands still there, or
    rises a little, improves for ever. PyTorch's `ReduceLROnPlateau` has that bound too, and
    reduces one bad value later than a `patience` of the same number here. Under `MultiSteps` or
    another wrapper that skips, only the updates that are let through count.

    - `factor`: in (0, 1).
    - `patience`: a number of means, at least 1.
    - `rtol`: the relative improvement that counts, in [0, 1].
    - `atol`: the absolute improvement that counts, at least 0.
    - `cooldown`: a number of means, at least 0.
    - `accumulation_size`: the number of values in a mean, at least 1: 1 for a validation loss, more
      for the noisy loss of single batches.
    - `min_scale`: the least scale, in [0, 1].
    """

    factor: Annotated[Numeric | Schedule, Range(gt=0, lt=1)] = 0.1
    patience: AtLeastOne = 10
    rtol: UnitInterval = 1e-4
    atol: NonNegative = 0.0
    cooldown: NonNegative = 0
    accumulation_size: AtLeastOne = 1
    min_scale: UnitInterval = 0.0

    _needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def _init(self, params: Params) -> ReduceOnPlateauState:
        zero = zero_of(params)
        return ReduceOnPlateauState(
            scale=zero + 1,
            best_value=zero + jnp.inf,
            plateau_count=zero.astype(jnp.int32),
            cooldown_count=zero.astype(jnp.int32),
            count=zero.astype(jnp.int32),
            avg_value=zero,
        )

    def _stage(
        self,
        updates: Updates,
        state: ReduceOnPlateauState,
        params: Params,
        count: Count,
        **extras: Any,
    ) -> Stage:
        new = self._observe(state, extras["value"])
        return Stage(self._rule, scalars=(new.scale,), new_state=lambda: new)

    def _rule(self, scale: Float[Array, ""], g: Leaf) -> Leaf:
        return scale * g

    def _observe(self, state: ReduceOnPlateauState, value: Any) -> ReduceOnPlateauState:
        """Takes a value into the mean, and compares the mean where it is full."""
        size: Any = self.accumulation_size
        count = increment(state.count)
        mean = state.avg_value + (value - state.avg_value) / count
        mean = mean.astype(state.avg_value.dtype)
        full = count >= size
        better = full & (mean < self._bound(state.best_value))
        scale, bad, cooldown = self._judge(state, full, better)
        return ReduceOnPlateauState(
            scale=scale,
            best_value=jnp.where(better, mean, state.best_value),
            plateau_count=bad,
            cooldown_count=cooldown,
            count=jnp.where(full, 0, count),
            avg_value=jnp.where(full, 0, mean),
        )

    def _bound(self, best: Float[Array, ""]) -> Float[Array, ""]:
        """What a mean must be below to be an improvement."""
        known = jnp.isfinite(best)
        size = jnp.where(known, jnp.abs(best), 0)
        return best - self.rtol * size - self.atol

    def _judge(
        self, state: ReduceOnPlateauState, full: Bool[Array, ""], better: Bool[Array, ""]
    ) -> tuple[Float[Array, ""], Count, Count]:
        """The scale and the two counts after a comparison, or as they were where there is none."""
        patience: Any = self.patience
        least: Any = self.min_scale
        waiting = state.cooldown_count > 0
        bad = jnp.where(better | waiting, 0, increment(state.plateau_count))
        reduced = bad >= patience
        lower = jnp.minimum(state.scale, jnp.maximum(state.scale * self.factor, least))
        cooldown = jnp.minimum(jnp.ceil(jnp.asarray(self.cooldown, float)), _LARGEST)
        left = jnp.where(waiting, state.cooldown_count - 1, 0)
        left = jnp.where(reduced, cooldown.astype(jnp.int32), left)
        scale = jnp.where(full & reduced, lower, state.scale).astype(state.scale.dtype)
        bad = jnp.where(full, jnp.where(reduced, 0, bad), state.plateau_count)
        return scale, bad, jnp.where(full, left, state.cooldown_count)
