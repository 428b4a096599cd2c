"""Projections: what makes them projections, which trees they take, and what one vector is."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from cases import FREE_PROJECTIONS, PROJECTIONS
from hypothesis import HealthCheck, given, settings, strategies as st
from jax.flatten_util import ravel_pytree
from trees import flat

from eqopt.projections import AbstractVectorProjection, L2Ball, L2Sphere, NonNegative, Sequential

each_projection = pytest.mark.parametrize("name", PROJECTIONS)
each_free = pytest.mark.parametrize("case", FREE_PROJECTIONS.values(), ids=FREE_PROJECTIONS.keys())
each_convex = pytest.mark.parametrize(
    "name", [name for name, case in PROJECTIONS.items() if case.convex]
)


class Sort(AbstractVectorProjection):
    """Onto no set, but what it is given is seen."""

    def _project_vector(self, x):
        return jnp.sort(x)


class TestSequential:
    def test_applies_in_order(self):
        """First to the orthant, then to the ball; the other way round gives something else."""
        x = jnp.asarray([-4.0, 3.0])
        np.testing.assert_allclose((NonNegative() >> L2Ball(1.0))(x), [0.0, 1.0], rtol=1e-6)
        np.testing.assert_allclose((L2Ball(1.0) >> NonNegative())(x), [0.0, 0.6], rtol=1e-6)

    def test_flattens(self):
        """The grouping makes no difference, also in the printed form."""
        p, q, r = NonNegative(), L2Ball(2.0), L2Sphere(3.0)
        left, right = (p >> q) >> r, p >> (q >> r)
        assert left == right == Sequential(p, q, r)
        assert repr(left) == repr(right)
        assert repr(left) == "NonNegative() >> L2Ball(radius=2.0) >> L2Sphere(radius=3.0)"

    def test_projection_after_a_number(self):
        """Only projections and transforms are composed."""
        with pytest.raises(TypeError):
            NonNegative() >> 1.0


def two_leaves():
    """Six numbers."""
    return {"a": jnp.asarray([[4.0, 1.0], [3.0, 2.0]]), "b": jnp.asarray([0.5, 0.0])}


class TestVectors:
    """What of a tree is one vector."""

    def test_whole_tree(self):
        """The leaves, raveled, in their order."""
        result = Sort()(two_leaves())
        np.testing.assert_array_equal(result["a"], [[0.0, 0.5], [1.0, 2.0]])
        np.testing.assert_array_equal(result["b"], [3.0, 4.0])

    def test_per_leaf(self):
        """Each leaf on its own."""
        result = Sort(per_leaf=True)(two_leaves())
        np.testing.assert_array_equal(result["a"], [[1.0, 2.0], [3.0, 4.0]])
        np.testing.assert_array_equal(result["b"], [0.0, 0.5])

    @pytest.mark.parametrize("axis", [0, 1, 2, -1, (0, 1), (2, 0), (-2, -1), (0, 1, 2)])
    def test_axis(self, axis):
        """NumPy sorts along the axes, raveled together in their order in the array."""
        x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
        own = sorted(a % 3 for a in (axis if isinstance(axis, tuple) else (axis,)))
        last = tuple(range(3 - len(own), 3))
        moved = np.moveaxis(x, own, last)
        shape = moved.shape
        wanted = np.sort(moved.reshape(*shape[: 3 - len(own)], -1)).reshape(shape)
        np.testing.assert_array_equal(
            Sort(axis=axis)({"x": jnp.asarray(x)})["x"], np.moveaxis(wanted, last, own)
        )

    def test_dtypes(self):
        """Each leaf keeps its dtype; the vector has the widest."""
        tree = {"a": jnp.asarray([3.0, 1.0], jnp.float16), "b": jnp.asarray([2.0, 1.0 + 2.0**-20])}
        result = Sort()(tree)
        assert result["a"].dtype == jnp.float16 and result["b"].dtype == jnp.float32
        np.testing.assert_array_equal(result["a"], [1.0, 1.0])
        np.testing.assert_array_equal(result["b"], [2.0, 3.0])

    def test_empty_leaves(self):
        """They come back, beside others and alone."""
        tree = {"a": jnp.zeros((0, 2)), "b": jnp.asarray([2.0, 1.0])}
        for sort in (Sort(), Sort(per_leaf=True), Sort(axis=-1)):
            np.testing.assert_array_equal(sort(tree)["b"], [1.0, 2.0])
            assert sort({"a": jnp.zeros((0, 2))})["a"].shape == (0, 2)

    def test_an_axis_that_a_leaf_lacks(self):
        """The error names the class, the axis, the path and the shape."""
        message = r"`Sort\(axis=...\)` must name axes .* got 1, and shape \(2,\) at `\['b'\]`"
        with pytest.raises(ValueError, match=message):
            Sort(axis=1)(two_leaves())
        with pytest.raises(ValueError, match=r"must name each axis once; got \(0, -2\)"):
            Sort(axis=(0, -2))(two_leaves()["a"])

    def test_both(self):
        """`per_leaf` and `axis` contradict each other."""
        with pytest.raises(ValueError, match=r"`Sort\(axis=...\)` must be left out .*; got 0"):
            Sort(per_leaf=True, axis=0)

    def test_complex(self):
        """Refused with the path where the set is one of real vectors."""
        with pytest.raises(TypeError, match=r"`Sort` must be given real arrays; .* `\['a'\]`"):
            Sort()({"a": jnp.asarray([1j])})


class TestTrees:
    @each_free
    def test_whole_model(self, case):
        """The float arrays are projected as one tree, everything else comes back as it is."""
        model = eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0))
        result = case.projection(model)
        arrays, rest = eqx.partition(result, eqx.is_inexact_array)
        assert case.contains(arrays)
        assert jax.tree.leaves(rest) == jax.tree.leaves(
            eqx.filter(model, eqx.is_inexact_array, inverse=True)
        )
        wanted = case.projection(eqx.filter(model, eqx.is_inexact_array))
        np.testing.assert_array_equal(flat(arrays), flat(wanted))

    @each_free
    def test_integers_are_taken_as_floats(self, case):
        """A tree of integers gives what the same floats give."""
        result = case.projection({"a": jnp.asarray([3, -4]), "b": jnp.asarray(2)})
        wanted = case.projection({"a": jnp.asarray([3.0, -4.0]), "b": jnp.asarray(2.0)})
        assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(result))
        np.testing.assert_array_equal(flat(result), flat(wanted))

    @each_free
    def test_integers_beside_floats_are_left_alone(self, case):
        """In a model integers are no parameters."""
        table = jnp.asarray([-3, 4])
        result = case.projection({"w": jnp.asarray([-3.0, 4.0]), "table": table})
        assert result["table"] is table

    @each_projection
    @pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
    def test_dtype_is_kept(self, name, dtype):
        """Half precision stays half precision, though 300^2 is beyond float16."""
        case = PROJECTIONS[name]
        tree = jax.tree.map(lambda x: jnp.round(300 * x), case.tree(dtype))
        result = case.projection(tree)
        trees.assert_same_type(result, tree)
        wanted = case.projection(jax.tree.map(lambda x: x.astype(jnp.float32), tree))
        trees.assert_close(result, wanted, rtol=2.0**-8, atol=2.0**-14)

    @each_free
    def test_empty(self, case):
        """Trees without leaves, and arrays without elements."""
        assert case.projection({}) == {}
        assert case.projection({"a": jnp.zeros(0)})["a"].shape == (0,)

    @each_projection
    def test_jit_and_vmap(self, name):
        """Compiled, and mapped over points, zero among them."""
        case = PROJECTIONS[name]
        tree = case.tree()
        points = [jax.tree.map(lambda x, c=c: c * x, tree) for c in (3.0, 0.01, 0.0)]
        wanted = trees.stack([case.projection(x) for x in points])
        first = jax.tree.map(lambda x: x[0], wanted)
        trees.assert_close(jax.jit(lambda x: case.projection(x))(points[0]), first)
        trees.assert_close(jax.vmap(case.projection)(trees.stack(points)), wanted)


numbers = st.floats(-3, 3, allow_subnormal=False).map(lambda x: 0.0 if abs(x) < 1e-6 else x)
vectors = st.lists(numbers, min_size=16, max_size=16).map(np.asarray)
# The fixture only switches float64 on, so examples may share it.
by_examples = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@cache
def on_vectors(name):
    """A projection in float64 as a compiled function of one vector, and the way back to a tree."""
    start, unravel = ravel_pytree(PROJECTIONS[name].tree(jnp.float64))
    project = jax.jit(lambda x: ravel_pytree(PROJECTIONS[name].projection(unravel(x)))[0])

    def call(x):
        return np.asarray(project(np.resize(x, start.size)))

    return call, unravel, start.size


class TestProperties:
    @each_projection
    @by_examples
    @given(x=vectors)
    def test_lands_in_the_set_and_stays(self, name, x64, x):
        """The result is in the set, and projecting it again changes nothing."""
        project, unravel, _ = on_vectors(name)
        once = project(x)
        assert PROJECTIONS[name].contains(unravel(once))
        tol = PROJECTIONS[name].tol
        np.testing.assert_allclose(project(once), once, rtol=tol, atol=10 * tol)

    @each_convex
    @by_examples
    @given(x=vectors, y=vectors)
    def test_non_expansive(self, name, x64, x, y):
        """Two points come no further apart."""
        project, _, size = on_vectors(name)
        before = np.linalg.norm(np.resize(x, size) - np.resize(y, size))
        rounding = 10 * PROJECTIONS[name].tol + 1e-14
        assert np.linalg.norm(project(x) - project(y)) <= before + rounding

    @each_convex
    @by_examples
    @given(x=vectors, y=vectors)
    def test_optimality(self, name, x64, x, y):
        """(x - P x) . (z - P x) <= 0 for each z of the set: P x is the nearest point."""
        case, (project, _, size) = PROJECTIONS[name], on_vectors(name)
        nearest, others = project(x), project(y)[None]
        if case.points is not None:
            others = np.concatenate([others, case.points(size)])
        products = (others - nearest) @ (np.resize(x, size) - nearest)
        assert np.max(products) <= 100 * case.tol + 1e-13

    @each_convex
    def test_points_of_the_set_stay(self, name, x64):
        """The points that the optimality is tested with are in the set."""
        case, (project, _, size) = PROJECTIONS[name], on_vectors(name)
        for point in [] if case.points is None else case.points(size):
            np.testing.assert_allclose(project(point), point, rtol=0, atol=10 * case.tol)

    @by_examples
    @given(x=vectors, y=vectors)
    def test_no_point_of_the_sphere_is_nearer(self, x64, x, y):
        """The same for the sphere, which is not convex."""
        project, _, _ = on_vectors("L2Sphere")
        nearest, z = project(x), project(y)
        assert np.linalg.norm(x - nearest) <= np.linalg.norm(x - z) + 1e-14
