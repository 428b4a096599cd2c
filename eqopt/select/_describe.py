"""Printing what a selector decides."""

import math
from typing import Any

import jax
from jaxtyping import PyTree

from .._core.leaves import paths_and_leaves, trained
from .._core.selector import as_selector


def describe(where: Any, model: PyTree) -> str:
    """A table of what `where` selects: a line for each parameter with its path, its shape and yes
    or no, then the totals. Print it.

    - `where`: a selector or a PyTree of bools.
    - `model`: the tree that it looks at.
    """
    params = trained(model)
    chosen = jax.tree.leaves(as_selector(where, "`describe(where=...)`")(params))
    rows = [
        (path, str(tuple(leaf.shape)), "yes" if hit else "no")
        for (path, leaf), hit in zip(paths_and_leaves(params), chosen, strict=True)
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    lines = [f"{p:<{widths[0]}}  {s:<{widths[1]}}  {hit}" for p, s, hit in rows]
    sizes = [math.prod(leaf.shape) for leaf in jax.tree.leaves(params)]
    selected = sum(size for size, hit in zip(sizes, chosen, strict=True) if hit)
    lines.append(
        f"{sum(chosen)} of {len(rows)} leaves, {selected:,} of {sum(sizes):,} parameters selected"
    )
    return "\n".join(lines)
