"""Matrices with given sums of their rows and columns."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._core.data import Data, concrete
from .._core.leaves import gathered, sharded_like
from .._core.loop import while_loop
from .._core.norms import power_below
from ._matrices import AbstractMatrixProjection
from ._search import check_search, tolerance

_UP = 16  # of the scale of a matrix, from which its solution is near already


class TransportPolytope(AbstractMatrixProjection):
    r"""The matrices without negative elements whose rows sum to $r$ and whose columns sum to $c$:
    $P(X)_{ij} = \max(X_{ij} + \alpha_i + \beta_j, 0)$, with $\alpha$ and $\beta$ so that the sums
    are right.

    The last two axes of each leaf are a matrix. Square matrices with all sums 1 are the doubly
    stochastic ones. Which elements are positive is found by Newton steps on the dual, a concave
    function of $\alpha$ and $\beta$; those elements are then the solution of a linear system, and
    so is the derivative. The sums are right to the precision of the dtype, in proportion to the
    largest of them, however large the elements are; these count to their rounding. A matrix with
    an element that is not finite becomes NaN. Each step takes the time of a Cholesky decomposition
    of m + n rows.

    - `row_sums`: $r$, at least 0; one number stands for all rows.
    - `col_sums`: $c$, at least 0; one number stands for all columns. Their total must be that of
      the rows; where the numbers are not known when the set is used, the sums of the columns are
      scaled to it.
    - `tol`: how far the sums may be off when the search ends, in proportion to the largest of
      them; static. `None`, and the least, is 64 times the precision of the dtype.
    - `max_steps`: the most Newton steps for a scale of the elements, at least 1; static. Elements
      that are larger than the sums are scaled down first, and up again in steps.

    Blondel, Seguy and Rolet (2018), AISTATS, arXiv:1710.06276, section 4; the method is that of Qi
    and Sun (1993), Math. Program. 58, 353-367, with an exact line search.
    """

    row_sums: Data = 1.0
    col_sums: Data = 1.0
    tol: int | float | None = eqx.field(default=None, static=True, kw_only=True)
    max_steps: int = eqx.field(default=200, static=True, kw_only=True)

    _real_only: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_search(self)
        for name in ("row_sums", "col_sums"):
            data = getattr(self, name)
            label = f"`TransportPolytope({name}=...)`"
            if not isinstance(data, jax.Array) or data.ndim > 1:
                got = getattr(data, "shape", repr(data))
                raise ValueError(f"{label} must be a number or an array of one axis; got {got}.")
            known = concrete(data)
            if known is not None and np.any(known < 0):
                raise ValueError(f"{label} must be at least 0; got {known[known < 0].min():g}.")
        if self.row_sums.ndim and self.col_sums.ndim:
            self._check_totals(self.row_sums.size, self.col_sums.size)

    def _check_totals(self, m: int, n: int) -> None:
        rows, columns = concrete(self.row_sums), concrete(self.col_sums)
        if rows is None or columns is None:
            return
        total = float(np.sum(np.broadcast_to(rows, m), dtype=np.float64))
        other = float(np.sum(np.broadcast_to(columns, n), dtype=np.float64))
        if abs(total - other) > 1e-5 * max(total, other):
            raise ValueError(
                "`TransportPolytope(row_sums=..., col_sums=...)` must have equal totals; got "
                f"{total:g} for {m} rows and {other:g} for {n} columns."
            )

    def _check_matrix(self, path: str, leaf: Any) -> None:
        m, n = leaf.shape[-2:]
        for name, size in (("row_sums", m), ("col_sums", n)):
            data = getattr(self, name)
            if data.ndim and data.size != size:
                raise ValueError(
                    f"`TransportPolytope({name}=...)` must have {size} numbers for a matrix of "
                    f"shape {(m, n)} at `{path}`; got {data.size}."
                )
        if leaf.size:
            self._check_totals(m, n)

    def _project_matrices(self, x: Float[Array, "... m n"]) -> Float[Array, "... m n"]:
        m, n = x.shape[-2:]
        whole = gathered(x).reshape(-1, m, n)
        rows = jnp.broadcast_to(self.row_sums.astype(x.dtype), (m,))
        columns = jnp.broadcast_to(self.col_sums.astype(x.dtype), (n,))
        total = jnp.sum(columns)
        columns = columns * (jnp.sum(rows) / jnp.where(total > 0, total, 1))
        new = jax.vmap(self._one, in_axes=(0, None, None))(whole, rows, columns)
        return sharded_like(new.reshape(x.shape), x)

    def _one(
        self, x: Float[Array, "m n"], rows: Float[Array, " m"], columns: Float[Array, " n"]
    ) -> Float[Array, "m n"]:
        given = jax.lax.stop_gradient((x, rows, columns))
        near, unit = _searched(*given, tolerance(self.tol, x.dtype), self.max_steps)
        # The value is that of the nearer point, the derivative that of the given one.
        x, rows, columns = near + (x - given[0]) * unit, rows * unit, columns * unit
        new = _on_support(near > 0, x, rows, columns)
        new = jnp.where((near > 0) & ~(new < 0), new, 0) / unit
        return jnp.where(jnp.all(jnp.isfinite(given[0])), new, jnp.nan)


def _beyond(
    x: Float[Array, "m n"], rows: Float[Array, " m"], columns: Float[Array, " n"]
) -> tuple[Float[Array, " m"], Float[Array, " n"]]:
    return jnp.sum(x, axis=1) - rows, jnp.sum(x, axis=0) - columns


def _error(of_rows: Float[Array, " m"], of_columns: Float[Array, " n"]) -> Float[Array, ""]:
    return jnp.maximum(jnp.max(jnp.abs(of_rows)), jnp.max(jnp.abs(of_columns)))


def _on_support(
    support: Bool[Array, "m n"],
    x: Float[Array, "m n"],
    rows: Float[Array, " m"],
    columns: Float[Array, " n"],
) -> Float[Array, "m n"]:
    """The matrix plus a number for each row and each column, so that these are the sums over the
    support."""
    of_rows, of_columns = _beyond(jnp.where(support, x, 0), rows, columns)
    alpha, beta = _solved(support, -of_rows, -of_columns, 0.0, 4)
    return x + alpha[:, None] + beta


class _Search(NamedTuple):
    """- `step`: how many of them at this scale.
    - `near`, `scale`: a matrix that has the same projection, and what the given one was multiplied
      by.
    """

    step: int | Int[Array, ""]
    near: Float[Array, "m n"]
    scale: Float[Array, ""]
    going: Bool[Array, ""]


def _searched(
    x: Float[Array, "m n"],
    rows: Float[Array, " m"],
    columns: Float[Array, " n"],
    tol: float,
    max_steps: int,
) -> tuple[Float[Array, "m n"], Float[Array, ""]]:
    r"""The matrix plus a number for each row and each column, so that these are the sums of what is
    positive; times a factor that brings the sums near 1, and the factor.

    The matrix is scaled down first, so that its elements are no larger than the sums, and up again
    as its solution is found. The projections of $X_{ij}$ and of $X_{ij} + \alpha_i + \beta_j$ are
    the same, so each step goes on from the second, with rounding of its own size.
    """
    unit = power_below(jnp.maximum(jnp.max(rows), jnp.max(columns)))
    goal, lowest = (rows * unit, columns * unit), -jnp.finfo(x.dtype).max / 2**10

    def body(s: _Search) -> _Search:
        near = _stepped(s.near, *goal)
        error = _error(*_beyond(jnp.maximum(near, 0), *goal))
        last = s.scale >= unit
        found = (error <= tol) | (s.step + 1 >= max_steps)
        up = jnp.where(found & ~last, jnp.minimum(_UP, unit / s.scale), 1)
        step = jnp.where(found, 0, s.step + 1)
        return _Search(step, jnp.maximum(near, lowest) * up, s.scale * up, ~(found & last))

    scale = jnp.minimum(unit, power_below(jnp.max(jnp.abs(x))))
    near = x * scale
    # The nearest matrix with these sums, whatever its signs.
    of_rows, of_columns = _beyond(near, *goal)
    mean = jnp.mean(of_rows) / x.shape[1]
    near = near - of_rows[:, None] / x.shape[1] - (of_columns / x.shape[0] - mean)
    start = _Search(jnp.zeros((), int), near, scale, jnp.all(jnp.isfinite(x)))
    return while_loop(lambda s: s.going, body, start).near, unit


def _stepped(
    near: Float[Array, "m n"], rows: Float[Array, " m"], columns: Float[Array, " n"]
) -> Float[Array, "m n"]:
    """After a Newton step."""
    of_rows, of_columns = _beyond(jnp.maximum(near, 0), rows, columns)
    ridge = 1e-2 * jnp.minimum(_error(of_rows, of_columns), 1)
    d_alpha, d_beta = _solved(near > 0, -of_rows, -of_columns, ridge, 1)
    along = d_alpha[:, None] + d_beta

    def slope(size: Array) -> Array:
        of_rows, of_columns = _beyond(jnp.maximum(near + size * along, 0), rows, columns)
        return jnp.sum(of_rows * d_alpha) + jnp.sum(of_columns * d_beta)

    return near + _line_search(slope, slope(jnp.zeros_like(ridge))) * along


def _line_search(slope: Any, start: Float[Array, ""]) -> Float[Array, ""]:
    """The size of a step at which a growing slope, negative at first, is 0; 1 where that is near
    enough."""
    one, steep = jnp.ones_like(start), jnp.abs(start)

    def halve(_: Any, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        beyond = slope(middle) > 0
        return jnp.where(beyond, low, middle), jnp.where(beyond, middle, high)

    # Where the support is in parts that don't fit, the slope stays until the next element enters.
    end = while_loop(lambda t: slope(t) < -0.5 * steep, lambda t: 4 * t, one)
    # A step may be long for what it should add where the support falls into parts.
    halvings = jnp.finfo(start.dtype).nmant + 8
    low, high = jax.lax.fori_loop(0, halvings, halve, (jnp.zeros_like(start), end))
    below, above = slope(low), slope(high)
    size = low + (high - low) * jnp.where(above > below, below / (below - above), 0)
    return jnp.where((end == 1) & (slope(one) <= 1e-3 * steep), one, size)


def _solved(
    support: Bool[Array, "m n"],
    of_rows: Float[Array, " m"],
    of_columns: Float[Array, " n"],
    ridge: Any,
    refinements: int,
) -> tuple[Float[Array, " m"], Float[Array, " n"]]:
    """Numbers for rows and columns whose sums over the support, in each row and column, are
    these. What can be added to rows and taken from columns is left small."""
    m, n = support.shape
    goal = jnp.concatenate([of_rows, of_columns])
    z = support.astype(goal.dtype)
    matrix = jnp.block([[jnp.diag(jnp.sum(z, axis=1)), z], [z.T, jnp.diag(jnp.sum(z, axis=0))]])
    least = 4 * (m + n) * max(m, n) * jnp.finfo(goal.dtype).eps
    shifted = matrix + jnp.maximum(ridge, least) * jnp.eye(m + n, dtype=goal.dtype)
    factor = jax.scipy.linalg.cho_factor(shifted, lower=True)
    solution = jax.scipy.linalg.cho_solve(factor, goal)
    for _ in range(refinements - 1):  # what the shift left
        solution = solution + jax.scipy.linalg.cho_solve(factor, goal - matrix @ solution)
    return solution[:m], solution[m:]
