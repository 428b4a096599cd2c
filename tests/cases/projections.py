"""The projections: how to see that a tree is in the set, and some points of it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import trees
from trees import flat

from eqopt import projections

from .kinds import Projection


def matrices(dtype=jnp.float32):
    """Leaves of at least one axis."""
    return {key: x for key, x in trees.params(dtype).items() if key != "s"}


def leaves_as_vectors(tree):
    """The leaves of a tree, each as a vector."""
    return [np.ravel(x) for x in jax.tree.leaves(tree)]


def rows(tree):
    """The last axes of all leaves, as vectors."""
    return [row for x in jax.tree.leaves(tree) for row in np.reshape(x, (-1, x.shape[-1]))]


def _norm(tree):
    return np.linalg.norm(flat(tree))


def _all_non_negative(tree):
    return bool(np.all(flat(tree) >= 0))


def axes_of(radius):
    """Where the axes meet a ball of any norm."""
    return lambda n: radius * np.concatenate([np.eye(n), -np.eye(n)])


def _largest(tree):
    return np.max(np.abs(flat(tree)))


def _absolute(tree):
    return np.sum(np.abs(flat(tree)))


def in_simplex(x, scale):
    """Whether a vector is in the simplex, to rounding."""
    return bool(np.all(x >= 0)) and abs(np.sum(x) - scale) <= 2e-6 * scale


def some_of_a_box(lower, upper):
    """Corners of a box, and its middle."""

    def points(n):
        corner = np.arange(n) % 2 == 0
        low, high = np.full(n, lower), np.full(n, upper)
        corners = [low, high, np.where(corner, low, high), np.where(corner, high, low)]
        return np.stack([*corners, (low + high) / 2])

    return points


def simplex_in_optax(tree, scale):
    """optax's, less the largest element, which changes nothing but the rounding."""
    largest = jnp.max(jnp.asarray(jax.tree.leaves(jax.tree.map(jnp.max, tree))))
    return _optax.projection_simplex(jax.tree.map(lambda x: x - largest, tree), scale)


def few(dtype=jnp.float32):
    """Five elements, for sets given by vectors and matrices."""
    full = trees.params(dtype)
    return {"s": full["s"], "w": full["layers"][0]["w"][:, 0]}


def squares(dtype=jnp.float32):
    """Square matrices, alone and stacked."""
    full = trees.params(dtype)
    return {"a": full["layers"][0]["w"][:3], "b": full["layers"][0]["w"].reshape(3, 2, 2)}


def tall_and_wide(dtype=jnp.float32):
    """A tall matrix and wide ones."""
    w = trees.params(dtype)["layers"][0]["w"]
    return {"a": w, "b": w.reshape(2, 2, 3)}


def table(dtype=jnp.float32):
    """A matrix."""
    return {"w": trees.params(dtype)["layers"][0]["w"]}


def in_polyhedron(tree, a, b, c, d):
    """Whether a tree solves a x = b and c x <= d, to rounding."""
    x = flat(tree)
    return bool(np.all(np.abs(a @ x - b) <= 2e-6) and np.all(c @ x <= d + 2e-6))


def is_psd(x):
    """Whether matrices are symmetric without negative eigenvalues, to rounding."""
    scale = 2e-6 * max(1.0, float(np.max(np.abs(x))))
    mirrored = np.swapaxes(x, -1, -2)
    return bool(np.all(np.abs(x - mirrored) <= scale) and np.all(np.linalg.eigvalsh(x) >= -scale))


def is_orthogonal(x):
    """Whether the columns, or rows if there are fewer, are orthonormal, to rounding."""
    x = np.asarray(x) if x.shape[-2] >= x.shape[-1] else np.swapaxes(x, -1, -2)
    return np.allclose(np.swapaxes(x, -1, -2) @ x, np.eye(x.shape[-1]), rtol=0, atol=4e-6)


# Each number is one of float32, so that sets are the same in float64.
_NORMAL = np.asarray([1.0, -0.5, 2.0, 0.25, 1.5])
_NORMAL_TREE = {"s": jnp.asarray(1.0), "w": jnp.asarray(_NORMAL[1:])}
_NO_ROWS = np.zeros((0, 5)), np.zeros(0)
_A = np.asarray([[1.0, 0.5, 0.0, -1.0, 2.0], [0.0, 1.0, 1.0, 1.0, 1.0]])
_C = np.asarray(
    [[0.5, -1.0, 0.25, 0.0, 1.0], [1.0, 1.0, -0.5, 0.25, 0.0], [0.0, 0.0, 1.0, 1.0, 0.5]]
)
_B, _D = np.asarray([0.5, 0.25]), np.asarray([-0.5, 0.25, 1.0])
_ROW_SUMS, _COL_SUMS = np.asarray([0.5, 0.25, 0.75, 0.5]), np.asarray([1.0, 0.5, 0.5])


def _like(tree, data, factor=1):
    """Data of a set in the dtypes of a tree."""
    return jax.tree.map(lambda x, y: factor * jnp.asarray(y, x.dtype), tree, data)


_LOWER = {"b": -0.4, "layers": jnp.asarray(-0.2)}
_UPPER = {"b": jnp.asarray([-0.3, 0.2, 0.9]), "layers": [{"w": 0.3}]}
_optax = optax.projections

PROJECTIONS: dict[str, Projection] = {
    "NonNegative": Projection(
        projections.NonNegative(),
        _all_non_negative,
        _optax.projection_non_negative,
        points=lambda n: np.concatenate([np.zeros((1, n)), 3 * np.eye(n), np.ones((1, n))]),
        tol=0,
    ),
    "Box": Projection(
        projections.Box(-0.3, 0.5),
        lambda tree: bool(np.all(flat(tree) >= -0.3) and np.all(flat(tree) <= 0.5)),
        lambda tree: jax.tree.map(lambda x: _optax.projection_box(x, -0.3, 0.5), tree),
        points=some_of_a_box(-0.3, 0.5),
        tol=0,
    ),
    "Box[leaves]": Projection(
        projections.Box(_LOWER, _UPPER),
        lambda tree: bool(
            np.all(tree["b"] >= -0.4)
            and np.all(tree["b"] <= _UPPER["b"])
            and np.all(np.abs(tree["layers"][0]["w"] - 0.05) <= 0.25 + 1e-7)
        ),
        tree=matrices,
        tol=0,
    ),
    "Hypercube": Projection(
        projections.Hypercube(0.7),
        lambda tree: bool(np.all(flat(tree) >= 0) and np.all(flat(tree) <= 0.7)),
        lambda tree: jax.tree.map(lambda x: _optax.projection_hypercube(x, 0.7), tree),
        points=some_of_a_box(0.0, 0.7),
        tol=0,
    ),
    "LInfBall": Projection(
        projections.LInfBall(0.7),
        lambda tree: _largest(tree) <= 0.7,
        lambda tree: _optax.projection_linf_ball(tree, 0.7),
        points=some_of_a_box(-0.7, 0.7),
        tol=0,
    ),
    "Simplex": Projection(
        projections.Simplex(0.9),
        lambda tree: in_simplex(flat(tree), 0.9),
        lambda tree: simplex_in_optax(tree, 0.9),
        points=lambda n: np.concatenate([0.9 * np.eye(n), np.full((1, n), 0.9 / n)]),
    ),
    "Simplex[leaf]": Projection(
        projections.Simplex(0.9, per_leaf=True),
        lambda tree: all(in_simplex(x, 0.9) for x in leaves_as_vectors(tree)),
        lambda tree: jax.tree.map(lambda x: simplex_in_optax(x, 0.9), tree),
    ),
    "Simplex[axis]": Projection(
        projections.Simplex(0.9, axis=-1),
        lambda tree: all(in_simplex(x, 0.9) for x in rows(tree)),
        tree=matrices,
    ),
    "L1Ball": Projection(
        projections.L1Ball(0.9),
        lambda tree: _absolute(tree) <= 0.9 * (1 + 2e-6),
        lambda tree: _optax.projection_l1_ball(tree, 0.9),
        points=axes_of(0.9),
    ),
    "L1Sphere": Projection(
        projections.L1Sphere(0.9),
        lambda tree: abs(_absolute(tree) - 0.9) <= 2e-6,
        lambda tree: _optax.projection_l1_sphere(tree, 0.9),
        convex=False,
    ),
    "L2Ball": Projection(
        projections.L2Ball(0.9),
        lambda tree: _norm(tree) <= 0.9 * (1 + 1e-6),
        lambda tree: _optax.projection_l2_ball(tree, 0.9),
        points=axes_of(0.9),
    ),
    "L2Ball[leaf]": Projection(
        projections.L2Ball(0.9, per_leaf=True),
        lambda tree: all(_norm(x) <= 0.9 * (1 + 1e-6) for x in leaves_as_vectors(tree)),
        lambda tree: jax.tree.map(lambda x: _optax.projection_l2_ball(x, 0.9), tree),
    ),
    "L2Ball[axis]": Projection(
        projections.L2Ball(0.9, axis=-1),
        lambda tree: all(_norm(x) <= 0.9 * (1 + 1e-6) for x in rows(tree)),
        tree=matrices,
    ),
    "L2Sphere": Projection(
        projections.L2Sphere(0.9),
        lambda tree: abs(_norm(tree) - 0.9) <= 0.9e-6,
        lambda tree: _optax.projection_l2_sphere(tree, 0.9),
        convex=False,
    ),
    "Vector": Projection(
        projections.Vector(_NORMAL_TREE),
        lambda tree: np.linalg.matrix_rank([flat(tree), _NORMAL], tol=2e-5) == 1,
        lambda tree: _optax.projection_vector(tree, _like(tree, _NORMAL_TREE)),
        tree=few,
        points=lambda n: np.outer([-1.0, 0.0, 0.5], _NORMAL),
    ),
    "Hyperplane": Projection(
        projections.Hyperplane(_NORMAL, 0.75),
        lambda tree: abs(_NORMAL @ flat(tree) - 0.75) <= 4e-6,
        lambda tree: _optax.projection_hyperplane(tree, _like(tree, _NORMAL_TREE), 0.75),
        tree=few,
        points=lambda n: 0.75 * np.diag(1 / _NORMAL),
    ),
    "Halfspace": Projection(
        projections.Halfspace(jax.tree.map(lambda x: -x, _NORMAL_TREE), 0.25),
        lambda tree: -_NORMAL @ flat(tree) <= 0.25 + 4e-6,
        lambda tree: _optax.projection_halfspace(tree, _like(tree, _NORMAL_TREE, -1), 0.25),
        tree=few,
        points=lambda n: np.diag(1 / _NORMAL),
    ),
    "Affine": Projection(
        projections.Affine(_A, _B),
        lambda tree: in_polyhedron(tree, _A, _B, *_NO_ROWS),
        tree=few,
        points=lambda n: [np.linalg.lstsq(_A, _B, rcond=None)[0]],
        tol=1e-13,
    ),
    "Polyhedron": Projection(
        projections.Polyhedron(_A[:1], _B[:1], _C, _D),
        lambda tree: in_polyhedron(tree, _A[:1], _B[:1], _C, _D),
        tree=few,
        points=lambda n: [[0.0, 1.0, 2.0, -1.0, -0.5], [-1.0, 0.5, 0.0, -0.25, 0.5]],
        tol=1e-13,
    ),
    "Monotone": Projection(
        projections.Monotone(),
        lambda tree: bool(np.all(np.diff(flat(tree)) >= 0)),
        points=lambda n: np.concatenate([np.tri(n).T, -np.tri(n), [np.zeros(n)]]),
    ),
    "PSD": Projection(
        projections.PSD(),
        lambda tree: all(map(is_psd, jax.tree.leaves(tree))),
        tree=squares,
        tol=1e-13,
    ),
    "Orthogonal": Projection(
        projections.Orthogonal(),
        lambda tree: all(map(is_orthogonal, jax.tree.leaves(tree))),
        convex=False,
        tree=tall_and_wide,
        tol=1e-13,
    ),
    "TransportPolytope": Projection(
        projections.TransportPolytope(_ROW_SUMS, _COL_SUMS),
        lambda tree: (
            _all_non_negative(tree)
            and np.allclose(np.sum(tree["w"], axis=1), _ROW_SUMS, rtol=0, atol=4e-6)
            and np.allclose(np.sum(tree["w"], axis=0), _COL_SUMS, rtol=0, atol=4e-6)
        ),
        tree=table,
        points=lambda n: [np.outer(_ROW_SUMS, _COL_SUMS).ravel() / 2],
        tol=1e-13,
    ),
    "Intersection": Projection(
        projections.Intersection(projections.Hypercube(0.3), projections.L2Ball(0.5)),
        lambda tree: (
            _norm(tree) <= 0.5 * (1 + 1e-5)
            and bool(np.all(flat(tree) >= -1e-5) and np.all(flat(tree) <= 0.3 + 1e-5))
        ),
        points=lambda n: np.concatenate([np.zeros((1, n)), 0.3 * np.eye(n)]),
        tol=1e-13,
    ),
    "Sequential": Projection(
        projections.NonNegative() >> projections.L2Ball(0.9),
        lambda tree: _all_non_negative(tree) and _norm(tree) <= 0.9 * (1 + 1e-6),
    ),
}

# Those that any tree goes into, whatever its shapes.
FREE_PROJECTIONS = {name: case for name, case in PROJECTIONS.items() if case.free}
