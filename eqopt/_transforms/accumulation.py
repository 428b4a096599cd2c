"""Accumulating updates: their running mean, and their sum over several steps."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .._core.arithmetic import debias, ema, increment
from .._core.elementwise import AbstractElementwise, AbstractRecursive
from .._core.hyperparam import AtLeastOne, Decay, FloatDtype
from .._core.leafwise import Stage
from .._core.leaves import zeros_like
from .._core.types import Count, Leaf, Params, Updates


class EMAState(eqx.Module):
    """- `ema`: the running mean of the updates, like the parameters, not bias-corrected."""

    ema: Updates


class EMA(AbstractRecursive):
    r"""The running mean of the updates: $m \leftarrow b\, m + (1 - b)\, g$,
    $u = m / (1 - b^t)$ with the bias of the start at 0 taken out (Kingma and Ba 2015, section 3).

    - `decay`: $b$, in [0, 1).
    - `debias`: whether to take the bias out; if not, $u = m$; static.
    - `accumulator_dtype`: the dtype of the mean, the parameter's if `None`; static.
    """

    decay: Decay
    debias: bool = eqx.field(default=True, static=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True)

    _counts: ClassVar[bool] = True

    def _init(self, params: Params) -> EMAState:
        return EMAState(zeros_like(params, self.accumulator_dtype))

    def _rule(self, t: Int[Array, ""], g: Leaf, mean: Leaf) -> tuple[Leaf, Leaf]:
        mean = ema(mean, g, self.decay)
        return (debias(mean, self.decay, t) if self.debias else mean), mean


class ApplyEveryState(eqx.Module):
    """- `steps`: the number of updates in the sum, an int32 scalar.
    - `grad_acc`: the sum of the updates since the last that was let through, like the parameters.
    """

    steps: Count
    grad_acc: Updates


class ApplyEvery(AbstractElementwise):
    r"""Sums updates and lets the sum through at every $k$-th step, zeros in between.

    The other members of a chain still see every step; `MultiSteps` is for accumulating gradients.
    The sum is let through as soon as it has $k$ updates, so that a schedule for $k$ drops none
    of them, where optax goes by the count modulo $k$.

    - `k`: the number of steps, at least 1.
    - `accumulator_dtype`: the dtype of the sum, the parameter's if `None`; static.
    """

    k: AtLeastOne = 1
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True)

    def _init(self, params: Params) -> ApplyEveryState:
        return ApplyEveryState(jnp.zeros((), jnp.int32), zeros_like(params, self.accumulator_dtype))

    def _stage(
        self, updates: Updates, state: ApplyEveryState, params: Params, count: Count, **extras: Any
    ) -> Stage:
        steps = increment(state.steps)
        k: Any = self.k
        full = steps >= k

        def new_state(total: Updates) -> ApplyEveryState:
            return ApplyEveryState(jnp.where(full, 0, steps), total)

        return Stage(
            self._rule,
            scalars=(full,),
            states=(state.grad_acc,),
            new_state=new_state,
            order=(0,),
        )

    def _rule(self, full: Bool[Array, ""], g: Leaf, total: Leaf) -> tuple[Leaf, Leaf]:
        total = total + g
        return jnp.where(full, total, 0), jnp.where(full, 0, total)
