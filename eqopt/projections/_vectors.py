"""Projections of vectors, and what of a tree is a vector.

A projection of this kind is written for one vector. By default the whole tree is that vector;
`per_leaf` and `axis` cut the tree into many, each of them projected on its own.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact, PyTree

from .._core.leafwise import jointly, leafwise
from .._core.leaves import gathered, paths_and_leaves, sharded_like
from .._core.projection import AbstractProjection
from .._core.types import Leaf


class AbstractPartsProjection(AbstractProjection):
    """Projects vectors: the whole tree as one, or each leaf, or each slice of each leaf.

    A concrete class says what happens to one vector, which it is given in parts.

    - `per_leaf`: whether each leaf is a vector of its own; static.
    - `axis`: the axis or axes of each leaf along which a vector lies: -1 takes each row of a matrix
      for a vector, `(-2, -1)` each matrix of a stack; static. With `None` the whole tree, or leaf,
      is one vector.
    """

    per_leaf: bool = eqx.field(default=False, static=True, kw_only=True)
    axis: int | tuple[int, ...] | None = eqx.field(default=None, static=True, kw_only=True)

    _real_only: ClassVar[bool] = True

    def __check_init__(self) -> None:
        label = f"`{type(self).__name__}(axis=...)`"
        if any(isinstance(axis, bool) or not isinstance(axis, int) for axis in self._axes()):
            raise TypeError(
                f"{label} must be an integer or a tuple of integers; got {self.axis!r}."
            )
        if self.per_leaf and self.axis is not None:
            raise ValueError(f"{label} must be left out with `per_leaf=True`; got {self.axis!r}.")

    @abstractmethod
    def _project_parts(self, parts: Sequence[Inexact[Array, "..."]]) -> Sequence[Array]:
        """The projection of one vector, given as arrays of any shape, one element at least, all of
        one real dtype of at least float32; in parts of the same shapes."""

    def _project(self, tree: PyTree) -> PyTree:
        for path, leaf in paths_and_leaves(tree):
            self._check_axes(path, leaf)
        self._check_tree(tree)
        if self.axis is not None:
            return leafwise(self._slices)(tree)
        if self.per_leaf:
            return leafwise(self._leaf)(tree)
        return jointly(self._leaves)(tree)

    def _check_tree(self, tree: PyTree) -> None:
        """Raises where data of the set don't fit a tree."""

    def _check_axes(self, path: str, leaf: Any) -> None:
        name, axes = type(self).__name__, self._axes()
        if any(not -leaf.ndim <= axis < leaf.ndim for axis in axes):
            raise ValueError(
                f"`{name}(axis=...)` must name axes that each leaf has; got {self.axis!r}, and "
                f"shape {leaf.shape} at `{path}`."
            )
        if len({axis % leaf.ndim for axis in axes}) < len(axes):
            raise ValueError(
                f"`{name}(axis=...)` must name each axis once; got {self.axis!r}, and shape "
                f"{leaf.shape} at `{path}`."
            )

    def _sizes(self, tree: PyTree) -> set[int]:
        """How long the vectors of a tree are."""
        if self.axis is None and not self.per_leaf:
            return {sum(leaf.size for leaf in jax.tree.leaves(tree))}
        axes = self._axes()
        return {
            math.prod(leaf.shape[axis] for axis in axes) if axes else leaf.size
            for leaf in jax.tree.leaves(tree)
        }

    def _axes(self) -> tuple[int, ...]:
        if self.axis is None:
            return ()
        return self.axis if isinstance(self.axis, tuple) else (self.axis,)

    def _leaves(self, *leaves: Inexact[Array, "..."]) -> tuple[Array, ...]:
        full = [i for i, leaf in enumerate(leaves) if leaf.size]
        new = list(leaves)
        if full:
            parts = self._project_parts([leaves[i] for i in full])
            for i, part in zip(full, parts, strict=True):
                new[i] = part
        return tuple(new)

    def _leaf(self, x: Leaf) -> Leaf:
        return self._leaves(x)[0]

    def _slices(self, x: Leaf) -> Leaf:
        own = {axis % x.ndim for axis in self._axes()}
        project = self._leaf
        for axis in range(x.ndim):
            if axis not in own:  # from the first, so that no axis moves before its turn
                project = jax.vmap(project, in_axes=axis, out_axes=axis)
        return project(x) if x.size else x


class AbstractVectorProjection(AbstractPartsProjection):
    """Projects vectors, each as one array of one axis: the leaves of a tree are raveled and joined
    in their order. Explicitly sharded leaves are gathered for this, and sharded again.

    - `per_leaf`, `axis`: as in `AbstractPartsProjection`.
    """

    @abstractmethod
    def _project_vector(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """The projection of a vector of at least one element, in at least float32."""

    def _project_parts(self, parts: Sequence[Inexact[Array, "..."]]) -> Sequence[Array]:
        flat = [jnp.ravel(gathered(part)) for part in parts]
        whole = self._project_vector(jnp.concatenate(flat) if len(flat) > 1 else flat[0])
        cuts = list(accumulate(part.size for part in parts))[:-1]
        new = jnp.split(whole, cuts) if cuts else [whole]
        new = [sharded_like(x.reshape(p.shape), p) for x, p in zip(new, parts, strict=True)]
        # NaN stays where it is. And where types don't tell shardings, the compiler takes them over
        # from here.
        return [jnp.where(jnp.isnan(p), p, x) for x, p in zip(new, parts, strict=True)]
