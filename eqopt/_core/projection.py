"""Projections: the nearest tree of a set."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import wadler_lindig as wl
from jaxtyping import PyTree

from .component import Component, infix
from .hyperparam import check_scalars
from .leaves import check_real, paths_and_leaves, trained


class AbstractProjection(Component):
    """Maps a tree to the nearest tree of a set.

    `p >> q` applies p, then q, which is in general not the projection onto both sets.
    """

    _real_only: ClassVar[bool] = False  # whether the set has no complex elements

    @abstractmethod
    def _project(self, tree: PyTree) -> PyTree:
        """The projection of a tree whose leaves are float arrays."""

    def __call__(self, tree: PyTree) -> PyTree:
        """The nearest tree of the set: the float arrays of `tree` changed, its other leaves left
        alone. A tree of integer arrays alone is taken as floats."""
        kept = trained(tree)
        if not jax.tree.leaves(kept):
            tree = jax.tree.map(_as_float, tree)
            kept = trained(tree)
        if jax.tree.leaves(tree) and not jax.tree.leaves(kept):
            path, leaf = paths_and_leaves(tree)[0]
            raise TypeError(
                f"`{type(self).__name__}` must be given at least one array; got {leaf!r} at "
                f"`{path}`. Use `jnp.asarray`."
            )
        return eqx.combine(self._apply(kept), tree)

    def _apply(self, tree: PyTree) -> PyTree:
        """The projection inside other projections and transformations."""
        check_scalars(self)
        if self._real_only:
            check_real(type(self).__name__, tree)
        return self._project(tree)

    def __rshift__(self, other: Any) -> "Sequential":
        if not isinstance(other, AbstractProjection):
            return NotImplemented
        return Sequential(*_parts(self), *_parts(other))


def _as_float(x: Any) -> Any:
    is_integer = eqx.is_array(x) and jnp.issubdtype(x.dtype, jnp.integer)
    return jnp.asarray(x, float) if is_integer else x


def _parts(projection: AbstractProjection) -> tuple[AbstractProjection, ...]:
    return projection.parts if isinstance(projection, Sequential) else (projection,)


class Sequential(AbstractProjection):
    """One projection after the other; `p >> q` builds it.

    - `parts`: the projections.
    """

    parts: tuple[AbstractProjection, ...]

    def __init__(self, *parts: AbstractProjection):
        self.parts = parts

    def _project(self, tree: PyTree) -> PyTree:
        for part in self.parts:
            tree = part._apply(tree)
        return tree

    def __pdoc__(self, **kwargs: Any) -> wl.AbstractDoc:
        return infix(">>", self.parts, **kwargs)
