"""Transformations that act at some updates only, by the count or by what an update is given."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from equinox import AbstractVar
from jaxtyping import Array, Bool

from .._core.hyperparam import AtLeastOne
from .._core.transform import State
from .._core.types import Count, Params, Updates
from .._core.wrapper import AbstractGated, Inner, check_predicate, forwarded, needed, verdict

_LARGEST = 2**30  # a whole float32 that fits into int32


class AbstractConditional(AbstractGated):
    """A wrapper that asks a function whether the inner transformation acts.

    - `inner`: the transformation.
    - `predicate`: the function of the count.
    - `forward_extras`: whether it is given the keywords of the update too.

    **Raises** `TypeError` if `predicate` is no function of the count, or needs keywords that are
    not forwarded.
    """

    inner: AbstractVar[Any]
    predicate: AbstractVar[Callable[..., Any]]
    forward_extras: AbstractVar[bool]

    def __check_init__(self) -> None:
        check_predicate(self._label, self.predicate, "count", forwards=self.forward_extras)

    @property
    def _label(self) -> str:
        return f"`{type(self).__name__}(predicate=...)`"

    @property
    def _takes(self) -> frozenset[str] | None:  # pyright: ignore[reportIncompatibleVariableOverride]  # known per instance
        return None if self.forward_extras else frozenset()

    @property
    def _needs(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]  # known per instance
        return needed(self.predicate, 1) if self.forward_extras else frozenset()

    def _decide(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Bool[Array, ""], dict[str, Any]]:
        given = forwarded(self.predicate, 1, extras) if self.forward_extras else {}
        return verdict(self._label, self.predicate(count, **given)), {}


class ConditionallyTransformState(eqx.Module):
    """- `inner_state`: the state of the inner transformation.

    The number of updates, `step` in optax's state, is the `count` of the `State` around this one.
    """

    inner_state: State


class ConditionallyTransform(AbstractConditional):
    """Applies the inner transformation where a function of the count says so; elsewhere the updates
    pass through unchanged.

    Where it does not act, the inner state stays bit-equal: its count, and with it schedules and
    bias corrections, stands still. As optax's `conditionally_transform`.

    - `inner`: the transformation.
    - `predicate`: the function, called with the number of updates before this one; it returns a
      scalar bool. May be traced: no Python `if` on the count. Define it at module level, because
      another function compiles anew; static.
    - `forward_extras`: whether the function is given the keywords of the update too, as
      `predicate(count, **extras)`, or those of them that it names; any keyword is then accepted;
      static.

    **Raises** `TypeError` if `predicate` is no function of the count, or needs a keyword without
    `forward_extras`.
    """

    inner: Inner
    predicate: Callable[..., Any] = eqx.field(static=True)
    forward_extras: bool = eqx.field(default=False, static=True)

    _passes: ClassVar[bool] = True

    def _init(self, params: Params) -> ConditionallyTransformState:
        return ConditionallyTransformState(self.inner.init(params))


class ConditionallyMaskState(eqx.Module):
    """- `inner_state`: the state of the inner transformation.

    The number of updates, `step` in optax's state, is the `count` of the `State` around this one.
    """

    inner_state: State


class ConditionallyMask(AbstractConditional):
    """Applies the inner transformation where a function of the count says so; elsewhere the updates
    are zero.

    Where it does not act, `step` returns the parameters as they are, and the inner state stays
    bit-equal: its count, and with it schedules and bias corrections, stands still. As optax's
    `conditionally_mask`.

    - `inner`: the transformation.
    - `predicate`: the function, called with the number of updates before this one; it returns a
      scalar bool. May be traced: no Python `if` on the count. Define it at module level, because
      another function compiles anew; static.
    - `forward_extras`: whether the function is given the keywords of the update too, as
      `predicate(count, **extras)`, or those of them that it names; any keyword is then accepted;
      static.

    **Raises** `TypeError` if `predicate` is no function of the count, or needs a keyword without
    `forward_extras`.
    """

    inner: Inner
    predicate: Callable[..., Any] = eqx.field(static=True)
    forward_extras: bool = eqx.field(default=False, static=True)

    def _init(self, params: Params) -> ConditionallyMaskState:
        return ConditionallyMaskState(self.inner.init(params))


class EveryState(eqx.Module):
    """- `wait`: the number of updates to leave out until the next one, an int32 scalar.
    - `inner_state`: the state of the inner transformation.
    """

    wait: Count
    inner_state: State


class Every(AbstractGated):
    """Applies the inner transformation to every `k`-th update, beginning with the first; the others
    are zero.

    It acts at the counts 0, k, 2k, ... In between `step` returns the parameters as they are, and
    the inner state stays bit-equal: its count, and with it schedules and bias corrections, stands
    still. The gradients in between are dropped: `MultiSteps` accumulates them.

    - `inner`: the transformation.
    - `k`: the period, at least 1. A schedule is looked up when the transformation acts, and gives
      the number of updates until it acts again.
    """

    inner: Inner
    k: AtLeastOne

    def _init(self, params: Params) -> EveryState:
        return EveryState(jnp.zeros((), jnp.int32), self.inner.init(params))

    def _decide(
        self, updates: Updates, state: EveryState, params: Params, count: Count, **extras: Any
    ) -> tuple[Bool[Array, ""], dict[str, Any]]:
        acts = state.wait <= 0
        period = jnp.minimum(jnp.ceil(jnp.asarray(self.k, float)), _LARGEST).astype(jnp.int32)
        return acts, {"wait": jnp.where(acts, period, state.wait) - 1}
