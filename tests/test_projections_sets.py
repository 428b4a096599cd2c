"""Intersections of sets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt
from eqopt.projections import (
    PSD,
    Affine,
    Halfspace,
    Hyperplane,
    Intersection,
    L2Ball,
    NonNegative,
    Polyhedron,
    Simplex,
)

C = np.asarray([[1.0, 2.0, -1.0], [0.5, -1.0, 1.0]])
D = np.asarray([0.3, 0.2])
NORMAL = np.asarray([1.0, 1.0, 1.0])
X = np.asarray([2.0, 1.0, 0.5])


@jax.jit
def by_dykstra(normal, c, d, x):
    """A plane and two half-spaces."""
    sets = Hyperplane(normal, 0.5), Halfspace(c[0], d[0]), Halfspace(c[1], d[1])
    return Intersection(*sets)(x)


@jax.jit
def at_once(normal, c, d, x):
    """The same set as a polyhedron."""
    return Polyhedron(normal[None], 0.5, c, d)(x)


def test_equals_the_polyhedron(x64):
    """The nearest point, and not the one that one projection after the other gives."""
    wanted = at_once(NORMAL, C, D, X)
    np.testing.assert_allclose(by_dykstra(NORMAL, C, D, X), wanted, atol=1e-12)
    chain = Hyperplane(NORMAL, 0.5) >> Halfspace(C[0], 0.3) >> Halfspace(C[1], 0.2)
    assert np.max(np.abs(chain(jnp.asarray(X)) - wanted)) > 1e-2


@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_derivatives(jacobian, x64):
    """By the point and by all numbers, those of the polyhedron."""
    slopes = jacobian(by_dykstra, argnums=range(4))(NORMAL, C, D, X)
    wanted = jacobian(at_once, argnums=range(4))(NORMAL, C, D, X)
    for found, right in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(found, right, atol=1e-11)


def test_orthant_and_ball():
    """Where one after the other is right too; each leaf in its own dtype."""
    tree = {"a": jnp.asarray([1.0, -1.0, 2.0]), "b": jnp.asarray(1.0, jnp.float16)}
    result = Intersection(NonNegative(), L2Ball())(tree)
    np.testing.assert_allclose(result["a"], np.asarray([1.0, 0.0, 2.0]) / 6**0.5, rtol=1e-6)
    np.testing.assert_allclose(result["b"], 1 / 6**0.5, rtol=1e-3)
    assert result["b"].dtype == jnp.float16


def test_zero_is_not_in_the_set(x64):
    """From zero the sweeps go on as long as anywhere else."""
    result = Intersection(Hyperplane([1.0, 3.0], 2.0), Halfspace([0.0, 1.0], 0.5))(jnp.zeros(2))
    np.testing.assert_allclose(result, [0.5, 0.5], rtol=1e-5)


def test_nearest_correlation_matrix(x64):
    """Ones on the diagonal, no negative eigenvalues: Higham (2002), IMA J. Numer. Anal. 22, with
    his example and the numbers he gives."""
    x = np.asarray([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    diagonal = Affine(np.stack([np.eye(9)[i] for i in (0, 4, 8)]), 1.0)
    result = jax.jit(Intersection(PSD(), diagonal, tol=1e-10).__call__)(jnp.asarray(x))
    wanted = [[1.0, 0.7607, 0.1573], [0.7607, 1.0, 0.7607], [0.1573, 0.7607, 1.0]]
    np.testing.assert_allclose(result, wanted, atol=5e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_huge_and_tiny(scale):
    """In proportion."""
    result = Intersection(NonNegative(), Halfspace([1.0, 1.0], scale))(
        scale * jnp.asarray([3.0, -1.0])
    )
    np.testing.assert_allclose(result / scale, [1.0, 0.0], atol=1e-5)


def test_finite_derivatives():
    """Inside, at a corner and outside."""
    both = Intersection(NonNegative(), Simplex())
    for x in (jnp.asarray([0.3, 0.7]), jnp.zeros(2), jnp.asarray([1.0, 0.0])):
        assert np.all(np.isfinite(jax.jacrev(lambda x: both(x))(x)))


def test_in_an_optimizer():
    """Parameters stay in both sets."""
    optim = eqopt.SGD(0.5) >> Intersection(NonNegative(), L2Ball())
    x = jnp.asarray([0.5, 0.5])
    x, _ = optim.step(jnp.asarray([-4.0, 3.0]), optim.init(x), x)
    np.testing.assert_allclose(x, [1.0, 0.0], atol=1e-5)


def test_nothing_to_project():
    """An empty tree."""
    assert Intersection(NonNegative())({}) == {}


def test_printed():
    """As it was written."""
    assert repr(Intersection(NonNegative(), L2Ball(2.0), tol=1e-3)) == (
        "Intersection(NonNegative(), L2Ball(radius=2.0), tol=0.001)"
    )


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Intersection(), ValueError, "at least one set; got none"),
        (lambda: Intersection(NonNegative(), tol=2.0), ValueError, r"in \(0, 1\); got 2.0"),
        (lambda: Intersection(NonNegative(), max_steps=0), ValueError, "at least 1; got 0"),
    ],
)
def test_errors(build, error, message):
    """They name class, argument and number."""
    with pytest.raises(error, match=message):
        build()
