"""Points that are far from a set, or of elements of many sizes: the result is in the set to the
rounding of its own size."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import eqopt
from eqopt import select
from eqopt.projections import (
    Affine,
    Box,
    Halfspace,
    Hyperplane,
    Intersection,
    NonNegative,
    Polyhedron,
    TransportPolytope,
    Vector,
)

RNG = np.random.default_rng(11)
START = RNG.bit_generator.state
ONES = np.ones(16)


@pytest.fixture(autouse=True)
def same_numbers():
    """Each test has its own random numbers, whatever ran before it."""
    RNG.bit_generator.state = START


def quotient(fn, args, along, step):
    """The difference quotient of a function of several arrays along a direction."""
    above, below = (
        fn(*(x + sign * step * dx for x, dx in zip(args, along, strict=True))) for sign in (1, -1)
    )
    return (np.asarray(above) - np.asarray(below)) / (2 * step)


def check_derivatives(fn, args, along, step=1e-6, atol=1e-7):
    """Forward and reverse derivatives of a compiled function are the difference quotient."""
    wanted = quotient(fn, args, along, step)
    weights = jnp.asarray(RNG.standard_normal(wanted.shape))
    tangent, slopes = derivatives(fn, args, along, weights)
    np.testing.assert_allclose(tangent, wanted, atol=atol)
    found = sum(np.sum(slope * dx) for slope, dx in zip(slopes, along, strict=True))
    np.testing.assert_allclose(found, np.sum(weights * tangent), atol=1e-9)


@partial(jax.jit, static_argnums=0)
def derivatives(fn, args, along, weights):
    """The derivative along a direction, and that of a weighted sum by each argument."""
    return jax.jvp(fn, args, along)[1], jax.vjp(fn, *args)[1](weights)


class TestSumsThatOverflow:
    """By hand: all elements are equal before and after."""

    @pytest.mark.parametrize("size", [1.0, 1e-30, 1e30, 1e38])
    @pytest.mark.parametrize(
        ("kind", "wanted"), [(Vector, 1e38), (Hyperplane, 0.0), (Halfspace, 0.0)]
    )
    def test_one_vector(self, kind, wanted, size):
        """Alone, and beside a vector that needs no scaling."""
        projection = kind(np.full(16, size, np.float32))
        x = jnp.full(16, 1e38)
        np.testing.assert_allclose(projection(x), np.full(16, wanted), rtol=1e-6, atol=1e32)
        both = jax.jit(jax.vmap(projection.__call__))(jnp.stack([x, jnp.ones(16)]))
        np.testing.assert_allclose(both[0], np.full(16, wanted), rtol=1e-6, atol=1e32)
        np.testing.assert_allclose(both[1], np.full(16, wanted / 1e38), rtol=1e-6, atol=1e-6)

    def test_offset(self):
        """The product of the offset and what scales the normal vector overflows too."""
        plane = Hyperplane(np.full(1000, 1e-3), 1e37)
        result = plane(jnp.full(1000, 3e37))
        np.testing.assert_allclose(result, np.full(1000, 1e37), rtol=1e-5)

    def test_matrices(self):
        """Equations, inequalities, and the sums of rows and columns."""
        x = jnp.full(16, 1e38)
        np.testing.assert_allclose(Affine(ONES[None])(x), np.zeros(16), atol=1e-6)
        np.testing.assert_allclose(Affine(ONES[None], 8.0)(x), np.full(16, 0.5), rtol=1e-5)
        np.testing.assert_allclose(Polyhedron(C=ONES[None], d=0.0)(x), np.zeros(16), atol=1e-6)
        np.testing.assert_allclose(Polyhedron(C=ONES[None], d=8.0)(x), np.full(16, 0.5), rtol=1e-5)
        square = TransportPolytope()(jnp.full((4, 4), 1e38))
        np.testing.assert_allclose(square, np.full((4, 4), 0.25), rtol=1e-6)

    @pytest.mark.parametrize("kind", [Vector, Hyperplane, Halfspace, Affine])
    def test_half_precision(self, kind):
        """The largest number is 65504; sums are of wider numbers."""
        data = ONES[None] if kind is Affine else ONES
        result = kind(data)(jnp.full(16, 6e4, jnp.float16))
        assert result.dtype == jnp.float16
        wanted = np.float16(6e4) if kind is Vector else 0
        np.testing.assert_array_equal(result, np.full(16, wanted, np.float16))

    @pytest.mark.parametrize("kind", [Vector, Hyperplane, Halfspace])
    def test_derivatives(self, kind):
        """The same as for small elements: I - a a^T / a^T a, or what that leaves; and in proportion
        by the vector."""
        onto = np.full((3, 3), 1 / 3)
        wanted = onto if kind is Vector else np.eye(3) - onto
        x = jnp.full(3, 3e38)
        for jacobian in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(jacobian(kind(np.ones(3)).__call__)(x), wanted, atol=1e-6)
            by_normal = jax.jit(jacobian(lambda a, x: kind(a)(x)))
            far, near = (
                by_normal(jnp.ones(3), 6e37 * jnp.arange(1.0, 4.0)),
                by_normal(jnp.ones(3), jnp.arange(1.0, 4.0)),
            )
            np.testing.assert_allclose(far / 6e37, near, atol=1e-6)


@jax.jit
def polyhedron(c, d, x):
    """Two inequalities."""
    return Polyhedron(C=c, d=d)(x)


@jax.jit
def both(c, d, x):
    """Two half-spaces, and the orthant between them."""
    return Intersection(Halfspace(c[0], d[0]), NonNegative(), Halfspace(c[1], d[1]))(x)


class TestOneLargeElement:
    def test_polyhedron(self):
        """By hand: each element is bounded on its own."""
        corner = Polyhedron(C=-np.eye(2), d=0.0)
        np.testing.assert_array_equal(corner(jnp.asarray([-1e6, -1.0])), [0.0, 0.0])
        corner = Polyhedron(C=np.eye(2), d=[1.0, 1.0])
        np.testing.assert_allclose(corner(jnp.asarray([1e6, 1.05])), [1.0, 1.0], rtol=1e-6)
        corner = Polyhedron(C=-np.eye(3), d=0.0)
        np.testing.assert_array_equal(corner(jnp.asarray([-1e30, -1e12, -1.0])), np.zeros(3))

    def test_intersection(self):
        """By hand."""
        both = Intersection(Halfspace([1.0, 1.0], 1.0), NonNegative())
        for x in ([1e6, -1.0], [1e30, -1e12]):
            np.testing.assert_allclose(both(jnp.asarray(x)), [1.0, 0.0], atol=1e-5)

    def test_polyhedra_of_many_sizes(self):
        """All inequalities hold in proportion to the result, from points of any distance."""
        c, inside = RNG.standard_normal((6, 4)), RNG.standard_normal(4)
        d = c @ inside + np.asarray([0.0, 0.0, 0.3, 0.3, 0.1, 1.0])
        x = inside + RNG.standard_normal((12, 4)) * 10.0 ** np.arange(12)[:, None]
        result = jax.jit(jax.vmap(Polyhedron(C=c, d=d).__call__))(jnp.asarray(x, jnp.float32))
        result = np.asarray(result, np.float64)
        beyond = np.max(result @ c.T - d, axis=1)
        assert np.all(beyond <= 1e-5 * (1 + np.max(np.abs(result), axis=1)))

    @pytest.mark.parametrize("size", [1e3, 1e6])
    def test_the_search_goes_on(self, size, x64):
        """Rows are dropped from far too: in float32 the same point as in float64."""
        c, inside = RNG.standard_normal((6, 3)), RNG.standard_normal(3)
        d = c @ inside + 0.1 * np.arange(6)
        x = np.float32(inside + size * RNG.standard_normal((8, 3)))
        project = jax.jit(jax.vmap(Polyhedron(C=c, d=d).__call__))
        np.testing.assert_allclose(project(x), project(np.float64(x)), rtol=1e-4, atol=1e-6 * size)

    def test_noise_enters_no_row(self):
        """What a far step leaves in the slack is rounding: the rows are those of exact numbers, in
        single and mapped. By hand, which three of the rows hold with equality."""
        c = [[0.71, 0.49, 0.89], [0.33, 1.25, -0.18], [0.74, -1.51, -0.08], [2, -1.08, 2.94]]
        d = [0.2452, 0.7839, -0.0592, -0.957]
        other = [[-0.76, -0.2, 0.11], [0.89, -2.05, -0.21], [-0.1, -0.81, 0.5], [-0.81, 0.27, 1.87]]
        other_d = [0.7932, 0.5967, 0.0735, -1.3633]
        for a, b, rows, x in (
            (c, d, [1, 2, 3], [1.38e8, 3.2e7, 1.16e8]),
            (other, other_d, [0, 1, 3], [-2.66e8, -1.41e8, 1.62e8]),
        ):
            wanted = np.linalg.solve(np.asarray(a)[rows], np.asarray(b)[rows])
            project = Polyhedron(C=a, d=b)
            x = jnp.asarray(x, jnp.float32)
            np.testing.assert_allclose(project(x), wanted, rtol=1e-5)
            mapped = jax.vmap(project.__call__)(jnp.stack([x, x / 10]))
            np.testing.assert_allclose(mapped, [wanted, wanted], rtol=1e-5)

    def test_each_bound_has_its_own_tolerance(self):
        """A large one beside it, or an infinite one, leaves a small one as it is."""
        eye = np.eye(2)
        near = Polyhedron(C=eye, d=[1.0, 1e6])(jnp.asarray([1.0001, 0.0]))
        np.testing.assert_array_equal(near, [1.0, 0.0])
        project = jax.jit(lambda d: Polyhedron(C=eye, d=d)(jnp.asarray([3.0, 4.0])))
        np.testing.assert_array_equal(project(jnp.asarray([1.0, jnp.inf])), [1.0, 4.0])

    @pytest.mark.parametrize("wrong", [np.nan, np.inf])
    def test_not_finite(self, wrong):
        for projection in (Polyhedron(C=np.eye(2), d=1.0), Affine([[1.0, 1.0]], 1.0)):
            assert np.all(np.isnan(projection(jnp.asarray([wrong, 4.0]))))

    def test_intersection_from_far(self, x64):
        """Sweeps from there would change nothing for 100,000 times; by hand, the corner of the
        first three sets."""
        c = np.asarray([[-0.05, -0.69, 0.32], [-1.08, 1.61, -0.38], [-1.54, 1.79, 0.97]])
        d = np.asarray([-1.2, 2.68, 1.63])
        sets = Intersection(*map(Halfspace, c, d), Halfspace([0.52, 0.53, -0.36], 2.52))
        for size in (1e2, 1e6):
            result = sets(size * jnp.asarray([-0.64, -0.34, 0.67]))
            np.testing.assert_allclose(result, np.linalg.solve(c, d), atol=1e-13 * size)

    def test_second_derivatives(self, x64):
        """In any order of forward and reverse, also of rows that depend on others."""
        x, row = jnp.asarray([2.0, 3.0, -1.0]), jnp.asarray([1.0, 2.0, -0.5])

        def cubes(row):
            rows = jnp.stack([row, row, jnp.zeros_like(row)])
            return jnp.sum(Affine(rows, jnp.asarray([1.0, 1.0, 0.0]))(x) ** 3)

        slope = jax.jit(jax.grad(cubes))
        along = np.asarray([0.3, -1.0, 0.7])
        wanted = quotient(lambda row: slope(jnp.asarray(row)), (np.asarray(row),), (along,), 1e-5)
        for outer in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(outer(slope)(row) @ along, wanted, atol=1e-7)

    def test_derivatives(self, x64):
        """Of the same rows as nearer by, by the point and by the data."""
        c, d = np.asarray([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0]]), np.asarray([1.0, 0.5])
        x = np.asarray([2e4, 3e4, -10.0])
        along = tuple(RNG.standard_normal(v.shape) for v in (c, d, x))
        for fn in (polyhedron, both):
            check_derivatives(fn, (c, d, x), along, atol=1e-4)


class TestTransport:
    @pytest.mark.parametrize("size", [1.0, 1e3, 1e5, 1e7, 1e20])
    def test_sums(self, size):
        """To the rounding of the sums, whatever the elements are."""
        for x in (size * RNG.standard_normal((6, 6)), size + RNG.standard_normal((6, 6))):
            result = np.asarray(transport(jnp.asarray(x, jnp.float32)), np.float64)
            assert np.all(result >= 0)
            np.testing.assert_allclose(np.sum(result, axis=0), np.ones(6), atol=1e-5)
            np.testing.assert_allclose(np.sum(result, axis=1), np.ones(6), atol=1e-5)

    @pytest.mark.parametrize("shape", [(2, 3), (5, 3)])
    def test_nearest(self, shape):
        """No matrix with these sums is further along x - P(x), but for the rounding of x; of
        rectangular ones with all sums different, in float32."""
        m, n = shape
        sums = np.concatenate([np.kron(np.eye(m), np.ones(n)), np.kron(np.ones(m), np.eye(n))])
        for size in 10.0 ** np.arange(13):
            rows, columns = RNG.uniform(0.5, 3, m), RNG.uniform(0.5, 3, n)
            columns *= np.sum(rows) / np.sum(columns)
            x = np.asarray(size * RNG.standard_normal(shape), np.float32)
            result = np.asarray(plans(*map(jnp.float32, (rows, columns)), jnp.asarray(x)), float)
            goal = np.concatenate([rows, columns])
            np.testing.assert_allclose(sums @ result.ravel(), goal, atol=3e-6)
            off = (x - result).ravel()
            best = linprog(-off / size, A_eq=sums, b_eq=goal).x
            assert off @ (best - result.ravel()) <= 1e-6 * np.max(np.abs(x)) * np.sum(rows)

    def test_numbers(self):
        """By hand: of large elements, the best vertex."""
        x = 1e6 * jnp.asarray([[0.53, 1.07, -0.47], [-0.82, 0.38, 0.95]])
        result = TransportPolytope([5.0, 7.0], [6.0, 3.0, 3.0])(x)
        np.testing.assert_allclose(result, [[5, 0, 0], [1, 3, 3]], rtol=1e-6)

    @pytest.mark.parametrize("wrong", [np.nan, np.inf])
    def test_not_finite(self, wrong):
        assert np.all(np.isnan(transport(jnp.eye(3).at[0, 1].set(wrong))))

    @pytest.mark.parametrize("size", [1e6, 1e9])
    def test_the_best_vertex(self, size, x64):
        """Far away the nearest point is the vertex that is best for a linear program, here with
        elements of 1e-6 beside those of 1."""
        rows, columns = np.asarray([0.5 + 1e-6, 0.5 - 2e-6, 1 + 1e-6]), np.asarray([1.0, 0.6, 0.4])
        sums = np.concatenate([np.kron(np.eye(3), np.ones(3)), np.kron(np.ones(3), np.eye(3))])
        project = jax.jit(TransportPolytope(rows, columns).__call__)
        for _ in range(8):
            x = size * RNG.standard_normal((3, 3))
            wanted = linprog(-x.ravel(), A_eq=sums, b_eq=np.concatenate([rows, columns])).x
            np.testing.assert_allclose(project(x).ravel(), wanted, atol=1e-14)

    def test_derivatives(self, x64):
        """By the point and by the sums, near and far."""
        rows, columns = np.asarray([0.6, 0.5, 0.9]), np.asarray([1.0, 0.7, 0.3])
        for size in (0.1, 1.0, 1e4):
            args = rows, columns, size * RNG.standard_normal((3, 3))
            along = [RNG.standard_normal(v.shape) for v in args]
            along[:2] = [v - np.mean(v) for v in along[:2]]  # the totals stay equal
            check_derivatives(plans, args, tuple(along), atol=1e-6 * max(1.0, size))


@jax.jit
def plans(rows, columns, x):
    """Onto the matrices with given sums."""
    return TransportPolytope(rows, columns)(x)


@jax.jit
def transport(x):
    """Onto the doubly stochastic matrices."""
    return TransportPolytope()(x)


class TestInOptimizers:
    @pytest.mark.parametrize(
        "projection",
        [
            Polyhedron(C=[[1.0, 1.0, 0.0], [0.0, -1.0, 2.0]], d=[0.5, 0.25]),
            Halfspace([1.0, -1.0, 2.0], 0.5),
        ],
        ids=["Polyhedron", "Halfspace"],
    )
    def test_rows_of_one_leaf(self, projection, x64):
        """One step equals the set's own projection of each row, its derivative too, far points
        among them; only the selected leaf changes."""
        x = RNG.standard_normal((4, 3)) * np.asarray([0.1, 1.0, 10.0, 1e4])[:, None]
        rows = dataclasses.replace(projection, axis=-1)
        optim = eqopt.SGD(0.1) >> eqopt.Project(rows, where=select.Path("a"))

        def loss(x):
            params = {"a": x, "b": x}
            zeros = jax.tree.map(jnp.zeros_like, params)
            new, _ = optim.step(zeros, optim.init(params), params)
            return jnp.sum(new["a"] ** 2) + jnp.sum(new["b"]), new

        def alone(x):
            new = projection(x)
            return jnp.sum(new**2), new

        wanted, own = jax.jit(jax.vmap(jax.grad(alone, has_aux=True)))(x)
        found, new = jax.jit(jax.grad(loss, has_aux=True))(x)
        np.testing.assert_allclose(new["a"], own, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(new["b"], x)
        np.testing.assert_allclose(found, wanted + 1, rtol=1e-7, atol=1e-7)

    def test_parameters_come_back(self):
        """After one step of a huge gradient they are in the set."""
        both = Intersection(Halfspace([1.0, 1.0], 1.0), Box(0.0, 2.0))
        for projection in (both, Polyhedron(C=[[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], d=[1, 0, 0])):
            optim = eqopt.SGD(1.0) >> projection
            x = jnp.asarray([0.5, 0.25])
            x, _ = optim.step(jnp.asarray([-1e7, 3.0]), optim.init(x), x)
            np.testing.assert_allclose(x, [1.0, 0.0], atol=1e-5)
