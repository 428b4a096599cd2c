"""Lookahead: slow weights that follow what an optimizer does."""

from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .._core.apply import apply_updates, substituted
from .._core.arithmetic import increment
from .._core.hyperparam import AtLeastOne, UnitInterval
from .._core.leafwise import leafwise
from .._core.leaves import widened
from .._core.transform import State
from .._core.types import Count, Leaf, Params, Updates
from .._core.wrapper import AbstractOwnClock, Inner


class LookaheadState(eqx.Module):
    """- `slow_params`: the slow weights, like the parameters, in at least float32.
    - `steps_since_sync`: the number of updates since the slow weights moved, an int32 scalar.
    - `inner_state`: the state of the inner transformation.
    """

    slow_params: Params
    steps_since_sync: Count
    inner_state: State


class Lookahead(AbstractOwnClock):
    r"""Takes $k$ steps of the inner optimizer, then goes back to slow weights that have moved a
    part of the way (Zhang et al. 2019, algorithm 1).

    After each $k$ updates $\phi \leftarrow \phi + \alpha\, (\theta - \phi)$ and
    $\theta \leftarrow \phi$. The parameters are the fast weights $\theta$, the ones of which the
    gradients are taken; the slow weights $\phi$ are in the state and begin as the parameters.
    `eval_params` gives the slow weights.

    As optax's `lookahead`, except that parameters go in and out as they are, without
    `LookaheadParams`. The slow weights move as soon as there were $k$ updates, so that a schedule
    for $k$, evaluated at each update, drops none of them.

    - `inner`: the optimizer of the fast weights.
    - `sync_period`: $k$, at least 1.
    - `slow_step_size`: $\alpha$, in [0, 1].
    - `reset_state`: whether the inner state begins anew, at the new parameters, when the slow
      weights move; so do the counts and the schedules inside; static.
    """

    inner: Inner
    sync_period: AtLeastOne
    slow_step_size: UnitInterval
    reset_state: bool = eqx.field(default=False, static=True)

    _needs: ClassVar[frozenset[str]] = frozenset({"params"})

    def _init(self, params: Params) -> LookaheadState:
        return LookaheadState(
            slow_params=widened(params),
            steps_since_sync=jnp.zeros((), jnp.int32),
            inner_state=self.inner.init(params),
        )

    def _update(
        self, updates: Updates, state: LookaheadState, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, LookaheadState]:
        updates, inner_state = self.inner(updates, state.inner_state, params, **extras)
        sync = self._is_due(state)
        fast = apply_updates(params, updates)
        updates, slow, fast = leafwise(self._lead, sync)(updates, state.slow_params, fast, params)
        return updates, self._after(sync, state, slow, fast, inner_state)

    def _step(
        self, updates: Updates, state: LookaheadState, params: Params, count: Count, **extras: Any
    ) -> tuple[Params, LookaheadState]:
        fast, inner_state = self.inner.step(updates, state.inner_state, params, **extras)
        sync = self._is_due(state)
        fast, slow = leafwise(self._move, sync)(fast, state.slow_params)
        return fast, self._after(sync, state, slow, fast, inner_state)

    def _eval_params(self, state: LookaheadState, params: Params, count: Count) -> Params:
        return substituted(state.slow_params, params)

    def _is_due(self, state: LookaheadState) -> Bool[Array, ""]:
        """Whether the slow weights move after this update."""
        period: Any = self.sync_period
        return increment(state.steps_since_sync) >= period

    def _move(self, sync: Bool[Array, ""], fast: Leaf, slow: Leaf) -> tuple[Leaf, Leaf]:
        slow = jnp.where(sync, slow + self.slow_step_size * (fast - slow), slow)
        return jnp.where(sync, slow, fast), slow

    def _lead(
        self, sync: Bool[Array, ""], update: Leaf, slow: Leaf, fast: Leaf, param: Leaf
    ) -> tuple[Leaf, Leaf, Leaf]:
        """The update that leads to the new fast weights, and both weights."""
        fast, slow = self._move(sync, fast, slow)
        return jnp.where(sync, slow - param, update), slow, fast

    def _after(
        self,
        sync: Bool[Array, ""],
        state: LookaheadState,
        slow: Params,
        fast: Params,
        inner_state: State,
    ) -> LookaheadState:
        if self.reset_state:
            # Chosen element by element: a conditional would copy the state, which is new.
            inner_state = jax.tree.map(partial(jnp.where, sync), self.inner.init(fast), inner_state)
        steps = jnp.where(sync, 0, increment(state.steps_since_sync))
        return LookaheadState(slow, steps, inner_state)
