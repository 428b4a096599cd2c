"""Matrices with given sums of their rows and columns."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._core.data import Data, concrete
from .._core.leaves import gathered, sharded_like
from .._core.norms import power_below
from ._matrices import AbstractMatrixProjection
from ._search import check_search, tolerance


class TransportPolytope(AbstractMatrixProjection):
    r"""The matrices without negative elements whose rows sum to $r$ and whose columns sum to $c$:
    $P(X)_{ij} = \max(X_{ij} + \alpha_i + \beta_j, 0)$, with $\alpha$ and $\beta$ so that the sums
    are right.

    The last two axes of each leaf are a matrix. Square matrices with all sums 1 are the doubly
    stochastic ones. Which elements are positive is found by Newton steps on the dual, a concave
    function of $\alpha$ and $\beta$; those elements are then the solution of a linear system, and
    so is the derivative. The sums are right to the precision of the dtype, in proportion to the
    largest of them, however large the elements are. Each step takes the time of a Cholesky
    decomposition of m + n rows.

    - `row_sums`: $r$, at least 0; one number stands for all rows.
    - `col_sums`: $c$, at least 0; one number stands for all columns. Their total must be that of
      the rows; where the numbers are not known when the set is used, the sums of the columns are
      scaled to it.
    - `tol`: how far the sums may be off when the search ends, in proportion to the largest of the
      elements and the sums; static. `None`, and the least, is 64 times the precision of the dtype.
      Where they are off by more than that in proportion to the sums alone, what was found is
      projected again.
    - `max_steps`: the most Newton steps of a search, at least 1; static.

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
        near, support, factor = self._searched(*given)
        # The value is that of the nearer point, the derivative that of the given one.
        x, rows, columns = near + (x - given[0]) * factor, rows * factor, columns * factor
        return _on_support(support, x, rows, columns) / factor

    def _searched(
        self, x: Float[Array, "m n"], rows: Float[Array, " m"], columns: Float[Array, " n"]
    ) -> tuple[Float[Array, "m n"], Bool[Array, "m n"], Float[Array, ""]]:
        """Which elements of the projection are positive, and a matrix that has the same projection
        and is of its size, times a factor.

        What is found for a matrix of large elements has sums that are off by the rounding of these.
        It is projected again, until its own rounding is all that is left.
        """
        sums = jnp.maximum(jnp.max(rows), jnp.max(columns))
        tol = tolerance(self.tol, x.dtype)

        def again(s: _Pass) -> _Pass:
            factor = power_below(jnp.maximum(jnp.max(jnp.abs(s.new)), sums))
            near = s.new * factor, rows * factor, columns * factor
            support = _support(*near, tol, self.max_steps)
            new = _on_support(support, *near)
            error = jnp.maximum(
                jnp.max(jnp.abs(jnp.sum(new, axis=1) - near[1])),
                jnp.max(jnp.abs(jnp.sum(new, axis=0) - near[2])),
            )
            going = (error > tol * sums * factor) & (error / factor < s.error / 2)
            return _Pass(near[0], support, factor, new / factor, error / factor, going)

        most, start = jnp.full_like(sums, jnp.inf), jnp.max(jnp.abs(x)) >= 0  # false for NaN
        first = again(_Pass(x, x > 0, most, x, most, start))
        end = jax.lax.while_loop(lambda s: s.going, again, first)
        return end.near, end.support, end.factor


class _Pass(NamedTuple):
    """- `near`, `support`, `factor`: what was projected, times a factor, and where that is not 0.
    - `new`, `error`: the projection, and how far its sums are off.
    """

    near: Float[Array, "m n"]
    support: Bool[Array, "m n"]
    factor: Float[Array, ""]
    new: Float[Array, "m n"]
    error: Float[Array, ""]
    going: Bool[Array, ""]


def _on_support(
    support: Bool[Array, "m n"],
    x: Float[Array, "m n"],
    rows: Float[Array, " m"],
    columns: Float[Array, " n"],
) -> Float[Array, "m n"]:
    """The nearest matrix with these sums that is 0 where the support is not."""
    inside = jnp.where(support, x, 0)
    alpha, beta = _solved(
        support, rows - jnp.sum(inside, axis=1), columns - jnp.sum(inside, axis=0), 0.0, 4
    )
    new = x + alpha[:, None] + beta
    return jnp.where(support & ~(new < 0), new, 0)


class _Search(NamedTuple):
    step: int | Int[Array, ""]
    alpha: Float[Array, " m"]
    beta: Float[Array, " n"]
    going: Bool[Array, ""]


def _support(
    x: Float[Array, "m n"],
    rows: Float[Array, " m"],
    columns: Float[Array, " n"],
    tol: float,
    max_steps: int,
) -> Bool[Array, "m n"]:
    """Which elements of the projection are positive."""

    def beyond(alpha: Array, beta: Array) -> tuple[Array, Array]:
        positive = jnp.maximum(x + alpha[:, None] + beta, 0)
        return jnp.sum(positive, axis=1) - rows, jnp.sum(positive, axis=0) - columns

    def slope(size: Array, s: _Search, d_alpha: Array, d_beta: Array) -> Array:
        of_rows, of_columns = beyond(s.alpha + size * d_alpha, s.beta + size * d_beta)
        return jnp.sum(of_rows * d_alpha) + jnp.sum(of_columns * d_beta)

    def body(s: _Search) -> _Search:
        of_rows, of_columns = beyond(s.alpha, s.beta)
        error = jnp.maximum(jnp.max(jnp.abs(of_rows)), jnp.max(jnp.abs(of_columns)))
        support = x + s.alpha[:, None] + s.beta > 0
        d_alpha, d_beta = _solved(support, -of_rows, -of_columns, 1e-2 * jnp.minimum(error, 1), 1)
        start = slope(jnp.zeros_like(error), s, d_alpha, d_beta)
        size = _line_search(lambda t: slope(t, s, d_alpha, d_beta), start)
        alpha, beta = s.alpha + size * d_alpha, s.beta + size * d_beta
        of_rows, of_columns = beyond(alpha, beta)
        error = jnp.maximum(jnp.max(jnp.abs(of_rows)), jnp.max(jnp.abs(of_columns)))
        return _Search(s.step + 1, alpha, beta, error > tol)

    # The nearest matrix with these sums, whatever its signs.
    alpha = (rows - jnp.sum(x, axis=1)) / x.shape[1]
    beta = (columns - jnp.sum(x, axis=0)) / x.shape[0]
    start = _Search(0, alpha, beta - jnp.mean(alpha), jnp.max(jnp.abs(x)) >= 0)
    end = jax.lax.while_loop(lambda s: s.going & (s.step < max_steps), body, start)
    return x + end.alpha[:, None] + end.beta > 0


def _line_search(slope: Any, start: Float[Array, ""]) -> Float[Array, ""]:
    """The size of a step, at most 1, at which a growing slope is 0."""

    def halve(_: Any, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        beyond = slope(middle) > 0
        return jnp.where(beyond, low, middle), jnp.where(beyond, middle, high)

    one = jnp.ones_like(start)
    # A step may be long for what it should add where the support falls into parts.
    halvings = jnp.finfo(start.dtype).nmant + 8
    low, high = jax.lax.fori_loop(0, halvings, halve, (jnp.zeros_like(start), one))
    below, above = slope(low), slope(high)
    size = low + (high - low) * jnp.where(above > below, below / (below - above), 0)
    return jnp.where(slope(one) <= 1e-3 * jnp.abs(start), one, size)


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
