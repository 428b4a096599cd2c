"""Projections onto bounds on each element: values and derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqopt.projections import Box, Hypercube, LInfBall, NonNegative


class TestNonNegative:
    def test_non_negative(self):
        """The larger of the element and 0."""
        result = NonNegative()({"a": jnp.asarray([-1.0, 0.0, 2.0]), "b": jnp.asarray(-3.0)})
        np.testing.assert_array_equal(result["a"], [0.0, 0.0, 2.0])
        assert float(result["b"]) == 0.0

    def test_non_negative_keeps_nan(self):
        """A NaN is not hidden."""
        assert np.isnan(NonNegative()(jnp.asarray(jnp.nan)))

    @pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
    def test_derivative(self, jacobian):
        """1 above 0, and 0 elsewhere, at 0 too."""
        result = jacobian(NonNegative())(jnp.asarray([-1.0, 0.0, 2.0]))
        np.testing.assert_array_equal(result, np.diag([0.0, 0.0, 1.0]))

    def test_complex(self):
        """Refused, with the path."""
        with pytest.raises(TypeError, match=r"`NonNegative` must be given real .* `\['a'\]`"):
            NonNegative()({"a": jnp.asarray([1j])})


class TestBox:
    def test_numbers(self):
        """One pair of bounds for all elements of all leaves."""
        result = Box(-1, 0.5)({"a": jnp.asarray([-2.0, 0.3, 2.0]), "b": jnp.asarray(-7.0)})
        np.testing.assert_array_equal(result["a"], np.float32([-1.0, 0.3, 0.5]))
        assert float(result["b"]) == -1.0

    def test_prefix_trees(self):
        """A number for each subtree; on the other side one for all."""
        tree = {"a": [jnp.asarray([-2.0, 2.0]), jnp.asarray(-0.5)], "b": jnp.asarray([-3.0, 0.0])}
        result = Box({"a": 0.0, "b": -jnp.inf}, 1.0)(tree)
        np.testing.assert_array_equal(result["a"][0], [0.0, 1.0])
        assert float(result["a"][1]) == 0.0
        np.testing.assert_array_equal(result["b"], [-3.0, 0.0])
        result = Box(-1.0, {"a": [0.5, 0.25], "b": np.float64(7.0)})(tree)
        np.testing.assert_array_equal(result["a"][0], [-1.0, 0.5])
        np.testing.assert_array_equal(result["b"], [-1.0, 0.0])

    def test_arrays(self):
        """A bound for each element, of NumPy or JAX, of integers too."""
        lower, upper = np.asarray([0, -1, -1]), jnp.asarray([1.0, -0.5, jnp.inf])
        result = Box(lower, upper)(jnp.asarray([-2.0, 2.0, 2.0]))
        np.testing.assert_array_equal(result, [0.0, -0.5, 2.0])

    def test_bounds_of_a_model(self):
        """Bounds made of the model's own arrays, beside leaves that are none."""
        model = eqx.nn.Linear(2, 3, key=jax.random.key(0))
        params = eqx.filter(model, eqx.is_array)
        lower = jax.tree.map(lambda x: x - 0.1, params)
        moved = eqx.apply_updates(model, jax.tree.map(lambda x: 0 * x - 0.2, params))
        result = Box(lower, jnp.inf)(moved)
        np.testing.assert_array_equal(result.weight, lower.weight)
        np.testing.assert_array_equal(result.bias, lower.bias)

    def test_equal_bounds(self):
        """They hold an element fast."""
        np.testing.assert_array_equal(Box(0.5, 0.5)(jnp.asarray([-1.0, 0.5, 1.0])), [0.5] * 3)

    @pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
    def test_idempotent_bit_for_bit(self, dtype):
        """Also where the bounds are no numbers of the dtype."""
        x = jnp.linspace(-1, 1, 33).astype(dtype)
        for box in (Box(-0.3, 0.7), Box(jnp.full(33, -0.3), jnp.full(33, 0.7))):
            once = box(x)
            assert once.dtype == dtype
            np.testing.assert_array_equal(box(once), once)

    def test_nan(self):
        """A NaN is not hidden."""
        for project in (Box(0.0, 1.0), Hypercube(), LInfBall()):
            assert np.isnan(project(jnp.asarray(jnp.nan)))

    @pytest.mark.parametrize(
        ("lower", "upper", "message"),
        [
            (1.0, 0.5, r"got 1.0 and 0.5 at `.`"),
            ({"a": 0, "b": 2}, 1, r"got 2 and 1 at `\['b'\]`"),
            (0.0, {"a": np.asarray([1.0, -3.0])}, r"got 0.0 and -3.0 at `\['a'\]`"),
            (jnp.asarray([0.0, 1.0]), jnp.asarray([0.0, 0.5]), r"got 1.0 and 0.5 at `.`"),
            (float("nan"), 1.0, r"got nan and 1.0"),
        ],
        ids=["numbers", "tree", "elements", "arrays", "nan"],
    )
    def test_lower_above_upper(self, lower, upper, message):
        """The error names the numbers and the path."""
        with pytest.raises(
            ValueError, match=r"`Box\(lower=...\)` must be at most `upper`; " + message
        ):
            Box(lower, upper)

    def test_traced_bounds_pass(self):
        """Their values can't be looked at."""
        result = jax.jit(lambda low, x: Box(low, 1.0)(x))(jnp.asarray(0.5), jnp.asarray([0.0, 2.0]))
        np.testing.assert_array_equal(result, [0.5, 1.0])

    def test_what_does_not_fit(self):
        """Shapes, structures and things that are no numbers."""
        with pytest.raises(
            ValueError, match=r"`Box\(lower=..., upper=...\)` must have equal shapes"
        ):
            Box(np.zeros(2), np.zeros(3))
        with pytest.raises(
            ValueError, match=r"`Box\(lower=...\)` must .* shape \(2,\) for .*`\['a'\]`"
        ):
            Box(np.zeros(2), 1.0)({"a": jnp.zeros(3)})
        with pytest.raises(ValueError, match=r"`Box\(upper=...\)` must be a number, or a tree"):
            Box(0.0, {"b": 1.0})({"a": jnp.zeros(3)})
        with pytest.raises(TypeError, match=r"`Box\(lower=...\)` must be a number, an array .*'0'"):
            Box({"a": "0"}, 1.0)
        with pytest.raises(TypeError, match=r"`Box` must be given real arrays"):
            Box(0.0, 1.0)(jnp.asarray([1j]))

    def test_batched_bounds(self):
        """Built and used under `filter_vmap`."""
        x, uppers = jnp.asarray([0.2, 3.0]), jnp.asarray([0.1, 1.0])
        boxes = eqx.filter_vmap(lambda upper: Box(0.0, upper))(uppers)
        result = eqx.filter_vmap(lambda box: box(x))(boxes)
        np.testing.assert_allclose(result, [[0.1, 0.1], [0.2, 1.0]], rtol=1e-6)

    @pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
    def test_derivative(self, jacobian):
        """1 between the bounds and 0 elsewhere, at a bound too; by a bound where it is met."""
        x = jnp.asarray([-1.0, 0.0, 0.5, 1.0, 2.0])
        np.testing.assert_array_equal(jacobian(Box(0.0, 1.0))(x), np.diag([0.0, 0, 1, 0, 0]))
        slope = jacobian(lambda upper: Box(0.0, upper)(x))(1.0)
        np.testing.assert_array_equal(slope, [0.0, 0.0, 0.0, 1.0, 1.0])
        bounds = jnp.zeros(5)
        slope = jacobian(lambda lower: Box(lower, 1.0)(x))(bounds)
        np.testing.assert_array_equal(slope, np.diag([1.0, 1, 0, 0, 0]))


class TestCubes:
    def test_hypercube(self):
        """From 0 to the scale."""
        result = Hypercube(2.0)({"a": jnp.asarray([-1.0, 0.5, 3.0]), "b": jnp.asarray(2.0)})
        np.testing.assert_array_equal(result["a"], [0.0, 0.5, 2.0])
        assert float(result["b"]) == 2.0

    def test_linf_ball(self):
        """From minus the radius to the radius."""
        result = LInfBall(0.5)(jnp.asarray([-1.0, 0.25, -0.25, 3.0]))
        np.testing.assert_array_equal(result, [-0.5, 0.25, -0.25, 0.5])

    @pytest.mark.parametrize("kind", [Hypercube, LInfBall])
    def test_of_size_zero(self, kind):
        """One point, with derivative 0."""
        x = jnp.asarray([-1.0, 0.0, 2.0])
        np.testing.assert_array_equal(kind(0.0)(x), np.zeros(3))
        np.testing.assert_array_equal(jax.jacrev(kind(0.0))(x), np.zeros((3, 3)))

    @pytest.mark.parametrize("kind", [Hypercube, LInfBall])
    def test_derivative(self, kind):
        """1 in the interior, 0 elsewhere; by the size at the bound that moves."""
        x = jnp.asarray([0.0, 0.5, 1.0, 2.0])
        inside = [kind is LInfBall, True, False, False]
        np.testing.assert_array_equal(jax.jacrev(kind(1.0))(x), np.diag(np.float32(inside)))
        slope = jax.jacfwd(lambda size: kind(size)(x))(1.0)
        np.testing.assert_array_equal(slope, [0.0, 0.0, 1.0, 1.0])

    @pytest.mark.parametrize("kind", [Hypercube, LInfBall])
    def test_errors(self, kind):
        """A negative size and complex numbers are refused."""
        with pytest.raises(ValueError, match=rf"`{kind.__name__}\(\w+=...\)` must be at least 0"):
            kind(-1.0)
        with pytest.raises(TypeError, match=rf"`{kind.__name__}` must be given real arrays"):
            kind()(jnp.asarray([1j]))
