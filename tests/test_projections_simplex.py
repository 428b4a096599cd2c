"""Projections onto the simplex, and onto the ball and the sphere of the sum of absolute values."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from eqopt.projections import L1Ball, L1Sphere, Simplex

SETS = {"Simplex": Simplex, "L1Ball": L1Ball, "L1Sphere": L1Sphere}
each_set = pytest.mark.parametrize("kind", SETS.values(), ids=SETS.keys())


def on_simplex(x, scale):
    """By sorting (Held, Wolfe and Crowder 1974), in float64."""
    x = np.asarray(x, np.float64)
    down = np.sort(x)[::-1]
    thresholds = (np.cumsum(down) - scale) / np.arange(1, len(x) + 1)
    return np.maximum(x - thresholds[np.flatnonzero(down > thresholds)[-1]], 0)


def by_scipy(x, scale, kind):
    """The quadratic program; absolute values as the sum of two parts."""
    n = len(x)
    if kind is Simplex:
        matrix, bound = np.eye(n), {"type": "eq", "fun": lambda z: np.sum(z) - scale}
    else:
        matrix = np.concatenate([np.eye(n), -np.eye(n)])
        bound = {"type": "ineq", "fun": lambda z: scale - np.sum(z)}
    found = minimize(
        lambda z: np.sum((matrix.T @ z - x) ** 2),
        np.full(len(matrix), scale / len(matrix)),
        jac=lambda z: 2 * matrix @ (matrix.T @ z - x),
        bounds=[(0, None)] * len(matrix),
        constraints=[bound],
        options={"ftol": 1e-16, "maxiter": 500},
    )
    return matrix.T @ found.x


class TestValues:
    @pytest.mark.parametrize("scale", [0.01, 1.0, 30.0, 1e4])
    def test_many_elements(self, scale, x64):
        """A few to all of 1000 elements stay positive; ties are among them."""
        x = np.round(np.random.default_rng(0).standard_normal(1000), 2)
        wanted = on_simplex(x, scale)
        result = Simplex(scale)(jnp.asarray(x))
        np.testing.assert_allclose(result, wanted, rtol=1e-12, atol=1e-13 * scale)
        signs = np.where(x < 0, -1, 1)
        result = L1Sphere(scale)(jnp.asarray(x))
        wanted = signs * on_simplex(np.abs(x), scale)
        np.testing.assert_allclose(result, wanted, rtol=1e-12, atol=1e-13 * scale)

    @pytest.mark.parametrize("kind", [Simplex, L1Ball], ids=["Simplex", "L1Ball"])
    @pytest.mark.parametrize("seed", range(3))
    def test_quadratic_program(self, kind, seed, x64):
        """SciPy's solution."""
        x = 2 * np.random.default_rng(seed).standard_normal(6)
        result = kind(1.5)(jnp.asarray(x))
        np.testing.assert_allclose(result, by_scipy(x, 1.5, kind), atol=1e-6)

    def test_a_million_elements_in_float32(self):
        """The sum is right to rounding, with 3 and with half a million elements left."""
        x = np.random.default_rng(0).standard_normal(1_000_000).astype(np.float32)
        for scale in (1.0, 4e5):
            result = np.asarray(Simplex(scale)(jnp.asarray(x)), np.float64)
            np.testing.assert_allclose(np.sum(result), scale, rtol=1e-5)
            np.testing.assert_allclose(result, on_simplex(x, scale), rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("size", [1e30, 1e-30])
    def test_huge_and_tiny(self, size):
        """Everything in proportion, where squares overflow or underflow."""
        x = np.asarray([0.9, -0.6, 0.1])
        for kind, wanted in [
            (Simplex, [0.95, 0.0, 0.15]),
            (L1Ball, [0.65, -0.35, 0.0]),
            (L1Sphere, [0.65, -0.35, 0.0]),
        ]:
            wanted = wanted if kind is not Simplex else [0.9, 0.0, 0.1]
            result = kind(size)(jnp.asarray(size * x, jnp.float32))
            np.testing.assert_allclose(result / np.float32(size), wanted, rtol=1e-6, atol=1e-7)

    def test_far_apart(self):
        """The largest numbers there are, where differences overflow."""
        x = jnp.asarray([-3e38, 3e38, 3e38])
        np.testing.assert_array_equal(Simplex()(x), [0.0, 0.5, 0.5])
        np.testing.assert_allclose(L1Ball()(x), [-1 / 3, 1 / 3, 1 / 3], rtol=1e-6)

    def test_geometric(self, x64):
        """Elements that halve: as many steps as there can be."""
        x = 2.0 ** -np.arange(60.0)
        for scale in (1e-15, 1e-6, 0.5, 1.9):
            result = Simplex(scale)(jnp.asarray(x))
            np.testing.assert_allclose(result, on_simplex(x, scale), rtol=1e-12, atol=1e-15)

    def test_one_element(self):
        """It is the scale."""
        for x in (-3.0, 0.0, 0.2, 5.0):
            np.testing.assert_allclose(Simplex(2.0)(jnp.asarray([x])), [2.0], rtol=1e-6)

    def test_nothing_changes_in_the_ball(self):
        """Bit for bit, on the boundary too."""
        x = jnp.asarray([0.25, -0.75, 0.0])
        for radius in (1.0, 1.5):
            np.testing.assert_array_equal(L1Ball(radius)(x), x)

    def test_sphere_from_inside(self):
        """All elements move away from 0 alike; those at 0 move up."""
        result = L1Sphere(2.0)(jnp.asarray([0.3, -0.2, 0.0]))
        np.testing.assert_allclose(result, [0.8, -0.7, 0.5], rtol=1e-6)
        np.testing.assert_allclose(L1Sphere(2.0)(jnp.zeros(4)), np.full(4, 0.5), rtol=1e-6)

    @each_set
    def test_of_size_zero(self, kind):
        """A scale of 0 leaves one point; the derivative is finite."""
        x = jnp.asarray([0.5, -2.0, 0.5])
        np.testing.assert_array_equal(kind(0.0)(x), np.zeros(3))
        assert np.all(np.isfinite(jax.jacrev(kind(0.0))(x)))

    @each_set
    def test_nan(self, kind):
        """A NaN is not hidden."""
        assert np.any(np.isnan(kind()(jnp.asarray([jnp.nan, 1.0]))))

    @each_set
    def test_errors(self, kind):
        """The error names class, argument, rule and value; complex numbers are refused."""
        with pytest.raises(ValueError, match=rf"`{kind.__name__}\(\w+=...\)` must be .*; got -1.0"):
            kind(-1.0)
        with pytest.raises(TypeError, match=rf"`{kind.__name__}` must be given real arrays"):
            kind()(jnp.asarray([1j]))

    @each_set
    def test_rows(self, kind):
        """Along an axis, and under `vmap`, each row as alone; the rows need unlike many steps."""
        x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 7)) ** 3, jnp.float32)
        wanted = np.stack([kind()(row) for row in x])
        np.testing.assert_allclose(kind(axis=-1)(x), wanted, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(kind(axis=0)(x.T), wanted.T, rtol=1e-6, atol=1e-7)
        scales = jnp.asarray([0.1, 1.0, 10.0])
        swept = eqx.filter_vmap(lambda p: p(x[0]))(eqx.filter_vmap(kind)(scales))
        wanted = np.stack([kind(float(s))(x[0]) for s in scales])
        np.testing.assert_allclose(swept, wanted, rtol=1e-5, atol=1e-6)


class TestDerivatives:
    @pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
    def test_simplex(self, jacobian, x64):
        """The mean of the positive elements is taken out: 1 - 1/2 for two of three."""
        slope = jacobian(Simplex())(jnp.asarray([0.9, 0.7, -0.4]))
        wanted = [[0.5, -0.5, 0.0], [-0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
        np.testing.assert_allclose(slope, wanted, atol=1e-15)
        slope = jacobian(Simplex())(jnp.asarray([0.5, 0.5, 0.4]))
        np.testing.assert_allclose(slope, np.eye(3) - 1 / 3, atol=1e-15)

    @pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
    def test_at_zero(self, jacobian, x64):
        """Finite, as from above."""
        for kind in (Simplex, L1Sphere):
            slope = jacobian(kind())(jnp.zeros(4))
            np.testing.assert_allclose(slope, np.eye(4) - 1 / 4, atol=1e-15)
        np.testing.assert_array_equal(jacobian(L1Ball())(jnp.zeros(4)), np.eye(4))

    @pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
    def test_by_the_size(self, jacobian, x64):
        """It is shared by the positive elements."""
        x = jnp.asarray([0.9, -0.7, 0.1])
        slope = jacobian(lambda scale: Simplex(scale)(x))(1.0)
        np.testing.assert_allclose(slope, [0.5, 0.0, 0.5], atol=1e-15)
        slope = jacobian(lambda radius: L1Ball(radius)(x))(1.0)
        np.testing.assert_allclose(slope, [0.5, -0.5, 0.0], atol=1e-15)
        slope = jacobian(lambda radius: L1Ball(radius)(x))(2.0)
        np.testing.assert_array_equal(slope, np.zeros(3))

    def test_second(self, x64):
        """Piecewise linear: no second derivative."""
        x = jnp.asarray([0.9, 0.7, -0.4])
        assert not np.any(jax.jacfwd(jax.jacrev(Simplex()))(x))
