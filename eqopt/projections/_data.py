"""Data of a set: vectors and matrices that fit what is projected.

A vector is given as one array of one axis, for the vector that is projected (the raveled tree, if
that is the whole tree), or as a tree like the projected one. A matrix has the axis of its rows in
front of these.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._core.data import concrete
from .._core.leafwise import check_same_paths
from .._core.leaves import paths_and_leaves
from ._vectors import AbstractPartsProjection


def as_vector(data: PyTree, x: Float[Array, " n"]) -> Float[Array, " n"]:
    """A vector of data in one array."""
    return jnp.concatenate([jnp.ravel(leaf).astype(x.dtype) for leaf in jax.tree.leaves(data)])


def as_matrix(data: PyTree, x: Float[Array, " n"]) -> Float[Array, "m n"]:
    """A matrix of data in one array, of no rows if there is none."""
    leaves = jax.tree.leaves(data)
    if not leaves:
        return jnp.zeros((0, x.size), x.dtype)
    flat = [leaf.reshape(len(leaf), math.prod(leaf.shape[1:])).astype(x.dtype) for leaf in leaves]
    return jnp.concatenate(flat, axis=1)


def as_rows(data: Array | None, a: Float[Array, "m n"]) -> Float[Array, " m"]:
    """A number for each row of a matrix; one number stands for all."""
    return jnp.broadcast_to(jnp.zeros((), a.dtype) if data is None else data, a.shape[:1]).astype(
        a.dtype
    )


def known_array(data: PyTree, rows: int | None = None) -> np.ndarray | None:
    """Data in one array, in float64, if their values are known: a vector or so many rows."""
    leaves = [concrete(leaf) for leaf in jax.tree.leaves(data)]
    flat = [
        x.astype(np.float64).reshape(-1 if rows is None else (rows, math.prod(x.shape[1:])))
        for x in leaves
        if x is not None
    ]
    return np.concatenate(flat, axis=-1) if flat and len(flat) == len(leaves) else None


def check_nonzero(projection: AbstractPartsProjection, name: str) -> None:
    """A vector that is known is not zero."""
    data = known_array(getattr(projection, name))
    if data is not None and not np.any(data):
        raise ValueError(
            f"`{type(projection).__name__}({name}=...)` must not be zero; got {data.size} zeros."
        )


def check_rows(projection: AbstractPartsProjection, matrix: str, vector: str) -> int:
    """The rows of a matrix are as many as the numbers that belong to them: how many there are."""
    name = type(projection).__name__
    rows, numbers = getattr(projection, matrix), getattr(projection, vector)
    if (rows is None) != (numbers is None):
        given, missing = (vector, matrix) if rows is None else (matrix, vector)
        raise ValueError(f"`{name}({missing}=...)` must be given with `{given}`; got None.")
    if rows is None:
        return 0
    for path, leaf in paths_and_leaves(rows):
        if not leaf.ndim:
            raise ValueError(
                f"`{name}({matrix}=...)` must be a matrix, or a tree whose leaves have the axis of "
                f"its rows in front; got a number at `{path}`."
            )
    lengths = {leaf.shape[0] for leaf in jax.tree.leaves(rows)}
    if len(lengths) > 1:
        raise ValueError(
            f"`{name}({matrix}=...)` must have the same number of rows in all its leaves; got "
            f"{sorted(lengths)}."
        )
    (count,) = lengths
    if not isinstance(numbers, jax.Array) or numbers.shape not in ((), (count,)):
        got = getattr(numbers, "shape", repr(numbers))
        raise ValueError(
            f"`{name}({vector}=...)` must be one number for each of the {count} rows of "
            f"`{matrix}`; got shape {got}."
        )
    return count


def check_fits(
    projection: AbstractPartsProjection, name: str, tree: PyTree, matrix: bool = False
) -> None:
    """Data fit a tree: one array for the vector, or a tree like it."""
    data = getattr(projection, name)
    if data is None or not jax.tree.leaves(tree):
        return
    label = f"`{type(projection).__name__}({name}=...)`"
    leaves, treedef = jax.tree.flatten(data)
    if jax.tree_util.treedef_is_leaf(treedef) and leaves[0].ndim == 1 + matrix:
        for size in projection._sizes(tree):
            if leaves[0].shape[-1] != size:
                raise ValueError(
                    f"{label} must have {size} columns, as many as the projected vector has "
                    f"elements; got shape {leaves[0].shape}."
                    if matrix
                    else f"{label} must have {size} elements, like the projected vector; got "
                    f"shape {leaves[0].shape}."
                )
        return
    if projection.per_leaf or projection.axis is not None:
        raise ValueError(
            f"{label} must be one array of {1 + matrix} axes with `per_leaf` or `axis`; got "
            f"{treedef if len(leaves) > 1 else leaves[0].shape}."
        )
    check_same_paths(label, data, "the projected tree", tree)
    for (path, leaf), x in zip(paths_and_leaves(data), jax.tree.leaves(tree), strict=True):
        if leaf.shape[int(matrix) :] != x.shape:
            raise ValueError(
                f"{label} must be like the projected tree; at `{path}` it has shape {leaf.shape}, "
                f"the tree {x.shape}{' behind the rows' if matrix else ''}."
            )
