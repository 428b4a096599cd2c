"""`leafwise`: one formula on arrays, applied to the matching leaves of several trees.

Every elementwise algorithm is one such rule. What is the same for all of them happens here: `None`
leaves, dtypes, and one trace for each distinct set of shapes instead of one for each leaf.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .leaves import paths_and_leaves, real_dtype, widen


def leafwise(rule: Callable[..., Any], *scalars: Any) -> Callable[..., Any]:
    """The function on trees that applies `rule` to their leaves.

    - `rule`: a method of a module, `rule(self, *scalars, *leaves)`, or a function defined at
      module level, `rule(*scalars, *leaves)`. It is compiled once for each set of shapes and
      dtypes: the module's numbers and the scalars are passed in, so a closure is refused.
    - `scalars`: scalar arrays or numbers that all leaves share. Inside the rule these, and the
      module's numbers, have the real dtype in which the leaf is computed.

    The returned function takes the trees: updates first, then states, read-only trees last. The
    leaves are computed in at least float32. It returns as many trees as the rule returns arrays;
    the first has the structure and the dtypes of the first tree given, and so on.

    **Raises** `ValueError` if the trees don't have the same leaves.
    """
    function = getattr(rule, "__func__", rule)
    if getattr(function, "__closure__", None) and not hasattr(function, "__wrapped__"):
        raise TypeError(
            f"`leafwise(rule={function.__qualname__})` must be a method or a function defined at "
            "module level: a closure would be compiled anew at each call."
        )
    numbers, treedef = jax.tree.flatten((getattr(rule, "__self__", None), scalars))
    is_method = hasattr(rule, "__func__")

    def apply(*trees: PyTree) -> PyTree:
        leaves, treedefs = _flatten(trees)
        static = (function, treedef, is_method)
        rows = [_apply_rule(static, numbers, row) for row in zip(*leaves, strict=True)]
        # On trees without leaves: how many trees would come out?
        one = rows[0] if rows else _outputs(static, numbers, len(trees))
        if not isinstance(one, tuple):
            return jax.tree.unflatten(treedefs[0], rows)
        columns = zip(*rows, strict=True) if rows else [()] * len(one)
        return tuple(
            jax.tree.unflatten(treedef, list(column))
            for treedef, column in zip(treedefs, columns, strict=False)
        )

    return apply


def _outputs(static: tuple[Any, Any, bool], numbers: Sequence[Any], inputs: int) -> Any:
    """What the rule returns, found without computing anything."""
    scalars = [jax.ShapeDtypeStruct((), jnp.float32)] * inputs
    return jax.eval_shape(partial(_apply_rule, static), numbers, scalars)


@partial(jax.jit, static_argnums=0)
def _apply_rule(
    static: tuple[Any, Any, bool], numbers: Sequence[Any], leaves: Sequence[Any]
) -> Any:
    function, treedef, is_method = static
    dtype = real_dtype(*leaves)
    owner, scalars = jax.tree.unflatten(treedef, [_as_scalar(x, dtype) for x in numbers])
    arguments = (owner, *scalars) if is_method else scalars
    out = function(*arguments, *(widen(leaf) for leaf in leaves))
    if isinstance(out, tuple):
        return tuple(x.astype(leaf.dtype) for x, leaf in zip(out, leaves, strict=False))
    return out.astype(leaves[0].dtype)


def _as_scalar(x: Any, dtype: Any) -> Any:
    """A number in the leaf's real dtype; counts and what is no number stay what they are."""
    real = jnp.issubdtype(x.dtype, jnp.floating) and x.ndim == 0
    return x.astype(dtype) if real or x.weak_type else x


def _flatten(trees: tuple[PyTree, ...]) -> tuple[list[list[Array]], list[Any]]:
    leaves, treedefs = zip(*(jax.tree.flatten(tree) for tree in trees), strict=True)
    for i, treedef in enumerate(treedefs):
        if treedef != treedefs[0]:
            check_same_paths("the first tree", trees[0], f"tree {i}", trees[i])
    return list(leaves), list(treedefs)


def check_same_paths(name_a: str, a: PyTree, name_b: str, b: PyTree) -> None:
    """Raises `ValueError` with the first path at which only one of two trees has a leaf.

    Static parts of the trees (an activation, a flag) may differ; each result keeps its own.
    """
    paths_a = [path for path, _ in paths_and_leaves(a)]
    paths_b = [path for path, _ in paths_and_leaves(b)]
    if paths_a == paths_b:
        return
    in_a, in_b = set(paths_a), set(paths_b)
    for path in (*paths_a, *paths_b):
        if (path in in_a) != (path in in_b):
            has, lacks = (name_a, name_b) if path in in_a else (name_b, name_a)
            raise ValueError(
                f"{name_a} and {name_b} must have the same structure; "
                f"{has} has a leaf at `{path}`, {lacks} has none."
            )
    raise ValueError(f"{name_a} and {name_b} must list the same leaves in the same order.")
