"""`on_matrices`: functions of matrices, applied to leaves in batches of equal shape.

What an algorithm on matrices need not know happens here: which axes make the rows and columns,
stacked layers, kernels of convolutions, tall matrices, dtypes and shardings.
"""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact, PyTree

from .axes import Axes
from .leaves import gathered, paths_and_leaves, sharded_like, widen


def sizes(shape: tuple[int, ...], axes: Axes) -> tuple[int, int, int]:
    """How many matrices a leaf holds, and their numbers of rows (out) and columns (in, spatial)."""
    groups = (axes.stacked, axes.out, (*axes.in_, *axes.spatial))
    stacked, out, in_ = (math.prod(shape[axis] for axis in group) for group in groups)
    return stacked, out, in_


def check_matrices(name: str, tree: PyTree, axes: Sequence[Axes]) -> None:
    """Raises `ValueError` with the first leaf of `tree` that is no matrix, and what to do.

    - `axes`: those of each leaf.
    """
    for (path, leaf), found in zip(paths_and_leaves(tree), axes, strict=True):
        if not found.is_matrix or sorted(_order(found)) != list(range(len(leaf.shape))):
            raise ValueError(
                f"`{name}` needs matrices; got the leaf `{path}` of shape {tuple(leaf.shape)} with "
                f"{found}. Leave it out, `where=eqopt.select.Matrices()`, or say what all its axes "
                'are, `rules=((eqopt.select.Path("..."), eqopt.select.Axes(out=(0,), in_=(1,))),)`.'
            )


def on_matrices(
    fn: Callable[[Inexact[Array, "n rows columns"]], Array],
    leaves: Sequence[Array],
    axes: Sequence[Axes],
) -> list[Array]:
    """The leaves with `fn` applied to their matrices.

    - `fn`: maps a batch of matrices, with no more rows than columns and computed in at least
      float32, to a batch of that shape. It must commute with the transposition, and know nothing
      of the place of a matrix in its batch.
    - `axes`: those of each leaf, all of them matrices.

    An explicitly sharded leaf is gathered, computed on each device, and sharded again.
    """
    batches = [_wide(gathered(leaf), found) for leaf, found in zip(leaves, axes, strict=True)]
    alike: dict[object, list[int]] = {}
    for i, batch in enumerate(batches):
        if batch.size:
            like = jax.typeof(batch).update(shape=(1, *batch.shape[1:]))
            alike.setdefault(like, []).append(i)
    for indices in alike.values():
        together = [batches[i] for i in indices]
        done = fn(jnp.concatenate(together) if len(together) > 1 else together[0])
        for i, part in zip(indices, _cut(done, [len(batch) for batch in together]), strict=True):
            batches[i] = part
    rows = zip(batches, leaves, axes, strict=True)
    return [_restored(batch, leaf, found) for batch, leaf, found in rows]


def _cut(batch: Array, counts: Sequence[int]) -> list[Array]:
    """A batch in consecutive parts.

    XLA compiles a slice anew for each place that it knows, which took most of the compile time
    of many leaves on a CPU. So the places come out of a loop that adds 0 in a way it can't see.
    """
    if len(counts) == 1:
        return [batch]
    starts = [jnp.asarray(sum(counts[:i]), jnp.int32) for i in range(len(counts))]
    starts = jax.lax.fori_loop(
        0, 2, lambda k, s: [x + jnp.minimum(k, 0).astype(x.dtype) for x in s], starts
    )
    cut = jax.lax.dynamic_slice_in_dim
    return [cut(batch, start, count) for start, count in zip(starts, counts, strict=True)]


def _order(axes: Axes) -> tuple[int, ...]:
    return (*axes.stacked, *axes.out, *axes.in_, *axes.spatial)


def _wide(x: Array, axes: Axes) -> Array:
    """A leaf as a batch of matrices (out, in), or of their transposes where they are tall."""
    batch = jnp.transpose(widen(x), _order(axes)).reshape(sizes(x.shape, axes))
    return jnp.swapaxes(batch, 1, 2) if batch.shape[1] > batch.shape[2] else batch


def _restored(batch: Array, leaf: Array, axes: Axes) -> Array:
    """A batch made of `leaf` by `_wide`, in the shape, dtype and sharding of `leaf`."""
    order = _order(axes)
    _, out, in_ = sizes(leaf.shape, axes)
    batch = jnp.swapaxes(batch, 1, 2) if out > in_ else batch
    batch = batch.reshape([leaf.shape[axis] for axis in order])
    x = jnp.transpose(batch, tuple(map(order.index, range(leaf.ndim)))).astype(leaf.dtype)
    return sharded_like(x, leaf)
