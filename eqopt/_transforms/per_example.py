"""Clipping the gradients of single examples, for differentially private training."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from .._core.hyperparam import Range
from .._core.leaves import paths_and_leaves, trained, widen
from .._core.norms import factor_within, global_norm

_BOUND = Range(ge=0, schedules=False)


def per_example_global_norm_clip(grads: PyTree, max_norm: Any) -> tuple[PyTree, Int[Array, ""]]:
    """The sum of the gradients of single examples, each scaled down to a global norm, and how
    many were scaled (Abadi et al. 2016, algorithm 1, without the noise).

    - `grads`: gradients with a leading axis of examples in every leaf. What is not a float or
      complex array is `None` in the sum, as in `eqx.filter_grad`.
    - `max_norm`: the bound on the norm of one example, at least 0, a number or scalar array.

    Norms and sums are accumulated in at least float32; the sum has the dtypes of `grads`. An
    example of norm 0 is not counted as scaled, for a bound of 0 neither; NaN stays NaN.
    """
    grads = _per_example("per_example_global_norm_clip", grads)
    max_norm = _BOUND.convert("`per_example_global_norm_clip(max_norm=...)`", max_norm)
    return _clipped_sum(grads, max_norm)


def per_example_layer_norm_clip(
    grads: PyTree, max_norm: Any, uniform: bool = True
) -> tuple[PyTree, PyTree]:
    r"""The sum of the gradients of single examples, each leaf scaled down to a norm of its own,
    and for each leaf how many were scaled (McMahan et al. 2018).

    - `grads`: as for `per_example_global_norm_clip`.
    - `max_norm`: the bound $c$ on the norm of one whole example, at least 0, a number or scalar
      array.
    - `uniform`: whether each of the $K$ leaves gets the bound $c / \sqrt K$, or one of $D_i$ of
      the $D$ elements $c \sqrt{D_i / D}$.
    """
    grads = _per_example("per_example_layer_norm_clip", grads)
    max_norm = _BOUND.convert("`per_example_layer_norm_clip(max_norm=...)`", max_norm)
    leaves, treedef = jax.tree.flatten(grads)
    sizes = [math.prod(leaf.shape[1:]) for leaf in leaves]
    shares = [1 / len(leaves) if uniform else size / max(sum(sizes), 1) for size in sizes]
    bounds = [max_norm * share**0.5 for share in shares]
    pairs = [_clipped_sum(leaf, bound) for leaf, bound in zip(leaves, bounds, strict=True)]
    sums, counts = zip(*pairs, strict=True)
    return jax.tree.unflatten(treedef, sums), jax.tree.unflatten(treedef, counts)


def _per_example(name: str, grads: PyTree) -> PyTree:
    """The float and complex arrays of a tree, which must share a leading axis."""
    kept = trained(grads)
    found = paths_and_leaves(kept)
    if not found:
        raise ValueError(f"`{name}(grads=...)` must have a float array among its leaves.")
    for path, leaf in found:
        if leaf.ndim == 0 or leaf.shape[:1] != found[0][1].shape[:1]:
            raise ValueError(
                f"`{name}(grads=...)` must have one leading axis of examples in all leaves; at "
                f"`{path}` the shape is {leaf.shape}, at `{found[0][0]}` {found[0][1].shape}."
            )
    return kept


def _clipped_sum(grads: PyTree, max_norm: Any) -> tuple[PyTree, Int[Array, ""]]:
    norms = jax.vmap(global_norm)(grads)
    factors = factor_within(norms, max_norm)

    def total(x: Array) -> Array:
        factor = factors.reshape(-1, *(1 for _ in x.shape[1:]))
        return jnp.sum(widen(x) * factor, axis=0).astype(x.dtype)

    return jax.tree.map(total, grads), jnp.sum(norms > max_norm)
