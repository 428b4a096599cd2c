"""Bounds on each element."""

from typing import Annotated, Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._core.component import AbstractConverter
from .._core.data import concrete
from .._core.hyperparam import NonNegativeNumber
from .._core.leafwise import leafwise
from .._core.leaves import paths_and_leaves, plain, real_dtype
from .._core.project import Project
from .._core.projection import AbstractProjection
from .._core.types import RealLeaf


class _AsBounds(AbstractConverter):
    def convert(self, label: str, value: Any) -> Any:
        for path, x in paths_and_leaves(value):
            real = isinstance(x, np.generic | np.ndarray | jax.Array) and (
                jnp.issubdtype(x.dtype, jnp.floating) or jnp.issubdtype(x.dtype, jnp.integer)
            )
            if not (real or type(x) in (int, float)):
                raise TypeError(
                    f"{label} must be a number, an array or a tree of them; got {x!r} at `{path}`."
                )
        return jax.tree.map(_as_bound, value)


def _as_bound(x: Any) -> Any:
    if isinstance(x, int | float):
        return x
    return plain(x) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.asarray(x, float)


Bounds: TypeAlias = Annotated[PyTree, _AsBounds()]


class NonNegative(AbstractProjection):
    r"""The non-negative orthant, $P(x) = \max(x, 0)$.

    Exact. The derivative is 1 where $x > 0$ and 0 elsewhere, at 0 too.
    """

    _real_only: ClassVar[bool] = True

    def _project(self, tree: PyTree) -> PyTree:
        return leafwise(self._rule)(tree)

    def _rule(self, x: RealLeaf) -> RealLeaf:
        return jnp.where(x > 0, x, jnp.where(x <= 0, 0, x))  # NaN stays NaN


class Box(AbstractProjection):
    r"""Bounds on each element, $P(x) = \min(\max(x, l), u)$.

    Exact, up to the rounding of the bounds to the dtype of a leaf. The derivative is 1 where
    $l < x < u$ and 0 elsewhere, at the bounds too.

    - `lower`: $l$, a number for all elements, or a tree like the parameters with numbers, or arrays
      of the leaves' shapes, for leaves or whole subtrees; `-jnp.inf` is none.
    - `upper`: $u$, the same; at least `lower`, `jnp.inf` is none.
    """

    lower: Bounds
    upper: Bounds

    _real_only: ClassVar[bool] = True

    def __check_init__(self) -> None:
        for path, low, high in _pairs(self.lower, self.upper):
            low, high = concrete(low), concrete(high)
            if low is None or high is None:
                continue
            shapes = low.shape, high.shape
            if () not in shapes and shapes[0] != shapes[1]:
                raise ValueError(
                    f"`Box(lower=..., upper=...)` must have equal shapes; got {shapes[0]} and "
                    f"{shapes[1]} at `{path}`."
                )
            low, high = np.broadcast_arrays(low, high)
            if wrong := np.flatnonzero(~(low <= high)).tolist():
                raise ValueError(
                    "`Box(lower=...)` must be at most `upper`; got "
                    f"{low.flat[wrong[0]].item()!r} and {high.flat[wrong[0]].item()!r} at `{path}`."
                )

    def _project(self, tree: PyTree) -> PyTree:
        lower = _like("`Box(lower=...)`", self.lower, tree)
        upper = _like("`Box(upper=...)`", self.upper, tree)
        return leafwise(_between)(tree, lower, upper)


class Hypercube(AbstractProjection):
    r"""The cube $0 \le x \le s$, $P(x) = \min(\max(x, 0), s)$.

    Exact, with derivative 1 in the interior and 0 elsewhere.

    - `scale`: $s$, at least 0.
    """

    scale: NonNegativeNumber = 1.0

    _real_only: ClassVar[bool] = True

    def _project(self, tree: PyTree) -> PyTree:
        return leafwise(self._rule)(tree)

    def _rule(self, x: RealLeaf) -> RealLeaf:
        return _between(x, jnp.zeros((), x.dtype), jnp.asarray(self.scale))


class LInfBall(AbstractProjection):
    r"""The ball $\max_i |x_i| \le r$ of the maximum norm, $P(x) = \min(\max(x, -r), r)$.

    Exact, with derivative 1 in the interior and 0 elsewhere.

    - `radius`: $r$, at least 0.
    """

    radius: NonNegativeNumber = 1.0

    _real_only: ClassVar[bool] = True

    def _project(self, tree: PyTree) -> PyTree:
        return leafwise(self._rule)(tree)

    def _rule(self, x: RealLeaf) -> RealLeaf:
        return _between(x, -jnp.asarray(self.radius), jnp.asarray(self.radius))


def _between(x: RealLeaf, lower: Float[Array, "*#leaf"], upper: Float[Array, "*#leaf"]) -> RealLeaf:
    return jnp.where(x <= lower, lower, jnp.where(x >= upper, upper, x))  # NaN stays NaN


def _pairs(lower: PyTree, upper: PyTree) -> list[tuple[str, Any, Any]]:
    """The bounds that belong together, with their paths; none where the trees don't tell."""
    try:
        lower = jax.tree.broadcast(lower, upper)
    except ValueError:
        try:
            upper = jax.tree.broadcast(upper, lower)
        except ValueError:
            return []
    pairs = zip(paths_and_leaves(lower), jax.tree.leaves(upper), strict=True)
    return [(path, low, high) for (path, low), high in pairs]


def _like(label: str, bounds: PyTree, tree: PyTree) -> PyTree:
    """A bound for each leaf of a tree, in the dtype in which the leaf is computed."""
    try:
        full = jax.tree.leaves(jax.tree.broadcast(bounds, tree))
    except ValueError as error:
        raise ValueError(
            f"{label} must be a number, or a tree that begins like the one given: {error}"
        ) from None
    found = []
    for bound, (path, leaf) in zip(full, paths_and_leaves(tree), strict=True):
        if np.shape(bound) not in ((), leaf.shape):
            raise ValueError(
                f"{label} must be a number or have the shape of the leaf; got shape "
                f"{np.shape(bound)} for the leaf `{path}` of shape {leaf.shape}."
            )
        found.append(jnp.asarray(bound, real_dtype(leaf.dtype)))
    return jax.tree.unflatten(jax.tree.structure(tree), found)


def KeepParamsNonNegative(where: Any = None) -> Project:
    """optax's name for `Project(NonNegative())`: belongs at the end of a chain.

    - `where`: the leaves that are kept non-negative, all if `None`: a selector or a PyTree of
      bools.

    `optim >> projections.NonNegative()` is the same.
    """
    return Project(NonNegative(), where)
