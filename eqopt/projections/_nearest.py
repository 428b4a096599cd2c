"""The nearest point of an affine set, by a factorisation, and its derivatives."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core.norms import power_below


@jax.custom_jvp
def nearest(
    a: Float[Array, "m n"], b: Float[Array, " m"], x: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    r"""The nearest point $p$ to $x$ with $A p = b$, and multipliers with $p = x - A^T \lambda$.

    By a singular value decomposition of the rows, scaled to length 1: rows that depend on others
    are left out of account, zero rows with them. Where $A p = b$ has no solution, $p$ solves it in
    the sense of least squares.

    $p$ and $\lambda$ solve a linear system, so the derivatives solve the same system for other
    right-hand sides, finite whatever the rank.
    """
    if not len(b):
        return x, b
    scale = row_scale(a)
    u, s, v = jnp.linalg.svd(a * scale[:, None], full_matrices=False)
    kept = s > max(a.shape) * jnp.finfo(s.dtype).eps * jnp.max(s, initial=0)
    inverse = jnp.where(kept, 1 / jnp.where(kept, s, 1), 0)
    excess = jnp.where(kept, v @ x - inverse * ((b * scale) @ u), 0)
    return x - excess @ v, scale * (u @ (inverse * excess))


@nearest.defjvp
def _nearest_jvp(primals, tangents):
    (a, b, x), (da, db, dx) = primals, tangents
    p, multipliers = nearest(a, b, x)
    return (p, multipliers), nearest(a, db - da @ p, dx - multipliers @ da)


def row_scale(a: Float[Array, "m n"]) -> Float[Array, " m"]:
    """The factor that brings each row to length 1; 1 for a zero row."""
    factor = power_below(jnp.max(jnp.abs(a), axis=1, initial=0))
    squares = jnp.sum(jnp.square(a * factor[:, None]), axis=1)
    return factor * jnp.where(squares > 0, 1 / jnp.sqrt(jnp.where(squares > 0, squares, 1)), 1)
