"""Sets of matrices: positive semidefinite ones, and those with orthonormal columns or rows."""

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact, PyTree

from .._core.leafwise import leafwise
from .._core.leaves import gathered, paths_and_leaves, sharded_like
from .._core.norms import power_below
from .._core.projection import AbstractProjection
from .._core.types import Leaf


class AbstractMatrixProjection(AbstractProjection):
    """Projects matrices: the last two axes of each leaf, those before them batch."""

    @abstractmethod
    def _project_matrices(self, x: Inexact[Array, "... m n"]) -> Inexact[Array, "... m n"]:
        """The projection of matrices of at least one element, in at least float32."""

    @abstractmethod
    def _check_matrix(self, path: str, leaf: Any) -> None:
        """Raises where the last two axes of a leaf don't fit the set."""

    def _project(self, tree: PyTree) -> PyTree:
        for path, leaf in paths_and_leaves(tree):
            if leaf.ndim < 2:
                raise ValueError(
                    f"`{type(self).__name__}` must be given leaves of at least two axes; got shape "
                    f"{leaf.shape} at `{path}`."
                )
            self._check_matrix(path, leaf)
        return leafwise(self._rule)(tree)

    def _rule(self, x: Leaf) -> Leaf:
        # NaN stays where it is. And where types don't tell shardings, the compiler takes them over
        # from here.
        return jnp.where(jnp.isnan(x), x, self._project_matrices(x)) if x.size else x


def _transposed(x: Inexact[Array, "... m n"]) -> Inexact[Array, "... n m"]:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def _factor(x: Inexact[Array, "... m n"]) -> Inexact[Array, "... 1 1"]:
    """The power of 2 that brings the largest element of each matrix near 1."""
    return power_below(jnp.max(jnp.abs(x), axis=(-2, -1), keepdims=True))


class PSD(AbstractMatrixProjection):
    r"""The symmetric matrices without negative eigenvalues: $P(X) = V \max(\Lambda, 0)\, V^T$ for
    the eigenvalues and eigenvectors of the symmetric part, $V \Lambda V^T = (X + X^T) / 2$.

    The last two axes of each leaf are a matrix. Complex ones become Hermitian. Of a matrix without
    negative eigenvalues the symmetric part comes back. The derivative is finite also where
    eigenvalues are equal; for eigenvalues that are 0 it is that of negative ones.

    Higham (1988), Linear Algebra Appl. 103, 103-118, theorem 2.1; its derivative: Malick and Sendov
    (2006), Set-Valued Anal. 14, 1-26.
    """

    def _check_matrix(self, path: str, leaf: Any) -> None:
        if leaf.shape[-1] != leaf.shape[-2]:
            raise ValueError(
                f"`PSD` must be given square matrices; got shape {leaf.shape} at `{path}`."
            )

    def _project_matrices(self, x: Inexact[Array, "... n n"]) -> Inexact[Array, "... n n"]:
        whole, factor = gathered(x), _factor(gathered(x))
        part = whole * (factor / 2)
        new = _without_negative(part + _transposed(part)) / factor
        return sharded_like(new, x)


@jax.custom_jvp
def _without_negative(s: Inexact[Array, "... n n"]) -> Inexact[Array, "... n n"]:
    """A Hermitian matrix with its negative eigenvalues replaced by 0."""
    return _clipped(s, *jnp.linalg.eigh(s, symmetrize_input=False))


def _clipped(s: Array, values: Array, vectors: Array) -> Array:
    new = (vectors * jnp.maximum(values, 0)[..., None, :]) @ _transposed(vectors)
    new = (new + _transposed(new)) / 2
    return jnp.where((values[..., 0] >= 0)[..., None, None], s, new)


@_without_negative.defjvp
def _without_negative_jvp(primals, tangents):
    """In the basis of the eigenvectors, the tangent times the divided differences of max(., 0)."""
    (s,), (ds,) = primals, tangents
    values, vectors = jnp.linalg.eigh(s, symmetrize_input=False)
    upper, lower = values[..., :, None], values[..., None, :]
    upper, lower = jnp.maximum(upper, lower), jnp.minimum(upper, lower)
    mixed = (upper > 0) & (lower <= 0)
    slopes = jnp.where(
        mixed, upper / jnp.where(mixed, upper - lower, 1), jnp.where(upper > 0, 1, 0)
    )
    inner = _transposed(vectors) @ ds @ vectors
    return _clipped(s, values, vectors), vectors @ (slopes * inner) @ _transposed(vectors)


class Orthogonal(AbstractMatrixProjection):
    r"""The matrices with orthonormal columns, $X^T X = I$, or rows where there are more columns
    than rows: the Stiefel manifold. $P(X) = U V^T$ for $X = U \Sigma V^T$, the polar factor.

    The last two axes of each leaf are a matrix. Complex ones become unitary. Not convex: where the
    rank is not full many points are nearest. Then $P(X)$ is one of them, the one that the singular
    value decomposition leads to, and of a zero matrix the one with ones on the diagonal; the
    derivative leaves out the directions that have no derivative.

    Fan and Hoffman (1955), Proc. Am. Math. Soc. 6(1), 111-116, theorem 1.
    """

    def _check_matrix(self, path: str, leaf: Any) -> None:
        """Any matrix fits."""

    def _project_matrices(self, x: Inexact[Array, "... m n"]) -> Inexact[Array, "... m n"]:
        whole = gathered(x)
        tall = x.shape[-2] >= x.shape[-1]
        new = _polar((whole if tall else _transposed(whole)) * _factor(whole))
        return sharded_like(new if tall else _transposed(new), x)


@jax.custom_jvp
def _polar(x: Inexact[Array, "... m n"]) -> Inexact[Array, "... m n"]:
    """The factor with orthonormal columns of a tall matrix."""
    u, _, v = jnp.linalg.svd(x, full_matrices=False)
    return _joined(x, u, v)


def _joined(x: Array, u: Array, v: Array) -> Array:
    zero = jnp.all(x == 0, axis=(-2, -1), keepdims=True)
    return jnp.where(zero, jnp.eye(*x.shape[-2:], dtype=x.dtype), u @ v)


@_polar.defjvp
def _polar_jvp(primals, tangents):
    r"""For dX = U M V^T + a part orthogonal to the columns of U, the derivative is
    U ((M - M^T) / (s_i + s_j)) V^T + that part times V S^-1 V^T."""
    (x,), (dx,) = primals, tangents
    u, s, v = jnp.linalg.svd(x, full_matrices=False)
    least = max(x.shape[-2:]) * jnp.finfo(s.dtype).eps * s[..., :1]
    right = dx @ _transposed(v)
    inner = _transposed(u) @ right
    sums = s[..., :, None] + s[..., None, :]
    sound = sums > least[..., None]
    turned = (inner - _transposed(inner)) * jnp.where(sound, 1 / jnp.where(sound, sums, 1), 0)
    inverse = jnp.where(s > least, 1 / jnp.where(s > least, s, 1), 0)
    outer = (right - u @ inner) * inverse[..., None, :]
    return _joined(x, u, v), (u @ turned + outer) @ v
