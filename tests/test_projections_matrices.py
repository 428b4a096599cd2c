"""Positive semidefinite and orthogonal matrices, and matrices with given sums."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import linear_sum_assignment, minimize

from eqopt.projections import PSD, Orthogonal, TransportPolytope

RNG = np.random.default_rng(5)


def difference_quotient(fn, x, along, step=1e-6):
    """The derivative of a NumPy function along a direction."""
    return (fn(x + step * along) - fn(x - step * along)) / (2 * step)


def psd(x):
    """By NumPy's eigenvalues."""
    values, vectors = np.linalg.eigh((x + x.conj().T) / 2)
    return (vectors * np.maximum(values, 0)) @ vectors.conj().T


def polar(x):
    """By SciPy."""
    return scipy.linalg.polar(x, side="right" if x.shape[0] >= x.shape[1] else "left")[0]


class TestPSD:
    def test_by_hand(self):
        """A diagonal matrix is clipped; one in the set loses no bit; zero stays."""
        np.testing.assert_allclose(PSD()(jnp.diag(jnp.asarray([2.0, -3.0]))), np.diag([2.0, 0.0]))
        inside = jnp.asarray([[2.0, 1.0], [1.0, 3.0]])
        np.testing.assert_array_equal(PSD()(inside), inside)
        np.testing.assert_array_equal(PSD()(jnp.zeros((2, 2))), np.zeros((2, 2)))

    @pytest.mark.parametrize("dtype", [float, complex])
    def test_equals_numpy(self, dtype, x64):
        """Stacked matrices, real and complex."""
        x = RNG.standard_normal((2, 3, 3)) + (1j * RNG.standard_normal((2, 3, 3))).astype(complex)
        x = x if dtype is complex else x.real
        result = PSD()({"x": jnp.asarray(x)})["x"]
        np.testing.assert_allclose(result, [psd(y) for y in x], atol=1e-13)

    def test_derivative(self, x64):
        """A difference quotient of NumPy's, with eigenvalues of both signs."""
        x, along = RNG.standard_normal((2, 4, 4))
        _, found = jax.jvp(PSD(), (jnp.asarray(x),), (jnp.asarray(along),))
        np.testing.assert_allclose(found, difference_quotient(psd, x, along), atol=1e-7)
        _, back = jax.vjp(PSD(), jnp.asarray(x))
        np.testing.assert_allclose(np.sum(back(found)[0] * along), np.sum(found**2), rtol=1e-10)

    def test_derivative_at_equal_eigenvalues(self):
        """The symmetric part of a tangent where both are positive; 0 at zero and below."""
        along = jnp.asarray([[1.0, 2.0], [4.0, 5.0]])
        for factor, wanted in ((2.0, [[1.0, 3.0], [3.0, 5.0]]), (0.0, 0 * along), (-1, 0 * along)):
            _, found = jax.jvp(PSD(), (factor * jnp.eye(2),), (along,))
            np.testing.assert_allclose(found, wanted, atol=1e-6)

    @pytest.mark.parametrize("scale", [1e-30, 1e30])
    def test_huge_and_tiny(self, scale):
        """In proportion."""
        x = RNG.standard_normal((3, 3)).astype(np.float32)
        result = PSD()(scale * jnp.asarray(x)) / scale
        np.testing.assert_allclose(result, psd(x), atol=3e-6)

    def test_errors(self):
        """The error names the path and the shape."""
        with pytest.raises(ValueError, match=r"`PSD` must .* square .* \(2, 3\) at `\['x'\]`"):
            PSD()({"x": jnp.zeros((2, 3))})
        with pytest.raises(ValueError, match=r"`PSD` must .* two axes; got shape \(3,\)"):
            PSD()(jnp.zeros(3))
        assert PSD()(jnp.zeros((0, 2, 2))).shape == (0, 2, 2)


class TestOrthogonal:
    @pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (1, 3)])
    def test_equals_scipy(self, shape, x64):
        """The polar factor, tall and wide, and its derivative by difference quotients."""
        x, along = RNG.standard_normal((2, *shape))
        result, found = jax.jvp(Orthogonal(), (jnp.asarray(x),), (jnp.asarray(along),))
        np.testing.assert_allclose(result, polar(x), atol=1e-13)
        np.testing.assert_allclose(found, difference_quotient(polar, x, along), atol=1e-7)

    def test_unitary(self, x64):
        """Complex matrices."""
        x = RNG.standard_normal((3, 2)) + 1j * RNG.standard_normal((3, 2))
        np.testing.assert_allclose(Orthogonal()(jnp.asarray(x)), polar(x), atol=1e-13)

    def test_zero(self):
        """The documented point, with a finite derivative, also where the rank is not full."""
        np.testing.assert_array_equal(Orthogonal()(jnp.zeros((3, 2))), np.eye(3, 2))
        np.testing.assert_array_equal(Orthogonal()(jnp.zeros((2, 3))), np.eye(2, 3))
        for x in (jnp.zeros((2, 2)), jnp.ones((2, 2)), jnp.eye(2)):
            assert np.all(np.isfinite(jax.jacrev(Orthogonal())(x)))
            result = Orthogonal()(x)
            np.testing.assert_allclose(result.T @ result, np.eye(2), atol=1e-6)

    @pytest.mark.parametrize("scale", [1e-30, 1e30])
    def test_huge_and_tiny(self, scale):
        """The size makes no difference."""
        x = RNG.standard_normal((3, 2)).astype(np.float32)
        np.testing.assert_allclose(Orthogonal()(scale * jnp.asarray(x)), polar(x), atol=3e-6)


@jax.jit
def transport(rows, columns, x):
    """The projection for given sums."""
    return TransportPolytope(rows, columns)(x)


def solved(rows, columns, x):
    """SciPy's solution of the quadratic program."""
    m, n = x.shape
    sums = np.concatenate([np.kron(np.eye(m), np.ones(n)), np.kron(np.ones(m), np.eye(n))])[:-1]
    right = np.concatenate([rows, columns])[:-1]
    result = minimize(
        lambda p: 0.5 * np.sum((p - x.ravel()) ** 2),
        np.outer(rows, columns).ravel() / np.sum(rows),
        jac=lambda p: p - x.ravel(),
        method="SLSQP",
        bounds=[(0, None)] * (m * n),
        constraints={"type": "eq", "fun": lambda p: sums @ p - right, "jac": lambda p: sums},
        options={"ftol": 1e-13, "maxiter": 300},
    )
    assert result.success
    return result.x.reshape(m, n)


class TestTransportPolytope:
    def test_by_hand(self):
        """All alike; and a vertex."""
        result = TransportPolytope()(jnp.zeros((2, 3, 3)))
        np.testing.assert_allclose(result, np.full((2, 3, 3), 1 / 3), rtol=1e-6)
        result = TransportPolytope(1, 1)(jnp.asarray([[5, 0], [0, 5]]))
        np.testing.assert_allclose(result, np.eye(2), atol=1e-6)

    def test_equals_scipy(self, x64):
        """Random sums, one of them 0, and points near and far."""
        for scale in (0.1, 1.0, 5.0):
            rows, columns = np.asarray([0.0, 0.7, 1.3]), np.asarray([0.4, 0.6, 0.9, 0.1])
            x = scale * RNG.standard_normal((3, 4))
            result = transport(rows, columns, x)
            np.testing.assert_allclose(result, solved(rows, columns, x), atol=1e-6)
            np.testing.assert_allclose(np.sum(result, axis=1), rows, atol=1e-13)
            np.testing.assert_allclose(np.sum(result, axis=0), columns, atol=1e-13)
            assert np.all(result >= 0)

    def test_far_away_it_is_an_assignment(self, x64):
        """A doubly stochastic matrix far away goes to the best permutation (Birkhoff)."""
        x = 1e3 * RNG.standard_normal((5, 5))
        row, column = linear_sum_assignment(-x)
        wanted = np.zeros((5, 5))
        wanted[row, column] = 1
        np.testing.assert_allclose(transport(1.0, 1.0, x), wanted, atol=1e-9)

    def test_derivatives(self, x64):
        """With respect to the matrix and to the sums, difference quotients of SciPy's solution;
        only rows and columns together change the sums."""
        rows, columns = np.asarray([0.8, 1.2]), np.asarray([0.5, 0.9, 0.6])
        x, along = np.asarray([[0.9, 0.1, -0.6], [0.3, 0.5, 0.7]]), RNG.standard_normal((2, 3))
        _, found = jax.jvp(partial(transport, rows, columns), (x,), (along,))
        wanted = difference_quotient(partial(solved, rows, columns), x, along, 1e-4)
        np.testing.assert_allclose(found, wanted, atol=1e-6)
        more = np.asarray([0.3, -0.1]), np.asarray([0.1, 0.3, -0.2])
        _, found = jax.jvp(lambda r, c: transport(r, c, x), (rows, columns), more)
        shifted = [solved(rows + h * more[0], columns + h * more[1], x) for h in (1e-4, -1e-4)]
        np.testing.assert_allclose(found, (shifted[0] - shifted[1]) / 2e-4, atol=1e-6)

    def test_finite_derivatives(self):
        """At zero and at a vertex, and with sums 0."""
        for sums, x in ((1.0, jnp.zeros((2, 2))), (1.0, 9 * jnp.eye(2)), (0.0, jnp.ones((2, 2)))):
            assert np.all(np.isfinite(jax.jacrev(partial(transport, sums, sums))(x)))

    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: TransportPolytope([1, 2], [1, 1]), "totals; got 3 for 2 rows and 2 for 2"),
            (lambda: TransportPolytope([1, -2]), r"row_sums=...\)` must be at least 0; got -2"),
            (lambda: TransportPolytope([[1]]), r"row_sums=...\)` must be a number or an array"),
            (lambda: TransportPolytope()(jnp.ones((2, 3))), "totals; got 2 for 2 rows and 3 for 3"),
            (lambda: TransportPolytope([1, 2])(jnp.ones((3, 3))), r"3 numbers .* \(3, 3\) .* 2\."),
        ],
    )
    def test_errors(self, build, message):
        """They name the numbers."""
        with pytest.raises(ValueError, match=message):
            build()
