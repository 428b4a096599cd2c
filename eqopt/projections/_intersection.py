"""The points that several sets have in common."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import wadler_lindig as wl
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._core.leaves import real_dtype, widen
from .._core.loop import while_loop
from .._core.norms import largest_magnitude
from .._core.projection import AbstractProjection
from ._search import check_search, tolerance

_MAX_STEPS = 10_000
_TRIAL = 200  # sweeps from the point itself
_AWAY = 16  # times farther, from where what is taken off is known about


class Intersection(AbstractProjection):
    r"""The nearest point that convex sets have in common, by Dykstra's algorithm.

    Each sweep projects onto one set after the other, $x \leftarrow P_i(y_i)$ for $y_i = x + p_i$,
    and keeps what was taken off, $p_i \leftarrow y_i - x$, to give it back before the next
    projection onto that set. The result is a point of the last set, and of the others to the
    tolerance. The sweeps converge linearly for polyhedra, and may be slow where boundaries meet at
    a small angle. From far away they may change nothing for long; then the point is brought near,
    and away again in steps, each with the $p_i$ of the step before. The sweeps end after
    `max_steps` also without a common point: then, or where they are too slow, the result is not in
    all sets.

    The derivative is that of the fixed point of the sweeps: the same iteration on tangents, with
    the derivative of each projection at the last $y_i$, and the same most sweeps; from far away,
    and where the sweeps are slow, they may not be enough. At corners it is one of the possible
    ones. There are no second derivatives.

    - `sets`: projections onto convex sets, at least one.
    - `tol`: the sweeps end when no $p_i$ changes by more, in proportion to the largest element;
      static. `None`, and the least, is 64 times the precision of the dtype.
    - `max_steps`: the most sweeps, at least 1; static.

    Boyle and Dykstra (1986), Lect. Notes Stat. 37, 28-47; when to stop: Birgin and Raydan (2005),
    SIAM J. Sci. Comput. 26(4), 1405-1414.
    """

    sets: tuple[AbstractProjection, ...]
    tol: int | float | None = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)

    def __init__(
        self, *sets: AbstractProjection, tol: int | float | None = None, max_steps: int = _MAX_STEPS
    ):
        self.sets = sets
        self.tol = tol
        self.max_steps = max_steps

    def __check_init__(self) -> None:
        check_search(self)
        if not self.sets:
            raise ValueError("`Intersection(*sets)` must be given at least one set; got none.")
        for found in self.sets:
            if not isinstance(found, AbstractProjection):
                raise TypeError(f"`Intersection(*sets)` must be projections; got {found!r}.")

    def __pdoc__(self, **kwargs: Any) -> wl.AbstractDoc:
        fields = [("tol", self.tol)] if self.tol is not None else []
        fields += [("max_steps", self.max_steps)] if self.max_steps != _MAX_STEPS else []
        return wl.bracketed(
            begin=wl.TextDoc("Intersection("),
            docs=[wl.pdoc(x, **kwargs) for x in self.sets] + wl.named_objs(fields, **kwargs),
            sep=wl.comma,
            end=wl.TextDoc(")"),
            indent=kwargs["indent"],
        )

    def _project(self, tree: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(tree)
        if not leaves:
            return tree
        numbers, sets = jax.tree.flatten(self.sets)
        numbers = [jnp.asarray(x, float) if isinstance(x, int | float) else x for x in numbers]
        static = _Static(sets, treedef, self.tol, self.max_steps)
        new = _dykstra(static, numbers, leaves)
        return jax.tree.unflatten(treedef, new)


class _Static(NamedTuple):
    """What is compiled in."""

    sets: Any
    treedef: Any
    tol: int | float | None
    max_steps: int


class _Steps(NamedTuple):
    number: int | Int[Array, ""]
    value: Any
    going: Bool[Array, ""]


@partial(jax.jit, static_argnums=0)
def _dykstra(static: _Static, numbers: list[Any], leaves: list[Array]) -> list[Array]:
    dtype = real_dtype(*leaves)
    wide = [widen(leaf, dtype) for leaf in leaves]
    new = _nearest(static, numbers, wide)
    return [x.astype(leaf.dtype) for x, leaf in zip(new, leaves, strict=True)]


class _Round(NamedTuple):
    """- `start`, `scale`: the sweeps start from the first times the second, which is at most 1.
    - `given`: what is taken off by each set before the first sweep.
    - `taken`: what was taken off by each set, in all rounds of scale 1 together.
    - `spread`: how far apart the points of the sets were at the end of the last round from near.
    - `steps`: the sweeps of all rounds.
    - `trial`: whether this is the first round, of few sweeps.
    """

    start: list[Array]
    scale: Float[Array, ""]
    given: list[list[Array]]
    taken: list[list[Array]]
    spread: Float[Array, ""]
    steps: int | Int[Array, ""]
    trial: Bool[Array, ""]
    going: Bool[Array, ""]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _nearest(static: _Static, numbers: list[Any], leaves: list[Array]) -> list[Array]:
    return _converged(static, numbers, leaves)[0]


@_nearest.defjvp
def _nearest_jvp(static: _Static, primals: Any, tangents: Any) -> tuple[Any, Any]:
    point, taken = _converged(static, *primals)
    at = partial(_sweep_at, static, point, taken)
    _, of_taken = jax.linearize(lambda taken: at(taken, *primals), taken)
    _, of_rest = jax.jvp(lambda *rest: at(taken, *rest), primals, tangents)
    solve = partial(_fixed_point, static)
    d_taken = jax.lax.custom_linear_solve(
        lambda v: _minus(v, of_taken(v)[1]), of_rest[1], solve=solve, transpose_solve=solve
    )
    return point, jax.tree.map(jnp.add, of_rest[0], of_taken(d_taken)[0])


def _sweep(
    static: _Static, taken: list[list[Array]], numbers: list[Any], leaves: list[Array]
) -> tuple[list[Array], list[list[Array]], Float[Array, ""]]:
    """The point after one sweep, what was taken off by each set, and how far apart the points of
    the sets are."""
    sets = jax.tree.unflatten(static.sets, numbers)
    x = leaves
    for given in taken:
        x = _minus(x, given)
    new, points = [], []
    for projection, given in zip(sets, taken, strict=True):
        y = jax.tree.map(jnp.add, x, given)
        x = jax.tree.leaves(projection._apply(jax.tree.unflatten(static.treedef, y)))
        new.append(_minus(y, x))
        points.append(x)
    return x, new, largest_magnitude([_minus(x, point) for point in points])


def _sweep_at(
    static: _Static,
    point: list[Array],
    at: list[list[Array]],
    taken: list[list[Array]],
    numbers: list[Any],
    leaves: list[Array],
) -> tuple[list[Array], list[list[Array]]]:
    """A sweep that changes nothing, for its derivatives: at the point that was found, and with what
    is taken off there, whatever the rounding of the leaves."""
    sets = jax.tree.unflatten(static.sets, numbers)
    x = leaves
    for given in taken:
        x = _minus(x, given)
    x = _valued(x, point)
    new = []
    for projection, given, taken_there in zip(sets, taken, at, strict=True):
        y = jax.tree.map(jnp.add, x, _valued(given, taken_there))
        x = jax.tree.leaves(projection._apply(jax.tree.unflatten(static.treedef, y)))
        new.append(_minus(y, x))
        x = _valued(x, point)
    return x, new


def _valued(x: list[Array], value: list[Array]) -> list[Array]:
    """The derivative of arrays with the value of others."""
    return jax.tree.map(lambda x, v: v + (x - jax.lax.stop_gradient(x)), x, value)


def _converged(
    static: _Static, numbers: list[Any], leaves: list[Array]
) -> tuple[list[Array], list[list[Array]]]:
    """The point in the sets, and what is taken off by each set when no sweep changes it.

    Where some sweeps are not enough there are rounds from nearer points, in the same direction from
    zero. Far away the sweeps end when the points of the sets are as near to each other as the
    rounding of the leaves allows: then they start again from what they found, with numbers of its
    size.
    """
    zeros = [[jnp.zeros_like(x) for x in leaves] for _ in static.sets.children()]

    nearer = _first_scale(static, numbers, leaves)

    def again(r: _Round) -> _Round:
        start = _times(r.start, r.scale)
        end = _repeated(
            static,
            lambda taken: _sweep(static, taken, numbers, start)[1],
            r.given,
            largest_magnitude(start),
            r.steps,
            jnp.where(r.trial, min(_TRIAL, static.max_steps), static.max_steps),
        )
        point, _, spread = _sweep(static, end.value, numbers, start)
        least = tolerance(static.tol, spread.dtype) * largest_magnitude(point)
        # The points of the sets tell nothing where all of them are rounding of a far one.
        far = largest_magnitude(start) > _AWAY * largest_magnitude(point)
        improves = far | ((spread > least) & (spread < r.spread / 2))
        left = end.number < static.max_steps
        slow, away = r.trial & end.going & left, r.scale < 1
        scale = jnp.where(slow, nearer, jnp.minimum(_AWAY * r.scale, 1))
        known = jnp.where(slow, nearer == 1, away)

        def chosen(same: Any, new: Any) -> Any:
            return jax.tree.map(lambda x, y: jnp.where(slow | away, x, y), same, new)

        return _Round(
            chosen(r.start, point),
            scale,
            _times(end.value, jnp.where(known, scale / r.scale, 0)),
            chosen(r.taken, jax.tree.map(jnp.add, r.taken, end.value)),
            jnp.where(slow | away | far, r.spread, spread),
            end.number,
            jnp.zeros_like(r.trial),
            slow | away | (improves & left),
        )

    largest = largest_magnitude(leaves)
    valid = largest >= 0
    one, most = jnp.ones_like(largest), jnp.full_like(largest, jnp.inf)
    start = _Round(leaves, one, zeros, zeros, most, jnp.zeros_like(largest, int), valid, valid)
    end = while_loop(lambda r: r.going, again, start)
    return end.start, end.taken


def _first_scale(static: _Static, numbers: list[Any], leaves: list[Array]) -> Float[Array, ""]:
    """What brings the leaves about as near to zero as the sets are; at most 1."""
    zeros = [jnp.zeros_like(x) for x in leaves]
    sets = largest_magnitude(
        _sweep(static, [zeros for _ in static.sets.children()], numbers, zeros)[0]
    )
    near = _AWAY * jnp.where(sets > 0, sets, 1)
    largest = largest_magnitude(leaves)
    least = jnp.finfo(largest.dtype).eps ** 2
    return jnp.where(largest > near, jnp.maximum(near / largest, least), 1)


def _fixed_point(static: _Static, matvec: Callable[[Any], Any], goal: Any) -> Any:
    """What `matvec`, the identity without a sweep, maps to `goal`."""
    return _repeated(
        static,
        lambda v: jax.tree.map(jnp.add, v, _minus(goal, matvec(v))),
        goal,
        largest_magnitude(goal),
    ).value


def _repeated(
    static: _Static,
    step: Callable[[Any], Any],
    start: Any,
    size: Float[Array, ""],
    number: int | Int[Array, ""] = 0,
    most: int | Int[Array, ""] | None = None,
) -> _Steps:
    """What a step changes by no more than the tolerance, in proportion to its largest element and
    to `size`."""
    tol = tolerance(static.tol, size.dtype)

    def body(s: _Steps) -> _Steps:
        new = step(s.value)
        change, largest = (
            largest_magnitude(_minus(new, s.value)),
            jnp.maximum(largest_magnitude(new), size),
        )
        return _Steps(s.number + 1, new, change > tol * largest)

    most = static.max_steps if most is None else most
    first = _Steps(number, start, size >= 0)  # false for NaN
    return while_loop(lambda s: s.going & (s.number < most), body, first)


def _times(x: Any, factor: Float[Array, ""]) -> Any:
    return jax.tree.map(lambda x: x * factor, x)


def _minus(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.subtract, a, b)
