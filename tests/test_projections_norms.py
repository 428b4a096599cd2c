"""Projections onto the balls and spheres of norms: values and derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trees import flat

from eqopt.projections import L2Ball, L2Sphere


class TestL2Values:
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

    @pytest.mark.parametrize("size", [1e30, 1e-30, 3e-38, 5e37])
    @pytest.mark.parametrize("kind", [L2Ball, L2Sphere])
    def test_huge_and_tiny(self, kind, size):
        """Where the squares overflow or underflow in float32; for a radius near 1 too."""
        x = jnp.asarray([3.0, -4.0]) * jnp.float32(size)
        result = np.asarray(kind(size)(x), np.float64) / size
        np.testing.assert_allclose(result, [0.6, -0.8], rtol=1e-6)
        result = kind(2.0)(x)
        small = size < 1 and kind is L2Ball
        np.testing.assert_allclose(result, x if small else [1.2, -1.6], rtol=1e-6)
        slope = jax.jacrev(kind(size))(x)
        wanted = 0.2 * np.asarray([[0.64, 0.48], [0.48, 0.36]])
        np.testing.assert_allclose(slope, wanted, rtol=1e-5)

    def test_huge_beside_usual_lanes(self):
        """Mapped over vectors of unlike sizes, each as alone."""
        x = jnp.asarray([3.0, -4.0])
        lanes = jnp.stack([1e30 * x, x, 1e-30 * x, 0 * x])
        np.testing.assert_allclose(
            L2Ball(2.0, axis=-1)(lanes), [[1.2, -1.6], [1.2, -1.6], lanes[2], [0, 0]], rtol=1e-6
        )
        np.testing.assert_allclose(
            jax.vmap(L2Sphere(2.0))(lanes),
            [[1.2, -1.6], [1.2, -1.6], [1.2, -1.6], [2**0.5, 2**0.5]],
            rtol=1e-6,
        )

    def test_radius_zero(self):
        """One point, with finite derivatives."""
        for kind in (L2Ball, L2Sphere):
            for x in (jnp.zeros(2), jnp.asarray([3.0, 4.0])):
                np.testing.assert_array_equal(kind(0.0)(x), np.zeros(2))
                assert np.all(np.isfinite(jax.jacrev(kind(0.0))(x)))

    def test_second_derivative(self, x64):
        """That of x / |x| by finite differences of the first."""
        x, step = jnp.asarray([3.0, -4.0, 12.0]), 1e-5
        first, second = jax.jacrev(L2Sphere()), jax.jacfwd(jax.jacrev(L2Sphere()))
        for i in range(3):
            shift = step * jnp.eye(3)[i]
            slope = (first(x + shift) - first(x - shift)) / (2 * step)
            np.testing.assert_allclose(second(x)[:, :, i], slope, atol=1e-9)


class TestL2Derivatives:
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

    @pytest.mark.parametrize("kind", [L2Ball, L2Sphere])
    def test_with_respect_to_the_radius(self, kind):
        """The outward direction outside the ball; 0 inside it."""
        slope = jax.jacfwd(lambda radius: kind(radius)(jnp.asarray([3.0, 4.0])))(2.0)
        np.testing.assert_allclose(slope, [0.6, 0.8], rtol=1e-6)

    def test_with_respect_to_the_radius_inside(self):
        """A larger ball changes nothing inside."""
        slope = jax.jacfwd(lambda radius: L2Ball(radius)(jnp.asarray([0.3, 0.4])))(2.0)
        np.testing.assert_array_equal(slope, np.zeros(2))
