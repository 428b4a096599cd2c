"""Reported cases about projections."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqopt.projections import L1Ball, L2Ball, L2Sphere, Simplex


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        ([0.5, 0.5], [0.5, 0.5]),
        ([1.0, 1.0], [0.5, 0.5]),
        ([2.0, 0.0], [1.0, 0.0]),
        ([0.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]),
        ([-1.0, -2.0, -3.0], [1.0, 0.0, 0.0]),
        ([0.3, 0.2, -0.1], [0.5, 0.4, 0.1]),
        ([1, 2, 3, 4], [0.0, 0.0, 0.0, 1.0]),
        ([1e8, 1e8], [0.5, 0.5]),
    ],
    ids=str,
)
def test_case_K1_simplex(x, wanted):
    """Ordinary, tied, zero, negative, whole and large numbers; the result is a float."""
    result = Simplex()(jnp.asarray(x))
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-7)


def test_case_K1_simplex_of_a_tree():
    """The tree is one vector."""
    result = Simplex()({"w": jnp.asarray([2.5, 3.2]), "b": jnp.asarray(0.5)})
    np.testing.assert_allclose(result["w"], [0.15, 0.85], rtol=1e-6)
    assert float(result["b"]) == 0.0


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        ([0.3, -0.2], [0.3, -0.2]),
        ([1.0, -1.0], [0.5, -0.5]),
        ([3.0, -1.0, 0.5], [1.0, 0.0, 0.0]),
        ([0.0, 0.0], [0.0, 0.0]),
        ([0.9, -0.6], [0.65, -0.35]),
    ],
    ids=str,
)
def test_case_K3_l1_ball(x, wanted):
    """Inside, on a face, on a corner, at zero; alone and mapped."""
    x = jnp.asarray(x)
    np.testing.assert_allclose(L1Ball()(x), wanted, rtol=1e-6, atol=1e-7)
    lanes = jax.vmap(L1Ball())(jnp.stack([x, 0.1 * x, x]))
    np.testing.assert_allclose(lanes[::2], [wanted, wanted], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_case_K3_l1_ball_jacobian(jacobian):
    """The identity inside, exactly; on a face, along it."""
    np.testing.assert_array_equal(jacobian(L1Ball())(jnp.asarray([0.3, -0.2])), np.eye(2))
    slope = jacobian(L1Ball())(jnp.asarray([0.9, -0.6]))
    np.testing.assert_allclose(slope, [[0.5, 0.5], [0.5, 0.5]], rtol=1e-6)


def test_case_K4_l2_ball():
    """Zero stays, with the identity for a derivative; whole numbers are taken as floats."""
    zero = jnp.zeros(2)
    np.testing.assert_array_equal(L2Ball()(zero), zero)
    np.testing.assert_array_equal(jax.jacrev(L2Ball())(zero), np.eye(2))
    for x in (jnp.asarray([3.0, 4.0]), jnp.asarray([3, 4])):
        np.testing.assert_allclose(L2Ball()(x), [0.6, 0.8], rtol=1e-6)


def test_case_K4_l2_sphere_at_zero():
    """The documented point, with derivative 0."""
    np.testing.assert_allclose(L2Sphere()(jnp.zeros(4)), np.full(4, 0.5), rtol=1e-6)
    np.testing.assert_array_equal(jax.jacrev(L2Sphere())(jnp.zeros(4)), np.zeros((4, 4)))
