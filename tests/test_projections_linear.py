"""Lines, hyperplanes, half-spaces, affine sets, polyhedra and monotone vectors."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import isotonic_regression, minimize

from eqopt.projections import Affine, Halfspace, Hyperplane, Monotone, Polyhedron, Vector

RNG = np.random.default_rng(3)


@partial(jax.jit, static_argnums=0)
def project(kind, data, x):
    """The projection onto a set that is built while tracing."""
    return kind(*data)(x)


def tree(x):
    """Five elements as a tree."""
    return {"a": jnp.asarray(x[:1]).reshape(()), "b": jnp.asarray(x[1:]).reshape(2, 2)}


class TestVectorAndHyperplane:
    def test_vector(self):
        """By hand: (3, 4) spans a line; (1, 2) has the coordinate 11 / 25 on it."""
        np.testing.assert_allclose(Vector([3.0, 4.0])(jnp.asarray([1.0, 2.0])), [1.32, 1.76])
        result = Vector([3, 4])(jnp.asarray([1, 2]))  # integers too
        np.testing.assert_allclose(result, [1.32, 1.76])

    def test_hyperplane(self):
        """By hand: onto x + y = 1."""
        plane = Hyperplane(np.ones(2), 1.0)
        np.testing.assert_allclose(plane(jnp.asarray([2.0, 3.0])), [0.0, 1.0], atol=1e-7)

    def test_halfspace(self):
        """By hand, outside; inside it changes no bit."""
        below = Halfspace([1.0, 1.0], 1.0)
        np.testing.assert_allclose(below(jnp.asarray([2.0, 3.0])), [0.0, 1.0], atol=1e-7)
        inside = jnp.asarray([0.3, 0.6])
        np.testing.assert_array_equal(below(inside), inside)

    def test_a_tree_of_data(self):
        """The same as one array for the raveled tree."""
        x, normal = RNG.standard_normal((2, 5))
        for kind in (Vector, partial(Hyperplane, offset=0.5), partial(Halfspace, offset=-9.0)):
            flat = kind(normal)(jnp.asarray(x))
            result = kind(tree(normal))(tree(x))
            np.testing.assert_array_equal(result["a"], flat[0])
            np.testing.assert_array_equal(result["b"].ravel(), flat[1:])
            np.testing.assert_array_equal(kind(normal)(tree(x))["b"].ravel(), flat[1:])

    def test_rows(self):
        """One normal vector for each row of a matrix."""
        x = jnp.asarray(RNG.standard_normal((4, 3)), jnp.float32)
        plane = Hyperplane([1.0, 2.0, 2.0], 3.0)
        wanted = [plane(row) for row in x]
        rows = Hyperplane([1.0, 2.0, 2.0], 3.0, axis=-1)
        np.testing.assert_allclose(rows(x), wanted, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("scale", [1e-30, 1e30])
    def test_huge_and_tiny(self, scale):
        """In proportion, where the squares of the numbers are none of float32."""
        x = scale * jnp.asarray([2.0, 3.0])
        for normal, offset in (([1 / scale, 1 / scale], 1.0), ([1.0, 1.0], scale)):
            result = Hyperplane(normal, offset)(x) / scale
            np.testing.assert_allclose(result, [0.0, 1.0], atol=1e-6)
            np.testing.assert_allclose(Vector(normal)(x) / scale, [2.5, 2.5], rtol=1e-6)

    def test_derivatives(self):
        """The projection of a tangent; with respect to the normal, a difference quotient."""
        unit = np.asarray([0.6, 0.8])
        x = jnp.asarray([2.0, 3.0])
        onto, off = np.outer(unit, unit), np.eye(2) - np.outer(unit, unit)
        for result, wanted in (
            (jax.jacrev(Vector([3.0, 4.0]).__call__)(x), onto),
            (jax.jacrev(Hyperplane([3.0, 4.0]).__call__)(x), off),
            (jax.jacrev(Halfspace([3.0, 4.0]).__call__)(x), off),
            (jax.jacrev(Halfspace([3.0, 4.0], 99.0).__call__)(x), np.eye(2)),
        ):
            np.testing.assert_allclose(result, wanted, atol=1e-6)

    @pytest.mark.parametrize("kind", [Vector, Hyperplane, Halfspace])
    def test_a_zero_vector_that_is_traced(self, kind):
        """Nothing is known of the set: zero, or unchanged, with finite derivatives."""
        x = jnp.asarray([1.0, 2.0])
        slopes = jax.jit(jax.jacrev(lambda a: kind(a)(x)))(jnp.zeros(2))
        assert np.all(np.isfinite(slopes))
        wanted = 0 * x if kind is Vector else x
        np.testing.assert_array_equal(jax.jit(lambda a: kind(a)(x))(jnp.zeros(2)), wanted)

    def test_many_normals(self):
        """Built and used under `filter_vmap`."""
        normals = jnp.asarray([[1.0, 0.0], [0.0, 1.0]])
        planes = eqx.filter_vmap(Hyperplane)(normals)
        result = eqx.filter_vmap(lambda p, x: p(x), in_axes=(eqx.if_array(0), None))(
            planes, jnp.ones(2)
        )
        np.testing.assert_allclose(result, [[0.0, 1.0], [1.0, 0.0]])


class TestErrors:
    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: Vector(np.zeros(2)), r"`Vector\(direction=...\)` must not be zero"),
            (lambda: Hyperplane({"a": 0.0}), r"`Hyperplane\(normal=...\)` must not be zero"),
            (lambda: Halfspace([np.nan, 1.0]), r"`Halfspace\(normal=...\)` must be finite"),
            (lambda: Affine([1.0, 1.0], 1.0)(jnp.ones(2)), r"shape \(2,\), .* behind the rows"),
            (lambda: Affine([[1, 1], [2, 2]], [1, 3]), "row 0|row 1"),
            (lambda: Affine([[1, 1], [0, 0]], [1, 3]), r"row 1 of `A` is zero, with 3"),
            (lambda: Affine([[1, 1]], [1, 3]), r"`Affine\(b=...\)` .* 1 rows .* shape \(2,\)"),
            (lambda: Polyhedron(), "`Polyhedron` must be given `A` and `b`, or `C` and `d`"),
            (lambda: Polyhedron(C=[[1.0]]), r"`Polyhedron\(d=...\)` must be given with `C`"),
            (lambda: Polyhedron(C=[[1], [-1]], d=[0, -1]), r"rows \[\] of `A` and \[0, 1\] of `C`"),
            (lambda: Polyhedron([[1, 1]], 3, [[1, 0], [0, 1]], 1), r"\[0\] of `A` and \[0, 1\]"),
            (
                lambda: Polyhedron(C=[[1]], d=1, tol=0.0),
                r"`Polyhedron\(tol=...\)` must be in \(0, 1",
            ),
            (lambda: Polyhedron(C=[[1]], d=1, max_steps=0), "must be at least 1; got 0"),
        ],
    )
    def test_bad_sets(self, build, message):
        """They raise and name the numbers."""
        with pytest.raises(ValueError, match=message):
            build()

    def test_touching_sets_are_not_empty(self):
        """A single common point is enough."""
        point = Polyhedron([[1.0, 1.0]], 2.0, [[1.0, 0.0], [0.0, 1.0]], 1.0)
        np.testing.assert_allclose(point(jnp.asarray([5.0, -7.0])), [1.0, 1.0], atol=1e-5)

    def test_shapes_that_do_not_fit(self):
        """The error names both."""
        with pytest.raises(ValueError, match=r"must have 3 elements, .* got shape \(2,\)"):
            Vector([1.0, 2.0])(jnp.zeros(3))
        with pytest.raises(ValueError, match=r"must have 3 columns, .* got shape \(1, 2\)"):
            Affine([[1.0, 2.0]])(jnp.zeros(3))
        with pytest.raises(ValueError, match=r"`\['a'\]`"):
            Vector({"a": 1.0})({"b": jnp.zeros(())})
        with pytest.raises(ValueError, match=r"at `\['a'\]` it has shape \(\), the tree \(3,\)"):
            Vector({"a": 1.0})({"a": jnp.zeros(3)})
        with pytest.raises(ValueError, match="one array of 1 axes"):
            Vector({"a": 1.0}, per_leaf=True)({"a": jnp.zeros(())})
        with pytest.raises(TypeError, match="must be real arrays; got dtype"):
            Vector(np.asarray([1j]))


def solved(a, b, c, d, x):
    """SciPy's solution of the quadratic program."""
    result = minimize(
        lambda p: 0.5 * np.sum((p - x) ** 2),
        np.zeros_like(x),
        jac=lambda p: p - x,
        method="SLSQP",
        constraints=[
            {"type": "eq", "fun": lambda p: a @ p - b, "jac": lambda p: a},
            {"type": "ineq", "fun": lambda p: d - c @ p, "jac": lambda p: -c},
        ],
        options={"ftol": 1e-12, "maxiter": 300},
    )
    assert result.success
    return result.x


class TestAffine:
    def test_least_squares(self, x64):
        """x - A^+ (A x - b), also where a row follows from the others or is zero."""
        a, x = RNG.standard_normal((2, 5)), RNG.standard_normal(5)
        a = np.stack([a[0], a[1], a[0] - 2 * a[1], np.zeros(5)])
        b = a @ RNG.standard_normal(5)
        wanted = x - np.linalg.pinv(a) @ (a @ x - b)
        result = Affine(a, b)(tree(x))
        flat = np.concatenate([np.ravel(result["a"]), np.ravel(result["b"])])
        np.testing.assert_allclose(flat, wanted, atol=1e-13)
        rows = {"a": a[:, 0], "b": a[:, 1:].reshape(4, 2, 2)}
        np.testing.assert_allclose(Affine(rows, b)(tree(x))["a"], wanted[0], atol=1e-13)

    def test_derivatives(self, x64):
        """The projection onto the null space; with respect to the data, difference quotients."""
        a, b, x = RNG.standard_normal((2, 4)), RNG.standard_normal(2), RNG.standard_normal(4)
        slope = jax.jacrev(partial(project, Affine), argnums=0)((a, b), x)
        null = np.eye(4) - np.linalg.pinv(a) @ a
        wanted = jax.jacfwd(partial(project, Affine), argnums=0)((a, b), x)
        np.testing.assert_allclose(project(Affine, (a, 0 * b), x), null @ x, atol=1e-13)
        for i, da in enumerate(np.eye(8).reshape(8, 2, 4)):
            moved = [x - np.linalg.pinv(m) @ (m @ x - b) for m in (a + 1e-6 * da, a - 1e-6 * da)]
            found = slope[0].reshape(4, 8)[:, i]
            np.testing.assert_allclose(found, (moved[0] - moved[1]) / 2e-6, atol=1e-7)
        np.testing.assert_allclose(slope[0], wanted[0], atol=1e-12)
        np.testing.assert_allclose(slope[1], np.linalg.pinv(a), atol=1e-12)


class TestPolyhedron:
    def test_equations_alone(self):
        """Without inequalities, also with a matrix of no rows, it is the affine set."""
        sets = [
            Polyhedron([[1.0, 1.0]], 1.0),
            Polyhedron([[1.0, 1.0]], [1.0], C=np.zeros((0, 2)), d=np.zeros(0)),
        ]
        for polyhedron in sets:
            for call in (polyhedron.__call__, jax.jit(polyhedron.__call__)):
                np.testing.assert_allclose(call(jnp.zeros(2)), [0.5, 0.5], rtol=1e-6)
        everything = Polyhedron(C=np.zeros((0, 2)), d=np.zeros(0))
        np.testing.assert_array_equal(everything(jnp.asarray([3.0, -4.0])), [3.0, -4.0])

    @pytest.mark.parametrize("slope", [3e-4, 4e-4])
    def test_an_inequality_nearly_parallel_to_an_equation(self, slope):
        """By hand: with x = 0, the inequality is y <= 0."""
        wedge = Polyhedron(A=[[1.0, 0.0]], b=[0.0], C=[[1.0, slope]], d=[0.0])
        np.testing.assert_allclose(wedge(jnp.asarray([0.0, 5.0])), [0.0, 0.0], atol=1e-6)

    def test_equals_scipy(self, x64):
        """Random polyhedra that hold a known point, some of their rows repeated."""
        for _ in range(8):
            a, c = RNG.standard_normal((1, 4)), RNG.standard_normal((5, 4))
            c = np.concatenate([c, c[:2]])
            inside = RNG.standard_normal(4)
            b, d = a @ inside, c @ inside + np.repeat([0.0, 0.3], [2, 5])
            x = inside + 3 * RNG.standard_normal(4)
            result = project(Polyhedron, (a, b, c, d), x)
            np.testing.assert_allclose(result, solved(a, b, c, d, x), atol=1e-6)
            assert np.max(c @ result - d) <= 1e-12 and abs(a @ result - b) <= 1e-12

    def test_inside(self):
        """No bit changes, and the derivative is the identity."""
        box = Polyhedron(C=np.concatenate([np.eye(3), -np.eye(3)]), d=1.0)
        x = jnp.asarray([0.1, -0.7, 0.3])
        np.testing.assert_array_equal(box(x), x)
        np.testing.assert_array_equal(jax.jacrev(box.__call__)(x), np.eye(3))

    def test_box(self):
        """Bounds on the elements, by clipping; one corner takes three of them."""
        box = Polyhedron(C=np.concatenate([np.eye(3), -np.eye(3)]), d=1.0)
        x = 3 * RNG.standard_normal((6, 3)).astype(np.float32)
        result = jax.jit(jax.vmap(box.__call__))(x)
        np.testing.assert_allclose(result, np.clip(x, -1, 1), atol=3e-6)

    @pytest.mark.parametrize("scale", [1e-30, 1e30])
    def test_huge_and_tiny(self, scale):
        """In proportion."""
        orthant = Polyhedron([[1.0, 1.0, 1.0]], scale, -np.eye(3), 0.0)
        result = orthant(scale * jnp.asarray([2.0, 0.5, -1.0])) / scale
        np.testing.assert_allclose(result, [1.0, 0.0, 0.0], atol=1e-5)

    def test_derivatives(self, x64):
        """With respect to the point and to all data, by difference quotients of SciPy's solution;
        a tangent is projected onto the null space of the active rows."""
        a, c = np.asarray([[1.0, 1.0, 1.0]]), -np.eye(3)
        b, d, x = np.asarray([1.0]), np.asarray([0.1, 0.2, 0.0]), np.asarray([0.9, 0.6, -1.0])
        slope = jax.jacrev(lambda *data: project(Polyhedron, data[:4], data[4]), argnums=range(5))
        slope = slope(a, b, c, d, x)
        active = np.asarray([[1.0, 1.0, 1.0], [0.0, 0.0, -1.0]])
        null = np.eye(3) - np.linalg.pinv(active) @ active
        np.testing.assert_allclose(slope[4], null, atol=1e-13)
        for i, value in enumerate((a, b, c, d)):
            along = RNG.standard_normal(value.shape)
            data = [[a, b, c, d], [a, b, c, d]]
            data[0][i], data[1][i] = value + 1e-4 * along, value - 1e-4 * along
            above, below = (solved(*some, x) for some in data)
            found = np.sum(np.asarray(slope[i]) * along, axis=tuple(range(1, 1 + along.ndim)))
            np.testing.assert_allclose(found, (above - below) / 2e-4, atol=1e-6)

    def test_finite_at_corners(self):
        """Where more rows are active than there are directions."""
        c = np.concatenate([np.eye(2), [[1.0, 1.0]], np.eye(2)])
        corner = Polyhedron(C=c, d=[0.0, 0.0, 0.0, 0.0, 0.0])
        for x in (np.zeros(2), np.ones(2), np.asarray([1.0, 0.0])):
            assert np.all(np.isfinite(jax.jacrev(corner.__call__)(jnp.asarray(x))))
            np.testing.assert_allclose(corner(jnp.asarray(x)), np.minimum(x, 0), atol=1e-6)


class TestMonotone:
    @pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 40])
    def test_equals_scipy(self, size, x64):
        """Both directions, with ties, where there is one block and where there are many."""
        for x in (
            RNG.standard_normal(size),
            np.round(RNG.standard_normal(size)),
            np.arange(size) + RNG.standard_normal(size),
            -(np.arange(size) ** 2.0),
        ):
            for increasing in (True, False):
                wanted = isotonic_regression(x, increasing=increasing).x
                result = _monotone(jnp.asarray(x), increasing)
                np.testing.assert_allclose(result, wanted, atol=1e-12)
                steps = np.diff(result) if increasing else -np.diff(result)
                assert np.all(steps >= 0)

    @pytest.mark.parametrize("scale", [1e-30, 1.0, 3e37])
    def test_huge_and_tiny(self, scale):
        """In proportion, where sums of the numbers are none of float32."""
        x = scale * jnp.asarray([3.0, 1.0, 2.0, 8.0, 9.0, 7.0])
        np.testing.assert_allclose(Monotone()(x) / scale, [2.0] * 3 + [8.0] * 3, rtol=1e-6)

    def test_derivative(self):
        """Means over the blocks."""
        block = np.full((2, 2), 0.5)
        wanted = np.zeros((4, 4))
        wanted[0, 0], wanted[1:3, 1:3], wanted[3, 3] = 1.0, block, 1.0
        x = jnp.asarray([0.0, 2.0, 1.0, 3.0])
        for jacobian in (jax.jacfwd, jax.jacrev):
            np.testing.assert_array_equal(jacobian(Monotone())(x), wanted)
            assert np.all(np.isfinite(jacobian(Monotone())(jnp.zeros(4))))


@partial(jax.jit, static_argnums=1)
def _monotone(x, increasing):
    return Monotone(increasing)(x)
