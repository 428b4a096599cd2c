"""Projections: values, derivatives, what makes them projections, and optimizers that use them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import PROJECTIONS
from hypothesis import HealthCheck, given, settings, strategies as st

import eqopt
from eqopt import select
from eqopt.projections import L2Ball, L2Sphere, NonNegative, Sequential

each_projection = pytest.mark.parametrize("case", PROJECTIONS.values(), ids=PROJECTIONS.keys())
each_convex = pytest.mark.parametrize(
    "case",
    [case for case in PROJECTIONS.values() if case.convex],
    ids=[name for name, case in PROJECTIONS.items() if case.convex],
)


def tree(flat):
    """Six numbers as a tree."""
    return {"b": jnp.asarray(flat[:2]), "w": jnp.asarray(np.reshape(flat[2:], (2, 2)))}


def flat(tree):
    """A tree as one vector."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


class TestValues:
    def test_non_negative(self):
        """The larger of the element and 0."""
        result = NonNegative()({"a": jnp.asarray([-1.0, 0.0, 2.0]), "b": jnp.asarray(-3.0)})
        np.testing.assert_array_equal(result["a"], [0.0, 0.0, 2.0])
        assert float(result["b"]) == 0.0

    def test_non_negative_keeps_nan(self):
        """A NaN is not hidden."""
        assert np.isnan(NonNegative()(jnp.asarray(jnp.nan)))

    def test_ball_takes_the_tree_as_one_vector(self):
        """Norm 5 over two leaves, radius 2."""
        result = L2Ball(2.0)({"a": jnp.asarray([3.0]), "b": jnp.asarray(4.0)})
        np.testing.assert_allclose(result["a"], [1.2], rtol=1e-6)
        np.testing.assert_allclose(result["b"], 1.6, rtol=1e-6)

    def test_ball_changes_nothing_inside(self):
        """Bit for bit, on the boundary too."""
        for radius in (5.0, 5.5):
            x = jnp.asarray([3.0, 4.0])
            np.testing.assert_array_equal(L2Ball(radius)(x), x)

    def test_sphere(self):
        """From outside, from inside, and over two leaves."""
        np.testing.assert_allclose(L2Sphere(2.0)(jnp.asarray([3.0, 4.0])), [1.2, 1.6], rtol=1e-6)
        np.testing.assert_allclose(L2Sphere(2.0)(jnp.asarray([0.3, 0.4])), [1.2, 1.6], rtol=1e-6)
        result = L2Sphere()({"a": jnp.asarray([3.0]), "b": jnp.asarray(4.0)})
        np.testing.assert_allclose(flat(result), [0.6, 0.8], rtol=1e-6)

    def test_sphere_at_zero(self):
        """The documented point: all elements radius / sqrt(n), n counted over the tree."""
        result = L2Sphere(2.0)({"a": jnp.zeros(3), "b": jnp.zeros(())})
        np.testing.assert_allclose(flat(result), np.full(4, 1.0), rtol=1e-6)

    @pytest.mark.parametrize("kind", [L2Ball, L2Sphere])
    def test_complex(self, kind):
        """The norm is that of the moduli."""
        result = kind(1.0)(jnp.asarray([3.0j, 4.0 + 0.0j]))
        np.testing.assert_allclose(result, [0.6j, 0.8], rtol=1e-6)

    def test_sequential_applies_in_order(self):
        """First to the orthant, then to the ball; the other way round gives something else."""
        x = jnp.asarray([-4.0, 3.0])
        np.testing.assert_allclose((NonNegative() >> L2Ball(1.0))(x), [0.0, 1.0], rtol=1e-6)
        np.testing.assert_allclose((L2Ball(1.0) >> NonNegative())(x), [0.0, 0.6], rtol=1e-6)

    def test_sequential_flattens(self):
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

    @pytest.mark.parametrize("kind", [L2Ball, L2Sphere])
    def test_negative_radius(self, kind):
        """The error names class, argument, rule and value."""
        name = kind.__name__
        message = rf"`{name}\(radius=...\)` must be at least 0; got -1.0."
        with pytest.raises(ValueError, match=message):
            kind(-1.0)

    @pytest.mark.parametrize("kind", [L2Ball, L2Sphere])
    def test_batched_radius(self, kind):
        """Built and used under `filter_vmap`."""
        radii, x = jnp.asarray([0.5, 1.0, 2.0]), jnp.asarray([3.0, 4.0])
        batched = eqx.filter_vmap(kind)(radii)
        result = eqx.filter_vmap(lambda p, x: p(x), in_axes=(0, None))(batched, x)
        np.testing.assert_allclose(result, radii[:, None] * np.asarray([0.6, 0.8]), rtol=1e-6)


class TestTrees:
    @each_projection
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

    @each_projection
    def test_integers_are_taken_as_floats(self, case):
        """A tree of integers gives what the same floats give."""
        result = case.projection({"a": jnp.asarray([3, -4]), "b": jnp.asarray(2)})
        wanted = case.projection({"a": jnp.asarray([3.0, -4.0]), "b": jnp.asarray(2.0)})
        assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(result))
        np.testing.assert_array_equal(flat(result), flat(wanted))

    @each_projection
    def test_integers_beside_floats_are_left_alone(self, case):
        """In a model integers are no parameters."""
        table = jnp.asarray([-3, 4])
        result = case.projection({"w": jnp.asarray([-3.0, 4.0]), "table": table})
        assert result["table"] is table

    @each_projection
    @pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
    def test_dtype_is_kept(self, case, dtype):
        """Half precision stays half precision, though 300^2 is beyond float16."""
        result = case.projection(jnp.asarray([300.0, -400.0], dtype))
        assert result.dtype == dtype
        wanted = case.projection(jnp.asarray([300.0, -400.0]))
        np.testing.assert_allclose(result.astype(np.float32), wanted, rtol=2.0**-8)

    @each_projection
    def test_empty(self, case):
        """Trees without leaves, and arrays without elements."""
        assert case.projection({}) == {}
        assert case.projection({"a": jnp.zeros(0)})["a"].shape == (0,)

    @each_projection
    def test_jit_and_vmap(self, case):
        """Compiled, and mapped over points."""
        points = jnp.asarray([[3.0, -4.0], [0.1, 0.2], [0.0, 0.0]])
        wanted = np.stack([case.projection(x) for x in points])
        np.testing.assert_allclose(jax.jit(case.projection)(points[0]), wanted[0], rtol=1e-6)
        np.testing.assert_allclose(jax.vmap(case.projection)(points), wanted, rtol=1e-6)


class TestDerivatives:
    @pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
    @pytest.mark.parametrize("point", [[0.0, 0.0], [0.3, -0.4]])
    def test_identity_inside_the_ball(self, jacobian, point):
        """At zero too."""
        np.testing.assert_array_equal(jacobian(L2Ball())(jnp.asarray(point)), np.eye(2))

    @pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
    @pytest.mark.parametrize("kind", [L2Ball, L2Sphere])
    def test_outside_the_ball_and_on_the_sphere(self, jacobian, kind, x64):
        """r / |x| times the projection along x."""
        x = np.asarray([3.0, -4.0, 12.0])
        unit = x / 13.0
        wanted = 2.0 / 13.0 * (np.eye(3) - np.outer(unit, unit))
        np.testing.assert_allclose(jacobian(kind(2.0))(jnp.asarray(x)), wanted, atol=1e-14)

    @pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
    def test_sphere_at_zero(self, jacobian):
        """The documented derivative 0."""
        np.testing.assert_array_equal(jacobian(L2Sphere())(jnp.zeros(2)), np.zeros((2, 2)))

    @pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
    def test_non_negative(self, jacobian):
        """1 above 0, and 0 elsewhere, at 0 too."""
        result = jacobian(NonNegative())(jnp.asarray([-1.0, 0.0, 2.0]))
        np.testing.assert_array_equal(result, np.diag([0.0, 0.0, 1.0]))

    @pytest.mark.parametrize("kind", [L2Ball, L2Sphere])
    def test_with_respect_to_the_radius(self, kind):
        """The outward direction outside the ball; 0 inside it."""
        slope = jax.jacfwd(lambda radius: kind(radius)(jnp.asarray([3.0, 4.0])))(2.0)
        np.testing.assert_allclose(slope, [0.6, 0.8], rtol=1e-6)

    def test_with_respect_to_the_radius_inside(self):
        """A larger ball changes nothing inside."""
        slope = jax.jacfwd(lambda radius: L2Ball(radius)(jnp.asarray([0.3, 0.4])))(2.0)
        np.testing.assert_array_equal(slope, np.zeros(2))


numbers = st.floats(-3, 3, allow_subnormal=False).map(lambda x: 0.0 if abs(x) < 1e-6 else x)
vectors = st.lists(numbers, min_size=6, max_size=6).map(np.asarray)
# The fixture only switches float64 on, so examples may share it.
by_examples = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class TestProjectionProperties:
    @each_projection
    @by_examples
    @given(x=vectors)
    def test_lands_in_the_set_and_stays(self, case, x64, x):
        """The result is in the set, and projecting it again changes nothing."""
        once = case.projection(tree(x))
        assert case.contains(once)
        np.testing.assert_allclose(flat(case.projection(once)), flat(once), rtol=1e-14)

    @each_convex
    @by_examples
    @given(x=vectors, y=vectors)
    def test_non_expansive(self, case, x64, x, y):
        """Two points come no further apart."""
        apart = flat(case.projection(tree(x))) - flat(case.projection(tree(y)))
        assert np.linalg.norm(apart) <= np.linalg.norm(x - y) + 1e-14

    @each_convex
    @by_examples
    @given(x=vectors, y=vectors)
    def test_optimality(self, case, x64, x, y):
        """(x - P x) . (z - P x) <= 0 for each z of the set: P x is the nearest point."""
        nearest, z = (flat(case.projection(tree(v))) for v in (x, y))
        assert np.dot(x - nearest, z - nearest) <= 1e-13

    @by_examples
    @given(x=vectors, y=vectors)
    def test_no_point_of_the_sphere_is_nearer(self, x64, x, y):
        """The same for the sphere, which is not convex."""
        nearest, z = (flat(L2Sphere(0.9)(tree(v))) for v in (x, y))
        assert np.linalg.norm(x - nearest) <= np.linalg.norm(x - z) + 1e-14


def gradients(step):
    """Signs change from step to step, so that bounds are met and left again."""
    return tree(np.asarray([1.0, -1.0, 2.0, -0.5, 0.3, -3.0]) * (-1.0) ** (step // 3))


class TestInOptimizers:
    @each_projection
    @pytest.mark.parametrize("optim", [eqopt.Adam(0.3), eqopt.SGD(0.3)], ids=["Adam", "SGD"])
    def test_step_projects_exactly(self, case, optim):
        """Each step equals a step without the projection, projected by hand, bit for bit."""
        projected = optim >> case.projection
        params = by_hand = case.projection(tree(np.asarray([0.5, 0.1, -0.2, 0.3, 0.0, 0.7])))
        state, state_by_hand = projected.init(params), optim.init(params)
        for t in range(8):
            params, state = projected.step(gradients(t), state, params)
            by_hand, state_by_hand = optim.step(gradients(t), state_by_hand, by_hand)
            by_hand = case.projection(by_hand)
            np.testing.assert_array_equal(flat(params), flat(by_hand))
            assert case.contains(params)

    def test_non_negative_is_kept_exactly(self):
        """Not one element is below 0, at any step, and some are at 0."""
        optim = eqopt.Adam(0.3) >> NonNegative()
        params = tree(np.full(6, 0.5))
        state = optim.init(params)
        touched = 0
        for t in range(8):
            params, state = optim.step(gradients(t), state, params)
            assert np.all(flat(params) >= 0)
            touched += np.sum(flat(params) == 0)
        assert touched > 0

    @each_projection
    def test_call_returns_the_difference(self, case):
        """`proj(params + updates) - params`."""
        params, updates = tree(np.full(6, 0.5, np.float32)), gradients(0)
        optim = eqopt.Project(case.projection)
        result, _ = optim(updates, optim.init(params), params)
        wanted = flat(case.projection(eqopt.apply_updates(params, updates))) - flat(params)
        np.testing.assert_array_equal(flat(result), wanted)

    def test_only_the_selected_leaves(self):
        """The selected leaves are one tree; the others are not touched."""
        optim = eqopt.Project(L2Ball(1.0), where=select.Path("w|c"))
        params = {"b": jnp.asarray([3.0, 4.0]), "c": jnp.asarray(3.0), "w": jnp.asarray([4.0])}
        zeros = jax.tree.map(jnp.zeros_like, params)
        result, _ = optim.step(zeros, optim.init(params), params)
        np.testing.assert_array_equal(result["b"], [3.0, 4.0])
        np.testing.assert_allclose(result["c"], 0.6, rtol=1e-6)
        np.testing.assert_allclose(result["w"], [0.8], rtol=1e-6)
        updates, _ = optim(zeros, optim.init(params), params)
        np.testing.assert_array_equal(updates["b"], [0.0, 0.0])
        np.testing.assert_allclose(updates["w"], [-3.2], rtol=1e-6)

    def test_params_are_needed(self):
        """Without them the error names the class and the keyword."""
        optim = eqopt.Project(NonNegative())
        x = jnp.ones(2)
        with pytest.raises(TypeError, match="`Project` needs `params`"):
            optim(x, optim.init(x))

    def test_whole_model(self):
        """A model stays in the set through a step, and what is not trained stays as it is."""
        model = eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0))
        optim = eqopt.SGD(0.1) >> NonNegative()
        grads = eqx.filter_grad(lambda m: jnp.sum(m(jnp.ones(2))))(model)
        activation = model.activation
        model, _ = optim.step(grads, optim.init(model), model)
        assert np.all(flat(eqx.filter(model, eqx.is_array)) >= 0)
        assert model.activation is activation

    def test_projection_alone(self):
        """A projection at the head of a chain becomes a member too."""
        optim = NonNegative() >> eqopt.Scale(1.0)
        assert [type(member) for member in optim] == [eqopt.Project, eqopt.Scale]
