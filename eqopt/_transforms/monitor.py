"""Watching the updates, and taking NaN out of them.

A measure is a plain function of the updates, or of the updates and the parameters, that gives
numbers or arrays, such as `eqopt.global_norm`. What was measured is found in the state.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._core.arithmetic import bias_correction, increment
from .._core.component import AbstractConverter
from .._core.elementwise import AbstractRecursive
from .._core.hyperparam import Decay
from .._core.leafwise import check_same_paths, leafwise
from .._core.leaves import plain
from .._core.norms import scalars_like
from .._core.transform import AbstractTransform
from .._core.types import Count, Leaf, Params, Updates

Measure: TypeAlias = Callable[..., PyTree]


def _measured(name: str, measure: Measure, updates: Updates, params: Params) -> PyTree:
    """What a measure gives, as arrays; one with two parameters gets `params` too."""
    required = [
        p
        for p in inspect.signature(measure).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    both = len(required) > 1
    if both and params is None and jax.tree.leaves(updates):
        raise TypeError(f"`{name}` needs `params`: pass `params=...` to the update.")
    found = measure(updates, params) if both else measure(updates)
    return jax.tree.map(plain, found)


def _zeros(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.zeros_like, tree)


def _typed(name: str, new: PyTree, old: PyTree) -> PyTree:
    """A measurement in the structure and the dtypes that it had at `init`."""
    check_same_paths(f"`{name}`: the measurement", new, "the one at `init`", old)
    new = [x.astype(like.dtype) for x, like in zip(*map(jax.tree.leaves, (new, old)), strict=True)]
    for x, like in zip(new, jax.tree.leaves(old), strict=True):
        if x.shape != like.shape:
            raise ValueError(
                f"`{name}`: the measurement must keep its shape; got {x.shape}, it was "
                f"{like.shape} at `init`."
            )
    return jax.tree.unflatten(jax.tree.structure(old), new)


class SnapshotState(eqx.Module):
    """- `measurement`: the measure of the last updates; zeros before the first."""

    measurement: PyTree


class Snapshot(AbstractTransform):
    """Keeps a measure of the updates in the state and lets them through unchanged.

    Read it with `eqopt.find(state, eqopt.SnapshotState).measurement`. `Monitor` has several
    measures, with names, and running means. Before the first update the measurement is zeros (in
    optax the measure of the parameters).

    - `measure`: `measure(updates)` or `measure(updates, params)`, arrays of any structure that
      depends on the structure of the updates alone. Static, so compared by identity: define it at
      module level.
    """

    measure: Measure = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not callable(self.measure):
            raise TypeError(f"`Snapshot(measure=...)` must be a function; got {self.measure!r}.")

    def _init(self, params: Params) -> SnapshotState:
        return SnapshotState(_zeros(_measured("Snapshot", self.measure, params, params)))

    def _update(
        self, updates: Updates, state: SnapshotState, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, SnapshotState]:
        new = _measured("Snapshot", self.measure, updates, params)
        return updates, SnapshotState(_typed("Snapshot", new, state.measurement))


def _is_named(pair: Any) -> bool:
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    return isinstance(pair[0], str) and callable(pair[1])


class _AsMeasures(AbstractConverter):
    def convert(self, label: str, value: Any) -> tuple[tuple[str, Measure], ...]:
        """A dict as pairs, which can be hashed."""
        pairs = tuple(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, tuple) or not all(map(_is_named, pairs)):
            raise TypeError(f"{label} must be a dict from names to functions; got {value!r}.")
        if len(dict(pairs)) < len(pairs):
            raise ValueError(f"{label} must have distinct names; got {value!r}.")
        return pairs


Measures: TypeAlias = Annotated[
    Mapping[str, Measure] | tuple[tuple[str, Measure], ...], _AsMeasures()
]


class MonitorState(eqx.Module):
    """- `measurements`: a dict from the names to the measures of the last updates, or to their
    running means; zeros before the first update.
    """

    measurements: dict[str, PyTree]


class Monitor(AbstractTransform):
    r"""Keeps measures of the updates in the state and lets them through unchanged.

    Read them with `eqopt.find(state, eqopt.MonitorState).measurements["name"]`. With `decay` $b$
    each is the bias-corrected running mean of the measure $m$, that is
    $\bar m \leftarrow (1 - w)\, \bar m + w\, m$ with $w = (1 - b) / (1 - b^t)$, in at least
    float32. The state has the same structure from `init` on. Counterpart of optax's `monitor` and
    `measure_with_ema`; chain one with a decay and one without to have both.

    - `measures`: a dict from names to functions `measure(updates)` or `measure(updates, params)`,
      as for `Snapshot`; static, kept as a tuple of pairs.
    - `decay`: $b$, in [0, 1); `None` keeps the last measurement as it is.
    """

    measures: Measures = eqx.field(static=True)
    decay: Decay | None = None

    def _init(self, params: Params) -> MonitorState:
        found = _zeros(self._measure(params, params))
        if self.decay is not None:
            found = jax.tree.map(lambda x: x + jnp.zeros((), jnp.float32), found)
        return MonitorState(found)

    def _measure(self, updates: Updates, params: Params) -> dict[str, PyTree]:
        measures: Any = self.measures
        return {name: _measured("Monitor", measure, updates, params) for name, measure in measures}

    def _update(
        self, updates: Updates, state: MonitorState, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, MonitorState]:
        new = _typed("Monitor", self._measure(updates, params), state.measurements)
        if self.decay is not None:
            new = leafwise(self._average, increment(count))(state.measurements, new)
        return updates, MonitorState(new)

    def _average(self, t: Any, mean: Leaf, new: Leaf) -> Leaf:
        decay: Any = self.decay
        weight = (1 - decay) / bias_correction(decay, t)
        return (1 - weight) * mean + weight * new


class ZeroNansState(eqx.Module):
    """- `found_nan`: for each leaf whether its last update had a NaN, a bool scalar."""

    found_nan: Updates


class ZeroNans(AbstractRecursive):
    """Replaces NaN in the updates by 0; a complex element if either part is NaN.

    Infinities stay.
    """

    def _init(self, params: Params) -> ZeroNansState:
        return ZeroNansState(scalars_like(params, bool))

    def _rule(self, g: Leaf, found: Float[Array, ""]) -> tuple[Leaf, Any]:
        nan = jnp.isnan(g)
        return jnp.where(nan, 0, g), jnp.any(nan)
