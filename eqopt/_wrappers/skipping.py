"""Leaving out updates that would do harm: the parameters and the inner state stay as they are."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._core.arithmetic import increment, safe_sqrt
from .._core.hyperparam import Decay, NonNegative, Positive
from .._core.norms import all_finite, global_norm, zero_of
from .._core.types import Count, OptState, Params, Updates
from .._core.wrapper import (
    AbstractGated,
    Inner,
    check_predicate,
    forwarded,
    keywords_of,
    needed,
    verdict,
)


class ApplyIfFiniteState(eqx.Module):
    """- `notfinite_count`: the number of non-finite updates in a row, up to the last one.
    - `last_finite`: whether the last updates were finite; true at the start.
    - `total_notfinite`: the number of non-finite updates so far.
    - `inner_state`: the state of the inner transformation.
    """

    notfinite_count: Count
    last_finite: Bool[Array, ""]
    total_notfinite: Count
    inner_state: OptState


class ApplyIfFinite(AbstractGated):
    """Leaves out updates with NaN or infinities, up to a number of them in a row.

    After more than `max_consecutive_errors` in a row the inner transformation is given what comes,
    non-finite updates too, until finite ones end the streak: an error that does not pass by itself
    shows. `SkipNotFinite` never gives up. Only incoming updates are looked at. Whoever reads the
    state finds the streak in `notfinite_count`, which grows on after giving up.

    It belongs outermost, around a whole chain.

    - `inner`: the transformation.
    - `max_consecutive_errors`: the longest streak that is left out, at least 0.
    """

    inner: Inner
    max_consecutive_errors: NonNegative

    def _init(self, params: Params) -> ApplyIfFiniteState:
        zero = zero_of(params, jnp.int32)
        return ApplyIfFiniteState(zero, zero == 0, zero + 0, self.inner.init(params))

    def _decide(
        self,
        updates: Updates,
        state: ApplyIfFiniteState,
        params: Params,
        count: Count,
        **extras: Any,
    ) -> tuple[Bool[Array, ""], dict[str, Any]]:
        limit: Any = self.max_consecutive_errors
        finite = all_finite(updates)
        streak = jnp.where(finite, 0, increment(state.notfinite_count))
        total = jnp.where(finite, state.total_notfinite, increment(state.total_notfinite))
        fields = {"notfinite_count": streak, "last_finite": finite, "total_notfinite": total}
        return finite | (streak > limit), fields


class SkipState(eqx.Module):
    """- `skip_count`: the number of updates that were skipped.
    - `last_skip`: the number of the last one that was, counted from 0; -1 if none was.
    - `inner_state`: the state of the inner transformation.
    """

    skip_count: Count
    last_skip: Count
    inner_state: OptState


class AbstractSkip(AbstractGated):
    """Leaves out the updates that a rule rejects, and records how many, and the last of them.

    - `inner`: the transformation.
    """

    def _init(self, params: Params) -> SkipState:
        zero = zero_of(params, jnp.int32)
        return SkipState(zero, zero - 1, self.inner.init(params))

    @abstractmethod
    def _skips(self, updates: Updates, params: Params, **extras: Any) -> Bool[Array, ""]:
        """Whether the update is left out."""

    def _decide(
        self, updates: Updates, state: SkipState, params: Params, count: Count, **extras: Any
    ) -> tuple[Bool[Array, ""], dict[str, Any]]:
        skips = self._skips(updates, params, **extras)
        return ~skips, _record_skip(skips, state, count)


class SkipIf(AbstractSkip):
    """Leaves out the updates for which a function says so.

    - `inner`: the transformation.
    - `predicate`: `predicate(updates, params, **extras)` gives a bool or a bool scalar, true where
      the update is to be left out. `params` is `None` if the update was called without; `extras`
      are the keywords of the update, such as `value`. A function without `**extras` is given those
      that it names; one that it names without a default is needed by every update. Static, so it
      is compared by identity: define it at module level.

    **Raises** `TypeError` if `predicate` is no function of `updates` and `params`.
    """

    inner: Inner
    predicate: Callable[..., Any] = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_predicate("`SkipIf(predicate=...)`", self.predicate, "updates", "params")

    @property
    def _needs(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]  # known per instance
        return needed(self.predicate, 2)

    @property
    def _takes(self) -> frozenset[str] | None:  # pyright: ignore[reportIncompatibleVariableOverride]  # known per instance
        return frozenset(keywords_of(self.predicate, 2))

    def _skips(self, updates: Updates, params: Params, **extras: Any) -> Bool[Array, ""]:
        given = forwarded(self.predicate, 2, extras)
        return verdict("`SkipIf(predicate=...)`", self.predicate(updates, params, **given))


class SkipNotFinite(AbstractSkip):
    """Leaves out updates with NaN or infinities, however many come in a row.

    Only incoming updates are looked at. `ApplyIfFinite` gives up after a number of them.

    - `inner`: the transformation.
    """

    inner: Inner

    def _skips(self, updates: Updates, params: Params, **extras: Any) -> Bool[Array, ""]:
        return ~all_finite(updates)


class SkipLargeUpdates(AbstractSkip):
    r"""Leaves out updates with a global norm above a bound, $\lVert g \rVert > c$, or NaN.

    optax's `skip_large_updates` takes the square of the bound, and leaves out what is equal to it.

    - `inner`: the transformation.
    - `max_norm`: the bound $c$, at least 0.
    """

    inner: Inner
    max_norm: NonNegative

    def _skips(self, updates: Updates, params: Params, **extras: Any) -> Bool[Array, ""]:
        bound: Any = self.max_norm
        return ~(global_norm(updates) <= bound)


class SkipLossSpikesState(eqx.Module):
    """- `skip_count`: the number of updates that were skipped.
    - `last_skip`: the number of the last one that was, counted from 0; -1 if none was.
    - `value_count`: the number of finite losses seen.
    - `mean`: the running mean of the loss.
    - `variance`: the running variance of the loss.
    - `inner_state`: the state of the inner transformation.

    Scalars: the counts int32, the others in at least float32.
    """

    skip_count: Count
    last_skip: Count
    value_count: Count
    mean: Float[Array, ""]
    variance: Float[Array, ""]
    inner_state: OptState


class SkipLossSpikes(AbstractGated):
    r"""Leaves out updates whose loss, given as `value`, is far above its running mean, or not
    finite.

    With the running mean $m$ and variance $v$ of the losses before it, the loss $\ell$ is a spike
    if $\ell > b$, where $b = m + k \max(\sqrt v, 10^{-3} |m|)$. Then $m$ and $v$ take it in, a
    spike as $b$: so a single one doesn't move them far, and a rise that lasts is followed. They
    weigh the newest loss by $w = \max(1 - \mathrm{decay}, 1/t)$ as the $t$-th:

    $$ v \leftarrow (1 - w)\,(v + w\,(\ell - m)^2), \qquad m \leftarrow m + w\,(\ell - m). $$

    During the first `warmup_steps` finite losses nothing is a spike. A loss that is NaN or
    infinite, or so far from $m$ that its square is, is always left out, and enters neither $m$ nor
    $v$. The rule is that of large runs of language models (as in OLMo, Groeneveld et al. 2024, with
    a running mean in place of a window).

    - `inner`: the transformation.
    - `num_stds`: the number of standard deviations $k$, above 0.
    - `decay`: the decay rate of mean and variance, in [0, 1).
    - `warmup_steps`: a number of losses, at least 0.
    """

    inner: Inner
    num_stds: Positive = 6.0
    decay: Decay = 0.99
    warmup_steps: NonNegative = 100

    _needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def _init(self, params: Params) -> SkipLossSpikesState:
        zero, count = zero_of(params), zero_of(params, jnp.int32)
        return SkipLossSpikesState(
            count, count - 1, count + 0, zero, zero + 0, self.inner.init(params)
        )

    def _decide(
        self,
        updates: Updates,
        state: SkipLossSpikesState,
        params: Params,
        count: Count,
        **extras: Any,
    ) -> tuple[Bool[Array, ""], dict[str, Any]]:
        warmup: Any = self.warmup_steps
        value = extras["value"].astype(state.mean.dtype)
        finite = jnp.isfinite(jnp.square(value - state.mean))
        known = (state.value_count >= warmup) & (state.value_count > 0)
        std = jnp.maximum(safe_sqrt(state.variance), 1e-3 * jnp.abs(state.mean))
        bound = state.mean + self.num_stds * std
        skips = ~finite | (known & (value > bound))
        taken = jnp.where(finite, jnp.where(known, jnp.minimum(value, bound), value), state.mean)
        return ~skips, _record_skip(skips, state, count) | self._mean(finite, taken, state)

    def _mean(
        self, finite: Bool[Array, ""], value: Float[Array, ""], state: SkipLossSpikesState
    ) -> dict[str, Any]:
        """The mean and the variance with one more value, or as they were where it is not finite."""
        t = jnp.where(finite, increment(state.value_count), state.value_count)
        weight = jnp.maximum(1 - jnp.asarray(self.decay), 1 / jnp.maximum(t, 1))
        weight = jnp.where(finite, weight, 0).astype(value.dtype)
        off = value - state.mean
        return {
            "value_count": t,
            "mean": state.mean + weight * off,
            "variance": (1 - weight) * (state.variance + weight * off**2),
        }


def _record_skip(skips: Bool[Array, ""], state: Any, count: Count) -> dict[str, Any]:
    return {
        "skip_count": jnp.where(skips, increment(state.skip_count), state.skip_count),
        "last_skip": jnp.where(skips, count, state.last_skip),
    }
