"""Bounds on each element."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from .._core.leafwise import leafwise
from .._core.project import Project
from .._core.projection import AbstractProjection
from .._core.types import RealLeaf


class NonNegative(AbstractProjection):
    r"""The non-negative orthant, $P(x) = \max(x, 0)$.

    Exact. The derivative is 1 where $x > 0$ and 0 elsewhere, at 0 too.
    """

    def _project(self, tree: PyTree) -> PyTree:
        return leafwise(self._rule)(tree)

    def _rule(self, x: RealLeaf) -> RealLeaf:
        if jnp.iscomplexobj(x):
            raise TypeError("`NonNegative` must be given real arrays; got a complex one.")
        return jnp.where(x > 0, x, jnp.where(x <= 0, 0, x))  # NaN stays NaN


def KeepParamsNonNegative(where: Any = None) -> Project:
    """optax's name for `Project(NonNegative())`: belongs at the end of a chain.

    - `where`: the leaves that are kept non-negative, all if `None`: a selector or a PyTree of
      bools.

    `optim >> projections.NonNegative()` is the same.
    """
    return Project(NonNegative(), where)
