"""Scaling updates by one number, or leaving them, or dropping them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from .._core.arithmetic import sign
from .._core.elementwise import AbstractStateless
from .._core.hyperparam import Hyperparam, NonNegative
from .._core.leafwise import Stage, like_updates
from .._core.transform import AbstractTransform
from .._core.types import Count, Leaf, Params, Updates


class Identity(AbstractTransform):
    """Leaves the updates as they are."""

    def _init(self, params: Params) -> None:
        return None

    def _update(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, None]:
        return updates, state


class SetToZero(AbstractStateless):
    """Replaces the updates by zeros."""

    def _stage(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule)

    def _rule(self, g: Leaf) -> Leaf:
        return jnp.zeros_like(g)


class Scale(AbstractStateless):
    r"""Multiplies the updates: $u = s\, g$.

    The product is computed in at least float32 and has the dtype of the updates, however the
    number was written. With a schedule this is optax's `scale_by_schedule`.

    - `step_size`: the factor $s$, any number.
    """

    step_size: Hyperparam

    def _stage(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule)

    def _rule(self, g: Leaf) -> Leaf:
        return self.step_size * g


class ScaleByLearningRate(AbstractStateless):
    r"""Multiplies the updates by the learning rate and turns them to descent: $u = -\eta\, g$.

    - `learning_rate`: $\eta$, at least 0.
    - `flip_sign`: whether to turn the sign; static.
    """

    learning_rate: NonNegative
    flip_sign: bool = eqx.field(default=True, static=True)

    def _stage(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule)

    def _rule(self, g: Leaf) -> Leaf:
        return (-self.learning_rate if self.flip_sign else self.learning_rate) * g


class ScaleBySign(AbstractStateless):
    r"""The sign of the updates: $u = \mathrm{sign}(g)$, that is $g / |g|$, and 0 at 0.

    Its derivative is 0.
    """

    def _stage(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule)

    def _rule(self, g: Leaf) -> Leaf:
        return sign(g)


class Stateless(AbstractTransform):
    """A plain function as a transformation without a state.

    - `fn`: `fn(updates, params) -> updates` on whole trees; `params` is `None` if the update was
      called without. Static, so it is compared by identity: define it at module level. The result
      is cast to the dtypes of the updates.
    """

    fn: Callable[[Updates, Params], Updates] = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(f"`Stateless(fn=...)` must be a function; got {self.fn!r}.")

    def _init(self, params: Params) -> None:
        return None

    def _update(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, None]:
        return like_updates("Stateless", self.fn(updates, params), updates), state
