"""Which inequalities hold with equality at the nearest point of a polyhedron."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class _Search(NamedTuple):
    """- `active`: the inequalities that hold with equality.
    - `inverse`: of the products of active rows with each other; 0 elsewhere.
    - `multipliers`: not negative; 0 but for active rows and the entering one.
    - `entering`: the row that is being added.
    - `going`: whether a row is violated and can be added.
    """

    step: int | Int[Array, ""]
    active: Bool[Array, " m"]
    inverse: Float[Array, "m m"]
    multipliers: Float[Array, " m"]
    entering: Int[Array, ""]
    going: Bool[Array, ""]


def active_rows(
    rows: Float[Array, "m n"], slack: Float[Array, " m"], tol: float, max_steps: int
) -> Bool[Array, " m"]:
    r"""The rows with $c_i^T y = s_i$ and a positive multiplier at the shortest $y$ with
    $C y \le s$.

    - `rows`: $C$, of rows of length 1, or 0.
    - `slack`: $s$, the largest of them about 1.
    - `tol`: how far a row may be violated.
    - `max_steps`: the most rows that are added or dropped.

    The dual method of Goldfarb and Idnani (1983), Math. Program. 27, 1-33: it starts at zero, adds
    the row that is violated most, and drops those whose multipliers reach 0 on the way.
    """
    zeros = jnp.zeros_like(slack)
    start = _Search(
        0,
        jnp.zeros_like(slack, bool),
        zeros[:, None] + zeros,
        zeros,
        jnp.argmin(slack),
        jnp.min(slack) < -tol,
    )
    end = jax.lax.while_loop(
        lambda s: s.going & (s.step < max_steps), lambda s: _stepped(rows, slack, tol, s), start
    )
    return end.active


def _stepped(
    rows: Float[Array, "m n"], slack: Float[Array, " m"], tol: float, s: _Search
) -> _Search:
    """After one row more, or one less."""
    new = rows[s.entering]
    weights, rest = _split(rows, s, new)
    squared = jnp.sum(jnp.square(rest))
    independent = squared > jnp.square(100 * jnp.finfo(slack.dtype).eps)
    left = slack[s.entering] + new @ (s.multipliers @ rows)
    full = jnp.where(independent, -left / jnp.where(independent, squared, 1), jnp.inf)
    falling = s.active & (weights > 0)
    until = jnp.where(falling, s.multipliers / jnp.where(falling, weights, 1), jnp.inf)
    first = jnp.argmin(until)
    drops = until[first] < full
    size = jnp.minimum(until[first], full)
    stuck = jnp.isinf(size)  # the row contradicts the active ones
    size = jnp.where(stuck, 0, size)
    entering = jnp.arange(len(slack)) == s.entering
    multipliers = jnp.maximum(s.multipliers - size * weights, 0) + size * entering
    dropped = drops & (jnp.arange(len(slack)) == first)
    inverse = jnp.where(
        drops,
        _without(s.inverse, first),
        s.inverse + jnp.outer(weights - entering, weights - entering) / squared,
    )
    active = jnp.where(drops, s.active & ~dropped, s.active | entering)
    multipliers = jnp.where(dropped, 0, multipliers)
    slack = slack + rows @ (multipliers @ rows)
    slack = jnp.where(active, jnp.inf, slack)
    next_one = jnp.where(drops, s.entering, jnp.argmin(slack))
    return _Search(
        s.step + 1,
        jnp.where(stuck, s.active, active),
        inverse,
        multipliers,
        next_one,
        ~stuck & (drops | (jnp.min(slack) < -tol)),
    )


def _split(
    rows: Float[Array, "m n"], s: _Search, new: Float[Array, " n"]
) -> tuple[Float[Array, " m"], Float[Array, " n"]]:
    """A row as a combination of the active rows, and what is orthogonal to all of them."""
    rows = jnp.where(s.active[:, None], rows, 0)
    weights = s.inverse @ (rows @ new)
    for _ in range(2):  # what rounding left
        weights = weights + s.inverse @ (rows @ (new - weights @ rows))
    return weights, new - weights @ rows


def _without(inverse: Float[Array, "m m"], row: Int[Array, ""]) -> Float[Array, "m m"]:
    """The inverse without one of the rows."""
    column, pivot = inverse[:, row], inverse[row, row]
    inverse = inverse - jnp.outer(column, column) / jnp.where(pivot > 0, pivot, 1)
    kept = jnp.arange(len(column)) != row
    return jnp.where(kept[:, None] & kept, inverse, 0)
