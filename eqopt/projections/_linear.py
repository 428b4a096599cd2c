"""Sets given by one vector: a line, a hyperplane, a half-space."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._core.data import Data
from .._core.hyperparam import Number
from ._data import as_vector, check_fits, check_nonzero, scaled
from ._vectors import AbstractVectorProjection


class AbstractOneVector(AbstractVectorProjection):
    """A set that is given by a vector, not zero, in the field that `_given` names.

    - `per_leaf`, `axis`: as in `AbstractPartsProjection`.
    """

    _given: ClassVar[str]

    def __check_init__(self) -> None:
        check_nonzero(self, self._given)

    def _check_tree(self, tree: PyTree) -> None:
        check_fits(self, self._given, tree)


class Vector(AbstractOneVector):
    r"""The line through zero and a vector: $P(x) = \frac{a^T x}{a^T a}\, a$.

    - `direction`: $a$, not zero: an array of one axis, or a tree like the projected one. A zero
      vector that was not seen at construction gives zero.
    - `per_leaf`, `axis`: what one vector is, if not the whole tree; see
      [`AbstractPartsProjection`][eqopt.projections.AbstractPartsProjection].
    """

    direction: Data

    _given: ClassVar[str] = "direction"

    def _project_vector(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        a, squared, _ = scaled(as_vector(self.direction, x))
        return jnp.sum(a * x) / squared * a


class Hyperplane(AbstractOneVector):
    r"""The hyperplane $a^T x = b$: $P(x) = x - \frac{a^T x - b}{a^T a}\, a$.

    - `normal`: $a$, not zero: an array of one axis, or a tree like the projected one. With a zero
      vector that was not seen at construction nothing is changed.
    - `offset`: $b$.
    - `per_leaf`, `axis`: what one vector is, if not the whole tree; see
      [`AbstractPartsProjection`][eqopt.projections.AbstractPartsProjection].
    """

    normal: Data
    offset: Number = 0.0

    _given: ClassVar[str] = "normal"

    def _project_vector(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        a, squared, factor = scaled(as_vector(self.normal, x))
        return x - (jnp.sum(a * x) - self.offset * factor) / squared * a


class Halfspace(AbstractOneVector):
    r"""The half-space $a^T x \le b$: $P(x) = x - \frac{\max(a^T x - b, 0)}{a^T a}\, a$.

    A vector in the half-space comes back unchanged, bit for bit, with the identity for a
    derivative.

    - `normal`: $a$, not zero: an array of one axis, or a tree like the projected one. With a zero
      vector that was not seen at construction nothing is changed.
    - `offset`: $b$.
    - `per_leaf`, `axis`: what one vector is, if not the whole tree; see
      [`AbstractPartsProjection`][eqopt.projections.AbstractPartsProjection].
    """

    normal: Data
    offset: Number = 0.0

    _given: ClassVar[str] = "normal"

    def _project_vector(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        a, squared, factor = scaled(as_vector(self.normal, x))
        beyond = jnp.sum(a * x) - self.offset * factor
        return x - jnp.where(beyond > 0, beyond, 0) / squared * a
