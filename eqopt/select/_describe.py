"""Printing what a selector decides, and what the axes of a model are taken for."""

import math
from collections.abc import Sequence
from typing import Any

import jax
from jaxtyping import PyTree

from .._core.axes import Axes, AxesRules, axes
from .._core.leaves import paths_and_leaves, trained
from .._core.matrices import sizes
from .._core.selector import as_selector


def describe(where: Any, model: PyTree) -> str:
    """A table of what `where` selects: a line for each parameter with its path, its shape, its
    dtype and yes or no, then the totals. Print it.

    >>> import jax.numpy as jnp
    >>> from eqopt import select
    >>> print(select.describe(select.Ndim(2), {"b": jnp.ones(3), "w": jnp.ones((3, 2))}))
    ['b']  (3,)    float32  no
    ['w']  (3, 2)  float32  yes
    1 of 2 leaves, 6 of 9 parameters selected

    - `where`: a selector or a PyTree of bools.
    - `model`: the tree that it looks at.
    """
    params = trained(model)
    chosen = jax.tree.leaves(as_selector(where, "`describe(where=...)`")(params))
    dtypes = [leaf.dtype.name for leaf in jax.tree.leaves(params)]
    width = max(map(len, dtypes), default=0)
    pairs = zip(dtypes, chosen, strict=True)
    entries = [f"{dtype:<{width}}  {'yes' if hit else 'no'}" for dtype, hit in pairs]
    lines = _table(params, entries)
    counts = [math.prod(leaf.shape) for leaf in jax.tree.leaves(params)]
    selected = sum(count for count, hit in zip(counts, chosen, strict=True) if hit)
    lines.append(
        f"{sum(chosen)} of {len(chosen)} leaves, {selected:,} of {sum(counts):,} parameters "
        "selected"
    )
    return "\n".join(lines)


def describe_axes(model: PyTree, rules: AxesRules = ()) -> str:
    """A table of what the axes of `model` are taken for: a line for each parameter with its path,
    its shape and the matrices (out x in) that it holds, or that it is none. Print it.

    `Orthogonalize`, `ScaleByMuon`, `ScaleByShape`, `AdaptiveGradClip`, `Centralize` and others go
    by these axes.

    - `model`: the tree.
    - `rules`: explicit axes of leaves, as `axes` takes them.
    """
    params = trained(model)
    leaves = jax.tree.leaves(params)
    found = jax.tree.leaves(axes(params, rules))
    entries = [_in_words(leaf.shape, a) for leaf, a in zip(leaves, found, strict=True)]
    return "\n".join(_table(params, entries))


def _table(params: PyTree, entries: Sequence[str]) -> list[str]:
    """A line for each parameter, in columns: its path, its shape and its entry."""
    rows = [
        (path, str(tuple(leaf.shape)), entry)
        for (path, leaf), entry in zip(paths_and_leaves(params), entries, strict=True)
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    return [f"{path:<{widths[0]}}  {shape:<{widths[1]}}  {entry}" for path, shape, entry in rows]


def _in_words(shape: tuple[int, ...], found: Axes) -> str:
    names = (("out", found.out), ("in", found.in_), ("spatial", found.spatial))
    parts = [f"{name} {', '.join(map(str, axes))}" for name, axes in names if axes]
    if found.stacked:
        parts.append(f"stacked {', '.join(map(str, found.stacked))}")
    stacked, out, in_ = sizes(shape, found)
    kind = "no matrix"
    if found.is_matrix:
        kind = f"{stacked} matrices {out} x {in_}" if found.stacked else f"matrix {out} x {in_}"
    return f"{kind} ({'; '.join(parts) or 'axes not known'})"
