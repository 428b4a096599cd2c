"""Which leaves of a tree are trained, and trees made like them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, DTypeLike, PyTree

_ARRAYS = (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)


def is_abstract(x: Any) -> bool:
    """Whether `x` is a `ShapeDtypeStruct`."""
    return isinstance(x, jax.ShapeDtypeStruct)


def is_trained(x: Any) -> bool:
    """Whether a leaf is a parameter: a float or complex array, of JAX or NumPy."""
    return isinstance(x, _ARRAYS) and jnp.issubdtype(x.dtype, jnp.inexact)


def plain(x: Any) -> Array:
    """An array of JAX whose type is not weak, so that types don't change between steps."""
    if is_abstract(x) or (isinstance(x, jax.Array) and not jax.typeof(x).weak_type):
        return x
    x = jnp.asarray(x)
    return jax.lax.convert_element_type(x, x.dtype) if x.weak_type else x


def trained(tree: PyTree) -> PyTree:
    """The tree with `None` for every leaf that is not a parameter."""
    leaves, treedef = jax.tree.flatten(tree)
    return jax.tree.unflatten(treedef, [plain(x) if is_trained(x) else None for x in leaves])


def paths_and_leaves(tree: PyTree) -> list[tuple[str, Any]]:
    """The leaves with their paths, such as `.layers[0].weight`; `.` alone is the tree itself."""
    found, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path) or ".", leaf) for path, leaf in found]


def check_real(name: str, tree: PyTree) -> None:
    """Raises `TypeError` with the first complex leaf."""
    for path, leaf in paths_and_leaves(tree):
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise TypeError(f"`{name}` must be given real arrays; got a complex one at `{path}`.")


def zeros_like(tree: PyTree, dtype: DTypeLike | None = None) -> PyTree:
    """New zeros with the shapes and shardings of the leaves, in `dtype` if given (a complex leaf
    stays complex)."""
    return jax.tree.map(partial(_zeros_like, dtype=dtype), tree)


def _zeros_like(x: Any, dtype: DTypeLike | None) -> Any:
    return _zeros(x, None if jnp.issubdtype(x.dtype, jnp.complexfloating) else dtype)


def _zeros(x: Any, dtype: DTypeLike | None) -> Any:
    dtype = x.dtype if dtype is None else dtype
    if is_abstract(x):
        return jax.ShapeDtypeStruct(x.shape, dtype)
    return jnp.zeros_like(x, dtype=dtype)


def sums_like(tree: PyTree, dtype: DTypeLike | None = None) -> PyTree:
    """New zeros for sums of leaves: in `dtype`, else in the leaf's dtype but at least float32 (a
    complex leaf stays complex)."""
    return zeros_like(widened(tree)) if dtype is None else zeros_like(tree, dtype)


def accumulator_like(tree: PyTree, dtype: DTypeLike | None = None) -> PyTree:
    """New real zeros for sums of magnitudes: in `dtype`, else in the leaf's real dtype but at
    least float32, because a long running mean never decays in 8 bits of mantissa."""
    return jax.tree.map(lambda x: _zeros(x, dtype or real_dtype(x.dtype)), tree)


def filled(tree: PyTree, value: Any) -> PyTree:
    """New leaves of one value: a tree of zeros, plus `value`."""
    return jax.tree.map(lambda x: x + jnp.asarray(value, x.dtype), tree)


def real_dtype(*leaves: Any) -> np.dtype:
    """The real dtype in which leaves are computed: float32, or float64 where one is."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.finfo(jnp.result_type(*leaves, jnp.float32)).dtype


def widen(x: Array, real: np.dtype | None = None) -> Array:
    """The leaf in the dtype in which it is computed: `real`, its own `real_dtype` if `None`, or
    the complex dtype that goes with it."""
    real = real_dtype(x.dtype) if real is None else real
    if jnp.iscomplexobj(x):
        return x.astype(jnp.complex128 if real == jnp.float64 else jnp.complex64)
    return x.astype(real)


def widened(tree: PyTree) -> PyTree:
    """The leaves in the dtypes in which they are computed."""

    def wide(x: Any) -> Any:
        if is_abstract(x):
            return jax.eval_shape(widen, x)
        return widen(x)

    return jax.tree.map(wide, tree)


def gathered(x: Array) -> Array:
    """The array on each device, where its type says that it is sharded."""
    return jax.reshard(x, PartitionSpec(*[None] * x.ndim)) if _is_sharded(x) else x


def sharded_like(x: Array, leaf: Array) -> Array:
    """The array with the sharding in the type of a leaf of the same shape."""
    return jax.reshard(x, jax.typeof(leaf).sharding.spec) if _is_sharded(leaf) else x


def _is_sharded(x: Array) -> bool:
    return any(axis is not None for axis in jax.typeof(x).sharding.spec)


def varying(x: Any) -> frozenset[str]:
    """The axes of the mesh over which a leaf varies, inside `jax.shard_map`."""
    aval = x if is_abstract(x) else jax.typeof(x)
    manual = getattr(aval, "manual_axis_type", None)
    return frozenset(() if manual is None else manual.varying)


def select_leaves(tree: PyTree, keep: Sequence[bool]) -> PyTree:
    """The tree with `None` for the leaves, in order, that are not kept."""
    leaves, treedef = jax.tree.flatten(tree)
    return jax.tree.unflatten(
        treedef, [leaf if kept else None for leaf, kept in zip(leaves, keep, strict=True)]
    )
