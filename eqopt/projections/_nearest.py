"""The nearest point of an affine set, by a factorisation, and its derivatives."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._core.loop import varying_together, while_loop
from .._core.norms import largest_magnitude, power_below

_MAX_PASSES = 50


class _Factors(NamedTuple):
    """- `scale`: what brings each row of the matrix to length 1.
    - `u`, `inverse`, `v`: the singular value decomposition of these rows, the inverses of the
      singular values in place of them, 0 for those that are left out.
    - `kept`: which singular values are not.
    """

    scale: Float[Array, " m"]
    u: Float[Array, "m r"]
    inverse: Float[Array, " r"]
    v: Float[Array, "r n"]
    kept: Bool[Array, " r"]


class _Pass(NamedTuple):
    number: int | Int[Array, ""]
    point: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    going: Bool[Array, ""]


@jax.custom_jvp
def nearest(
    a: Float[Array, "m n"], b: Float[Array, " m"], x: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    r"""The nearest point $p$ to $x$ with $A p = b$, and multipliers with $p = x - A^T \lambda$,
    divided by the factors that bring the rows of $A$ to length 1.

    By a singular value decomposition of these rows: rows that depend on others are left out of
    account, zero rows with them. Where $A p = b$ has no solution, $p$ solves it in the sense of
    least squares. The point that is found is projected again until that changes nothing, so that
    the equations hold to rounding of $p$, however large $x$ is.

    $p$ and $\lambda$ solve a linear system, so the derivatives solve the same system for other
    right-hand sides, finite whatever the rank.
    """
    if not len(b):
        return x, b
    factors = _factors(a)
    eps = jnp.finfo(x.dtype).eps

    def again(s: _Pass) -> _Pass:
        factor = power_below(largest_magnitude((s.point, b * factors.scale)))
        step, multipliers = _step(factors, b * factors.scale * factor, s.point * factor)
        point = s.point - step / factor
        moved = jnp.max(jnp.abs(step)) > 8 * eps * jnp.max(jnp.abs(point * factor))
        return _Pass(s.number + 1, point, s.multipliers + multipliers / factor, moved)

    start = _Pass(0, x, jnp.zeros_like(b), jnp.max(jnp.abs(x)) >= 0)
    end = while_loop(lambda s: s.going & (s.number < _MAX_PASSES), again, start)
    return jnp.where(jnp.all(jnp.isfinite(x)), end.point, jnp.nan), end.multipliers


@nearest.defjvp
def _(primals, tangents):
    (a, b, x), (da, db, dx) = varying_together((primals, tangents))
    point, multipliers = nearest(a, b, x)
    if not len(b):
        return (point, multipliers), (dx, db)
    factors = _factors(jax.lax.stop_gradient(a))
    rows = a * factors.scale[:, None]
    d_rows = da * factors.scale[:, None]

    n = len(x)  # one vector, as derivatives of the solution need one

    def system(both: Array) -> Array:
        return jnp.concatenate([both[:n] + both[n:] @ rows, rows @ both[:n]])

    def solved(_: Any, goal: Array) -> Array:
        step, multipliers = _step(factors, goal[n:], goal[:n])
        return jnp.concatenate([goal[:n] - step, multipliers])

    goal = jnp.concatenate([dx - multipliers @ d_rows, db * factors.scale - d_rows @ point])
    both = jax.lax.custom_linear_solve(system, goal, solved, symmetric=True)
    return (point, multipliers), (both[:n], both[n:])


def _factors(a: Float[Array, "m n"]) -> _Factors:
    scale = row_scale(a)
    u, s, v = jnp.linalg.svd(a * scale[:, None], full_matrices=False)
    kept = s > max(a.shape) * jnp.finfo(s.dtype).eps * jnp.max(s, initial=0)
    return _Factors(scale, u, jnp.where(kept, 1 / jnp.where(kept, s, 1), 0), v, kept)


def _step(
    f: _Factors, b: Float[Array, " m"], x: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """What is taken from x, for rows of length 1, and the multipliers of these."""
    excess = jnp.where(f.kept, f.v @ x - f.inverse * (b @ f.u), 0)
    return excess @ f.v, f.u @ (f.inverse * excess)


def row_scale(a: Float[Array, "m n"]) -> Float[Array, " m"]:
    """The factor that brings each row to length 1; 1 for a zero row."""
    factor = power_below(jnp.max(jnp.abs(a), axis=1, initial=0))
    squares = jnp.sum(jnp.square(a * factor[:, None]), axis=1)
    return factor * jnp.where(squares > 0, 1 / jnp.sqrt(jnp.where(squares > 0, squares, 1)), 1)
