"""Which inequalities hold with equality at the nearest point of a polyhedron."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._core.loop import while_loop


class Search(NamedTuple):
    """- `active`: the inequalities that hold with equality.
    - `inverse`: of the products of active rows with each other; 0 elsewhere.
    - `multipliers`: as they were at the point from which the slack is measured, not negative; 0
      but for active rows.
    - `moved`: what has been added to them since; not 0 for the entering row too.
    - `entering`: the row that is being added.
    - `going`: whether a row is violated and can be added.
    - `stuck`: whether a row contradicts the active ones, as far as rounding tells.
    """

    step: int | Int[Array, ""]
    active: Bool[Array, " m"]
    inverse: Float[Array, "m m"]
    multipliers: Float[Array, " m"]
    moved: Float[Array, " m"]
    entering: Int[Array, ""]
    going: Bool[Array, ""]
    stuck: Bool[Array, ""]


def begun(slack: Float[Array, " m"], tol: Float[Array, " m"]) -> Search:
    """A search where no row is active yet; the arguments are those of `continued`."""
    zeros = jnp.zeros_like(slack)
    none = jnp.zeros_like(slack, bool)
    first, going = _most_violated(slack, tol)
    return Search(0, none, zeros[:, None] + zeros, zeros, zeros, first, going, none[0])


def moved_on(
    s: Search, slack: Float[Array, " m"], tol: Float[Array, " m"], factor: Float[Array, ""]
) -> Search:
    """A search that goes on from the nearest point for its active rows, where the slack is
    measured anew, in other units: `factor` of those it had.

    A row that contradicts the others where nothing was moved since the slack was measured does so
    whatever the rounding: there the search ends.
    """
    most = jnp.finfo(slack.dtype).max
    multipliers = jnp.minimum((s.multipliers + s.moved) * factor, most)
    multipliers = jnp.where(s.active, multipliers, 0)
    first, going = _most_violated(jnp.where(s.active, jnp.inf, slack), tol)
    going = going & ~(s.stuck & jnp.all(s.moved == 0))
    return Search(
        s.step,
        s.active,
        s.inverse,
        multipliers,
        jnp.zeros_like(multipliers),
        first,
        going,
        jnp.zeros_like(s.stuck),
    )


def _most_violated(
    slack: Float[Array, " m"], tol: Float[Array, " m"]
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """A row, and whether it is violated by more than its tolerance."""
    first = jnp.argmin(slack + tol)
    return first, slack[first] < -tol[first]


def continued(
    s: Search,
    rows: Float[Array, "m n"],
    slack: Float[Array, " m"],
    tol: Float[Array, " m"],
    max_steps: int,
) -> Search:
    r"""After the search for the rows with $c_i^T y = s_i$ and a positive multiplier at the shortest
    $y$ with $C y \le s$.

    - `rows`: $C$, of rows of length 1, or 0.
    - `slack`: $s$ at the point where the search stands, in units in which it is no large number.
    - `tol`: how far each row may be violated.
    - `max_steps`: the most rows that are added or dropped.

    The dual method of Goldfarb and Idnani (1983), Math. Program. 27, 1-33: it adds the row that is
    violated most, and drops those whose multipliers reach 0 on the way.
    """
    return while_loop(
        lambda s: s.going & (s.step < max_steps), lambda s: _stepped(rows, slack, tol, s), s
    )


def _stepped(
    rows: Float[Array, "m n"], slack: Float[Array, " m"], tol: Float[Array, " m"], s: Search
) -> Search:
    """After one row more, or one less."""
    new = rows[s.entering]
    weights, rest = _split(rows, s, new)
    squared = jnp.sum(jnp.square(rest))
    independent = squared > jnp.square(100 * jnp.finfo(slack.dtype).eps)
    left = slack[s.entering] + new @ (s.moved @ rows)
    full = jnp.where(independent, -left / jnp.where(independent, squared, 1), jnp.inf)
    falling = s.active & (weights > 0)
    until = (s.multipliers + s.moved) / jnp.where(falling, weights, 1)
    until = jnp.where(falling, until, jnp.inf)
    first = jnp.argmin(until)
    drops = until[first] < full
    size = jnp.minimum(until[first], full)
    stuck = jnp.isinf(size)  # the row contradicts the active ones
    size = jnp.where(stuck, 0, size)
    entering = jnp.arange(len(slack)) == s.entering
    moved = jnp.maximum(s.moved - size * weights, -s.multipliers) + size * entering
    dropped = drops & (jnp.arange(len(slack)) == first)
    inverse = jnp.where(
        drops,
        _without(s.inverse, first),
        s.inverse + jnp.outer(weights - entering, weights - entering) / squared,
    )
    active = jnp.where(drops, s.active & ~dropped, s.active | entering)
    moved = jnp.where(dropped, -s.multipliers, moved)
    slack = slack + rows @ (moved @ rows)
    slack = jnp.where(active, jnp.inf, slack)
    # What the slack says is no better than the rounding of what was moved since it was measured.
    rounding = 64 * jnp.finfo(slack.dtype).eps * jnp.max(jnp.abs(moved))
    first, violated = _most_violated(slack, jnp.maximum(tol, rounding))
    return Search(
        s.step + 1,
        jnp.where(stuck, s.active, active),
        inverse,
        s.multipliers,
        moved,
        jnp.where(drops, s.entering, first),
        ~stuck & (drops | violated),
        stuck,
    )


def _split(
    rows: Float[Array, "m n"], s: Search, new: Float[Array, " n"]
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
