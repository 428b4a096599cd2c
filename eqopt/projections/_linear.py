"""Sets given by one vector: a line, a hyperplane, a half-space."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._core.data import Data
from .._core.hyperparam import Number
from .._core.loop import while_loop
from .._core.norms import largest_magnitude, power_below
from ._data import as_vector, check_fits, check_nonzero
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
        return _along(as_vector(self.direction, x), x, 0.0)


class Hyperplane(AbstractOneVector):
    r"""The hyperplane $a^T x = b$: $P(x) = x - \frac{a^T x - b}{a^T a}\, a$.

    The equation holds to rounding of $x$; with [`Affine`][eqopt.projections.Affine], to that of the
    result.

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
        return x - _along(as_vector(self.normal, x), x, self.offset)


class Halfspace(AbstractOneVector):
    r"""The half-space $a^T x \le b$: $P(x) = x - \frac{\max(a^T x - b, 0)}{a^T a}\, a$.

    A vector in the half-space comes back unchanged, bit for bit, with the identity for a
    derivative. From elsewhere the result is in it to rounding of $x$; with
    [`Polyhedron`][eqopt.projections.Polyhedron], to that of the result.

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
        return x - _along(as_vector(self.normal, x), x, self.offset, only_beyond=True)


def _along(
    a: Float[Array, " n"], x: Float[Array, " n"], b: Any, only_beyond: bool = False
) -> Float[Array, " n"]:
    """How far a vector is from a hyperplane, along the normal: `(a^T x - b) / a^T a` times `a`; 0
    for a zero vector, and, with `only_beyond`, on the side where that is negative."""
    beyond, squared, of_a, of_x = _products(a, x, jnp.asarray(b, x.dtype))
    if only_beyond:
        beyond = jnp.where(beyond <= 0, 0, beyond)
    size = beyond / jnp.where(squared > 0, squared, 1)
    of_a, of_x = jax.lax.stop_gradient((of_a, of_x))  # their squares may underflow
    # Choices, else the compiler multiplies the factors with each other.
    along = size * jnp.where(of_a == 1, a, of_a * a)
    return jnp.where(of_x == 1, along, along / of_x)


@jax.custom_jvp
def _products(
    a: Float[Array, " n"], x: Float[Array, " n"], b: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    r"""$f c\,(a^T x - b)$, $f^2 a^T a$, $f$ and $c$.

    The factors $f$ and $c$ are 1 unless the quotient of the two overflows, or the second is far
    from 1. Then they are the powers of 2 that bring the largest numbers of $a$, and of $x$ and $b$,
    near 1: constants to derivatives.
    """
    beyond, squared = _product(a, x) - b, jnp.sum(jnp.square(a))
    far = float(jnp.finfo(squared.dtype).tiny) ** 0.4  # derivatives divide by the square
    usual = (squared > far) & (squared < 1 / far)
    usual &= jnp.isfinite(beyond / jnp.where(usual, squared, 1))

    def scale(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        # Else the compiler takes this out of the loop.
        own_a, own_x, own_b, _ = jax.lax.optimization_barrier((a, x, b, carry))
        of_a = power_below(largest_magnitude(own_a))
        of_x = power_below(largest_magnitude((own_x, own_b)))
        own_a = own_a * of_a
        beyond = _product(own_a, own_x * of_x) - own_b * of_x * of_a
        return beyond, jnp.sum(jnp.square(own_a)), of_a, of_x, jnp.zeros_like(carry[-1])

    # A loop of one round at most. Mapped over vectors it is left out where none needs it, which a
    # conditional is not.
    one = jnp.ones_like(beyond)
    carry = (beyond, squared, one, one, ~usual)
    beyond, squared, of_a, of_x, _ = while_loop(lambda carry: carry[-1], scale, carry)
    return beyond, squared, of_a, of_x


@_products.defjvp
def _products_jvp(primals: Any, tangents: Any) -> Any:
    (a, x, b), (da, dx, db) = primals, tangents
    beyond, squared, of_a, of_x = _products(a, x, b)
    a, x = a * of_a, x * of_x
    d_beyond = of_a * _product(da, x) + of_x * (_product(a, dx) - of_a * db)
    d_squared = 2 * of_a * _product(a, da)
    constant = jnp.zeros_like(of_a)
    return (beyond, squared, of_a, of_x), (d_beyond, d_squared, constant, constant)


def _product(a: Float[Array, " n"], b: Float[Array, " n"]) -> Float[Array, ""]:
    return jnp.dot(a, b, precision=jax.lax.Precision.HIGHEST)  # mapped, faster than a sum
