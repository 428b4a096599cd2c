"""Averages of the parameters, and the best ones so far: what to evaluate with."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from equinox import AbstractVar
from jaxtyping import Array, Bool, Float

from .._core.apply import apply_updates, substituted
from .._core.arithmetic import increment
from .._core.hyperparam import Decay, NonNegative
from .._core.leafwise import leafwise
from .._core.leaves import widened
from .._core.norms import global_squared_norm
from .._core.transform import replace_fields
from .._core.types import Count, Leaf, Params, Updates
from .._core.wrapper import AbstractWrapper, Inner


class AbstractAverage(AbstractWrapper):
    """A wrapper that averages the parameters after each update, in the field `average` of its
    state, and gives the average as `eval_params`. The updates are those of the inner
    transformation.

    - `inner`: the transformation.
    """

    inner: AbstractVar[Any]

    _needs: ClassVar[frozenset[str]] = frozenset({"params"})

    @abstractmethod
    def _averaged(self, average: Params, params: Params, count: Count) -> Params:
        """The average with the parameters after an update; `count` updates came before it."""

    def _update(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, Any]:
        inner = self.inner._at(count)
        updates, inner_state = inner._update(updates, state.inner_state, params, count, **extras)
        average = self._averaged(state.average, apply_updates(params, updates), count)
        return updates, replace_fields(state, {"average": average, "inner_state": inner_state})

    def _step(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Params, Any]:
        inner = self.inner._at(count)
        params, inner_state = inner._step(updates, state.inner_state, params, count, **extras)
        average = self._averaged(state.average, params, count)
        return params, replace_fields(state, {"average": average, "inner_state": inner_state})

    def _eval_params(self, state: Any, params: Params, count: Count) -> Params:
        return substituted(state.average, params)


class EMAParamsState(eqx.Module):
    """- `average`: the running mean of the parameters, like them, in at least float32.
    - `inner_state`: what the inner transformation remembers.
    """

    average: Params
    inner_state: Any


class EMAParams(AbstractAverage):
    r"""Keeps a running mean of the parameters beside the inner optimizer, to evaluate with:
    $\bar\theta \leftarrow b\, \bar\theta + (1 - b)\, \theta$ after each update, for the new
    parameters $\theta$ (Kingma and Ba 2015, section 7.2).

    The mean begins as the parameters, where Kingma and Ba begin at 0 and correct the bias: after
    $t$ updates the first parameters have the weight $b^t$ in it. A schedule that grows, such as
    $\min(b, (1 + t) / (10 + t))$, lets go of them sooner. The mean of parameters that don't change
    stays exact.

    The updates of `inner` are untouched. An update that a wrapper inside skips is averaged too;
    one that a wrapper outside skips is not.

    - `inner`: the optimizer.
    - `decay`: $b$, in [0, 1).
    """

    inner: Inner
    decay: Decay

    def _init(self, params: Params) -> EMAParamsState:
        return EMAParamsState(widened(params), self.inner._begin(params))

    def _averaged(self, average: Params, params: Params, count: Count) -> Params:
        return leafwise(self._rule)(average, params)

    def _rule(self, mean: Leaf, p: Leaf) -> Leaf:
        return mean + (1 - self.decay) * (p - mean)


class PolyakAverageState(eqx.Module):
    """- `average`: the mean of the parameters, like them, in at least float32.
    - `inner_state`: what the inner transformation remembers.
    """

    average: Params
    inner_state: Any


class PolyakAverage(AbstractAverage):
    r"""Keeps the mean of the parameters after each update, all of one weight, beside the inner
    optimizer, to evaluate with (Polyak and Juditsky 1992).

    After update $t > t_0$ it is
    $\bar\theta_t = \frac{1}{t - t_0} \sum_{i = t_0 + 1}^{t} \theta_i$, until then the parameters
    $\theta_t$ themselves. The updates of `inner` are untouched.

    - `inner`: the optimizer.
    - `begin`: $t_0$, the number of updates at the beginning that are left out, at least 0. With a
      schedule the newest parameters get the weight $1 / \max(1, t - t_0)$.
    """

    inner: Inner
    begin: NonNegative = 0

    def _init(self, params: Params) -> PolyakAverageState:
        return PolyakAverageState(widened(params), self.inner._begin(params))

    def _averaged(self, average: Params, params: Params, count: Count) -> Params:
        begin: Any = self.begin
        size = jnp.asarray(increment(count) - begin, float)
        return leafwise(self._rule, size)(average, params)

    def _rule(self, size: Float[Array, ""], mean: Leaf, p: Leaf) -> Leaf:
        return jnp.where(size > 1, mean + (p - mean) / jnp.maximum(size, 1), p)


class BestSoFarState(eqx.Module):
    """- `best_value`: the least value so far, a scalar in at least float32; infinity at the start.
    - `best_params`: the parameters that had it, like the parameters.
    - `inner_state`: what the inner transformation remembers.
    """

    best_value: Float[Array, ""]
    best_params: Params
    inner_state: Any


class BestSoFar(AbstractWrapper):
    """Keeps the parameters that had the least `value` so far, to evaluate with or to go back to.

    `value` is the loss at the parameters that the update is given, so that these are kept, not
    the ones after the update. Of equal values the first counts; a NaN or an infinity never does.
    Until one counts, the parameters at `init` are kept. The updates of `inner` are untouched.

    The losses of single batches are noisy: pass a loss over more of the data, or one that is
    averaged.

    - `inner`: the optimizer.
    """

    inner: Inner

    _needs: ClassVar[frozenset[str]] = frozenset({"params", "value"})

    def _init(self, params: Params) -> BestSoFarState:
        # Made from the parameters, so that it may vary over devices as they do.
        zero = jnp.zeros_like(global_squared_norm(params))
        return BestSoFarState(zero + jnp.inf, params, self.inner._begin(params))

    def _update(
        self, updates: Updates, state: BestSoFarState, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, BestSoFarState]:
        kept = self._kept(state, params, extras["value"])
        inner = self.inner._at(count)
        updates, inner_state = inner._update(updates, state.inner_state, params, count, **extras)
        return updates, replace_fields(state, {**kept, "inner_state": inner_state})

    def _step(
        self, updates: Updates, state: BestSoFarState, params: Params, count: Count, **extras: Any
    ) -> tuple[Params, BestSoFarState]:
        kept = self._kept(state, params, extras["value"])
        inner = self.inner._at(count)
        params, inner_state = inner._step(updates, state.inner_state, params, count, **extras)
        return params, replace_fields(state, {**kept, "inner_state": inner_state})

    def _eval_params(self, state: BestSoFarState, params: Params, count: Count) -> Params:
        return substituted(state.best_params, params)

    def _kept(
        self, state: BestSoFarState, params: Params, value: Float[Array, ""]
    ) -> dict[str, Any]:
        value = value.astype(state.best_value.dtype)
        better = jnp.isfinite(value) & (value < state.best_value)
        return {
            "best_value": jnp.where(better, value, state.best_value),
            "best_params": leafwise(self._rule, better)(state.best_params, params),
        }

    def _rule(self, better: Bool[Array, ""], best: Leaf, p: Leaf) -> Leaf:
        return jnp.where(better, p, best)
