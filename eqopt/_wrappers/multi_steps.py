"""Gradient accumulation: one update from several gradients."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._core.access import find
from .._core.boundary import check_value
from .._core.gate import gate
from .._core.hyperparam import AtLeastOne, FloatDtype
from .._core.leafwise import leafwise
from .._core.leaves import sums_like, zeros_like
from .._core.norms import zero_of
from .._core.transform import at_count
from .._core.types import Count, Leaf, OptState, Params, Updates
from .._core.wrapper import AbstractOwnClock, Inner


class MultiStepsState(eqx.Module):
    """- `mini_step`: the number of gradients gathered since the last update of the inner
      transformation, an int32 scalar.
    - `acc_grads`: their sum, like the parameters, in at least float32. Where `mini_step` is 0 it
      is what the last update was made of, and the next gradient replaces it.
    - `acc_value`: the sum of the losses that came with them, likewise; one that is not given counts
      as 0.
    - `inner_state`: the state of the inner transformation; its `count` is the number of its
      updates, optax's `gradient_step`.
    """

    mini_step: Count
    acc_grads: Updates
    acc_value: Float[Array, ""]
    inner_state: OptState

    _counted: ClassVar[frozenset[str]] = frozenset({".acc_grads"})  # by `mini_step`


def _updates_made(state: MultiStepsState) -> Count:
    return state.inner_state.count


class MultiSteps(AbstractOwnClock):
    r"""Gathers `every_k` gradients and then lets the inner transformation act once, on their mean.

    $$ \bar g = \frac1k \sum_{i=1}^k g_i $$

    The other updates are zero, and in `step` the parameters come back as they are; the inner
    transformation runs on the emitting step only. So its schedules and bias corrections go by the
    updates that it made, and $k$ small batches give what one large batch of all their examples
    does, for all that depends on the mean gradient alone. Exceptions are noise (`AddNoise`: one
    draw in place of $k$), gradients of each example (clipped one by one), and line searches, whose
    `value_fn` and `grad` are those of the last small batch. A loss given as `value` is averaged as
    the gradients are.

    A gradient that must not count is left out by a wrapper around this one:
    `SkipNotFinite(MultiSteps(optim, 4))` waits for four finite ones.

    Unlike optax's, which runs the inner transformation at every step and selects, this one sums
    in at least float32, and takes the mean to the dtype of the gradients at the end.

    `extend_state` in the midst of a round keeps the sums of the leaves that stay and the number of
    gradients so far; a new leaf starts at zero, so its first mean counts the gradients that it
    missed as zero.

    - `inner`: the transformation.
    - `every_k`: the number of gradients $k$ in one update, at least 1. A schedule goes by the
      number of updates of the inner transformation.
    - `use_grad_mean`: whether the mean of gradients and losses is taken; else the sum; static.
    - `accumulator_dtype`: the dtype of the sum, static; `None` is that of the parameter, but at
      least float32.
    """

    inner: Inner
    every_k: AtLeastOne
    use_grad_mean: bool = eqx.field(static=True, default=True)
    accumulator_dtype: FloatDtype | None = eqx.field(static=True, default=None)

    _clocks: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"every_k": _updates_made}

    def _init(self, params: Params) -> MultiStepsState:
        return MultiStepsState(
            mini_step=zero_of(params, jnp.int32),
            acc_grads=sums_like(params, self.accumulator_dtype),
            acc_value=zero_of(params),
            inner_state=self.inner.init(params),
        )

    def _update(
        self, updates: Updates, state: MultiStepsState, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, MultiStepsState]:
        emits, new, mean_extras = self._gather(updates, state, extras)

        def emit(carry: Any) -> Any:
            _, inner_state = carry
            mean = self._mean(new, updates)
            return self.inner(mean, inner_state, params, **mean_extras)

        result, inner_state = gate(emits, emit, (zeros_like(updates), state.inner_state))
        return result, self._next(emits, new, inner_state)

    def _step(
        self, updates: Updates, state: MultiStepsState, params: Params, count: Count, **extras: Any
    ) -> tuple[Params, MultiStepsState]:
        emits, new, mean_extras = self._gather(updates, state, extras)

        def emit(carry: Any) -> Any:
            params, inner_state = carry
            mean = self._mean(new, updates)
            return self.inner.step(mean, inner_state, params, **mean_extras)

        params, inner_state = gate(emits, emit, (params, state.inner_state))
        return params, self._next(emits, new, inner_state)

    def has_updated(self, state: OptState) -> Bool[Array, ""]:
        """Whether the last gradient that was taken in was followed by an update of the inner
        transformation. A gradient that a wrapper around this one skips is not taken in: the answer
        stays as it was.

        Where one `MultiSteps` is inside another, the answer is that of the outer one, also when
        the inner one is asked; that one answers for itself, of the gradients that the outer one
        emitted, when given the outer one's `inner_state`.

        - `state`: a state that holds one `MultiStepsState`, or several inside one another.
        """
        own = find(state, MultiStepsState)
        return (own.mini_step == 0) & (own.inner_state.count > 0)

    def _gather(
        self, updates: Updates, state: MultiStepsState, extras: dict[str, Any]
    ) -> tuple[Bool[Array, ""], MultiStepsState, dict[str, Any]]:
        """Takes one more gradient and loss into the sums: whether the inner transformation acts
        now, the state with the sums, and the keywords it is given."""
        every: Any = at_count(self.every_k, _updates_made(state))
        first, taken = state.mini_step == 0, state.mini_step + 1
        grads = leafwise(self._add, first)(state.acc_grads, updates)
        value = jnp.where(first, 0, state.acc_value)
        if (given := extras.get("value")) is not None:
            check_value(type(self).__name__, given)
            value = (value + given).astype(value.dtype)
            extras = extras | {"value": value / taken if self.use_grad_mean else value}
        return taken >= every, MultiStepsState(taken, grads, value, state.inner_state), extras

    def _add(self, first: Bool[Array, ""], total: Leaf, new: Leaf) -> Leaf:
        return jnp.where(first, 0, total) + new

    def _mean(self, state: MultiStepsState, like: Updates) -> Updates:
        """What the inner transformation is given, in the dtypes of the gradients."""
        return leafwise(self._divide, state.mini_step)(like, state.acc_grads)

    def _divide(self, number: Count, g: Leaf, total: Leaf) -> Leaf:
        return total / number if self.use_grad_mean else total

    def _next(
        self, emits: Bool[Array, ""], state: MultiStepsState, inner_state: OptState
    ) -> MultiStepsState:
        mini_step = jnp.where(emits, 0, state.mini_step)
        return MultiStepsState(mini_step, state.acc_grads, state.acc_value, inner_state)
