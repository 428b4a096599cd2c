"""Sets given by matrices: solutions of linear equations and inequalities."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from .._core.data import Data
from .._core.loop import while_loop
from .._core.norms import largest_magnitude, power_below
from ._active import begun, continued, moved_on
from ._data import as_matrix, as_rows, check_fits, check_rows, known_array
from ._feasible import check_consistent, check_not_empty
from ._nearest import nearest, row_scale
from ._search import check_search, tolerance
from ._vectors import AbstractVectorProjection


class Affine(AbstractVectorProjection):
    r"""The solutions of $A x = b$: $P(x) = x - A^T (A A^T)^+ (A x - b)$.

    By a singular value decomposition of the rows, each scaled to length 1. Rows that follow from
    others are left out of account. The equations hold to rounding of the result, however large $x$
    is. The cost is that of the decomposition of an m by n matrix.

    - `A`: the matrix, an array of two axes, or a tree like the projected one, with the axis of the
      rows in front of each leaf. A zero row that was not seen at construction is left out.
    - `b`: a number for each row; one number stands for all. Equations that contradict each other
      raise where the numbers are known at construction; else they are solved in the sense of least
      squares.
    - `per_leaf`, `axis`: what one vector is, if not the whole tree; see
      [`AbstractPartsProjection`][eqopt.projections.AbstractPartsProjection].
    """

    A: Data
    b: Data = 0.0

    def __check_init__(self) -> None:
        rows = check_rows(self, "A", "b")
        check_consistent("Affine", known_array(self.A, rows), known_array(self.b))

    def _check_tree(self, tree: PyTree) -> None:
        check_fits(self, "A", tree, matrix=True)

    def _project_vector(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        a = as_matrix(self.A, x)
        return nearest(a, as_rows(self.b, a), x)[0]


class Polyhedron(AbstractVectorProjection):
    r"""The polyhedron $A x = b$, $C x \le d$.

    The inequalities that hold with equality at the nearest point are found by an active set
    method on the multipliers; the point is then the nearest one that solves these equations, as in
    [`Affine`][eqopt.projections.Affine], to rounding. The derivative is that of this last step: a
    tangent is projected onto the null space of the equations. Each step takes the time and the
    memory of a matrix of one row and one column for each inequality.

    - `A`, `b`: the equations, as in [`Affine`][eqopt.projections.Affine]; none if `None`.
    - `C`, `d`: the inequalities, in the same form; none if `None`.
    - `tol`: how far an inequality may be violated when the search ends, in proportion to the
      largest element of the result and the distance of its own bound from zero; static. `None`,
      and the least, is 64 times the precision of the dtype.
    - `max_steps`: the most inequalities that are added or dropped, at least 1; static.
    - `per_leaf`, `axis`: what one vector is, if not the whole tree; see
      [`AbstractPartsProjection`][eqopt.projections.AbstractPartsProjection].

    Without a common point the set is empty: this raises at construction where all numbers are
    known and there are at most 200 rows; else the result is finite but in no set.

    Goldfarb and Idnani (1983), Math. Program. 27, 1-33.
    """

    A: Data | None = None
    b: Data | None = None
    C: Data | None = None
    d: Data | None = None
    tol: int | float | None = eqx.field(default=None, static=True, kw_only=True)
    max_steps: int = eqx.field(default=1000, static=True, kw_only=True)

    def __check_init__(self) -> None:
        equations, inequalities = check_rows(self, "A", "b"), check_rows(self, "C", "d")
        check_search(self)
        if self.A is None and self.C is None:
            raise ValueError("`Polyhedron` must be given `A` and `b`, or `C` and `d`; got none.")
        a, c = known_array(self.A, equations), known_array(self.C, inequalities)
        check_consistent("Polyhedron", a, known_array(self.b))
        if (a is not None or self.A is None) and c is not None:
            a = np.zeros((0, c.shape[1])) if a is None else a
            b = np.zeros(0) if self.b is None else known_array(self.b)
            d = known_array(self.d)
            if b is not None and d is not None and a.shape[1] == c.shape[1]:
                check_not_empty("Polyhedron", a, b, c, d)

    def _check_tree(self, tree: PyTree) -> None:
        check_fits(self, "A", tree, matrix=True)
        check_fits(self, "C", tree, matrix=True)

    def _project_vector(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        a, c = as_matrix(self.A, x), as_matrix(self.C, x)
        b, d = as_rows(self.b, a), as_rows(self.d, c)
        if not len(c):
            return nearest(a, b, x)[0]
        active = self._active(*jax.lax.stop_gradient((a, b, c, d, x)))
        a = jnp.concatenate([a, jnp.where(active[:, None], c, 0)])
        b = jnp.concatenate([b, jnp.where(active, d, 0)])
        return nearest(a, b, x)[0]

    def _active(
        self,
        a: Float[Array, "k n"],
        b: Float[Array, " k"],
        c: Float[Array, "m n"],
        d: Float[Array, " m"],
        x: Float[Array, " n"],
    ) -> Bool[Array, " m"]:
        """The inequalities that hold with equality at the nearest point."""
        c_scale = row_scale(c)
        c, d = c * c_scale[:, None], d * c_scale
        # What is left of the inequalities within the set of the equations.
        within = jax.vmap(lambda row: nearest(a, jnp.zeros_like(b), row)[0])(c)
        some = jnp.sum(jnp.square(within), axis=1) > jnp.square(100 * jnp.finfo(x.dtype).eps)
        scale = jnp.where(some, row_scale(within), 0)
        within, tol = within * scale[:, None], tolerance(self.tol, x.dtype)

        bounds = jnp.where(jnp.isinf(d), 0, jnp.abs(d))

        def measured(x: Array) -> tuple[Array, Array, Array]:
            """The slack at a point, and the largest number beside each row's bound, in units in
            which the largest of all is about 1; and the factor that makes them."""
            sizes = jnp.maximum(bounds, largest_magnitude(x))
            factor = power_below(jnp.max(sizes))
            slack = (d * factor - c @ (x * factor)) * scale
            return jnp.where(d == jnp.inf, jnp.inf, slack), sizes * factor, factor

        def searched(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            s, slack, own_tol, factor = carry
            s = continued(s, within, slack, own_tol, self.max_steps)
            rows = jnp.concatenate([a, jnp.where(s.active[:, None], c, 0)])
            point, _ = nearest(rows, jnp.concatenate([b, jnp.where(s.active, d, 0)]), x)
            # One that is nearer to the set may be smaller too, and show what was lost in rounding.
            slack, sizes, new_factor = measured(point)
            s = moved_on(s, slack, tol * sizes, new_factor / factor)
            return s, slack, tol * sizes, new_factor

        slack, sizes, factor = measured(nearest(a, b, x)[0])
        farthest = jnp.max(jnp.where(jnp.isinf(slack), 0, jnp.abs(slack)))
        own_tol = tol * jnp.minimum(sizes, farthest)
        carry = begun(slack, own_tol), slack, own_tol, factor
        carry = while_loop(
            lambda carry: carry[0].going & (carry[0].step < self.max_steps), searched, carry
        )
        return carry[0].active
