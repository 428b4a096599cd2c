"""`leafwise`: formulas on arrays, applied to the matching leaves of several trees.

Every elementwise algorithm is one such rule. What is the same for all of them happens here: `None`
leaves, dtypes, and one trace for each distinct set of shapes instead of one for each leaf. Rules
that follow one another in a chain are applied together, one compiled call a leaf (`run_stages`).
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, PyTree

from .leaves import paths_and_leaves, real_dtype, widen

Static: TypeAlias = tuple[Any, Any, bool, tuple[Any, ...]]
"""What of a rule is compiled in: its function, the structure of its numbers, whether it is a
method, and what it is given of the leaf at hand (see `Stage.each`)."""


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
    static, numbers = _unpack(rule, scalars)

    def apply(*trees: PyTree) -> PyTree:
        leaves, treedefs = _flatten(trees)
        rows = list(zip(*leaves, strict=True))
        rows = _by_rows(_apply_rule, [static] * len(rows), _share(numbers, leaves), rows)
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


def jointly(rule: Callable[..., Any], *scalars: Any) -> Callable[..., Any]:
    """The function on trees that applies `rule` to all leaves of a tree at once.

    - `rule`, `scalars`: as in `leafwise`; called as `rule(*scalars, *leaves)`. It returns a tuple,
      one array for each leaf.

    All leaves are computed in the widest dtype among them, at least float32. The result has the
    structure and the dtypes of the tree.
    """
    static, numbers = _unpack(rule, scalars)

    def apply(tree: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(tree)
        if leaves:
            (leaves,) = _call((_apply_rule, static), _share(numbers, [leaves]), (leaves,))
        return jax.tree.unflatten(treedef, leaves)

    return apply


@dataclasses.dataclass(frozen=True)
class Stage:
    """One rule of a chain, with what it works on.

    - `rule`: as in `leafwise`; called as `rule(*scalars, update, *states)`, with the parameter
      last where `reads_params`, and with the leaf's entry of `each` first, if there is one. It
      returns the new update, followed by the new states.
    - `scalars`: as in `leafwise`.
    - `states`: trees like the updates.
    - `new_state`: makes the new state of the new `states`.
    - `reads_params`: whether the rule is given the parameter.
    - `where`: bools, one for each leaf of the updates, if the rule applies to some only; it then
      has no states.
    - `order`: where the new update, or a new state, is made of another state as it was: the order
      in which the new states, by number, may be written over the old ones, after the update.
    - `each`: what is compiled in for each leaf of the updates, such as its axes; hashable.
    """

    rule: Callable[..., Any]
    scalars: tuple[Any, ...] = ()
    states: tuple[PyTree, ...] = ()
    new_state: Callable[..., Any] = lambda: None
    reads_params: bool = False
    where: Sequence[bool] | None = None
    order: tuple[int, ...] | None = None
    each: Sequence[Any] | None = None


def run_stages(
    stages: Sequence[Stage], updates: PyTree, params: PyTree, apply: bool
) -> tuple[PyTree, list[Any]]:
    """Applies the rules of several stages, leaf by leaf: the new updates and states.

    - `apply`: whether to add the updates to the parameters and to return these instead.
    """
    reads = apply or any(stage.reads_params for stage in stages)
    trees = [updates, *([params] if reads else []), *(s for stage in stages for s in stage.states)]
    leaves, treedefs = _flatten(tuple(trees))
    unpacked = [_unpack(stage.rule, stage.scalars) for stage in stages]
    numbers = [_share(numbers, leaves) for _, numbers in unpacked]
    statics = [
        (static, len(stage.states), stage.reads_params)
        for (static, _), stage in zip(unpacked, stages, strict=True)
    ]
    rows = list(zip(*leaves, strict=True))
    order = _order(stages) if apply and _barriers_order() else ()
    plans = [(_active(stages, statics, i), reads, apply, order) for i in range(len(rows))]
    rows = _by_rows(_apply_stages, plans, numbers, rows)
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else []
    columns = columns or [[] for _ in range(len(trees) - reads)]
    first = jax.tree.unflatten(treedefs[1 if apply else 0], columns[0])
    rebuilt = (
        jax.tree.unflatten(treedef, column)
        for treedef, column in zip(treedefs[1 + reads :], columns[1:], strict=True)
    )
    return first, [stage.new_state(*(next(rebuilt) for _ in stage.states)) for stage in stages]


def _active(stages: Sequence[Stage], statics: Sequence[Any], i: int) -> tuple[Any, ...]:
    """What is compiled in of each stage for leaf `i`; `None` where it doesn't apply."""
    return tuple(
        _of_leaf(stage, static, i) if stage.where is None or stage.where[i] else None
        for stage, static in zip(stages, statics, strict=True)
    )


def _of_leaf(stage: Stage, static: Any, i: int) -> Any:
    if stage.each is None:
        return static
    (function, treedef, is_method, _), *rest = static
    return ((function, treedef, is_method, (stage.each[i],)), *rest)


_CHUNK = 8  # leaves a call, under tracing: fewer calls to trace and to lower


def _by_rows(
    kernel: Callable[..., Any], statics: Sequence[Any], numbers: Any, rows: Sequence[Any]
) -> list[Any]:
    """`kernel(static, numbers, row)` for each row of leaves.

    It is traced once for each distinct set of statics, shapes and dtypes. Under tracing, rows that
    are alike share calls; eagerly each has its own, so that little is compiled.
    """
    out: list[Any] = [None] * len(rows)
    if not any(isinstance(x, Tracer) for row in rows for x in row):
        for i, row in enumerate(rows):
            (out[i],) = _call((kernel, statics[i]), numbers, (row,))
        return out
    alike: dict[Any, list[int]] = {}
    for i, row in enumerate(rows):
        alike.setdefault((statics[i], *map(jax.typeof, row)), []).append(i)
    for indices in alike.values():
        whole = len(indices) - len(indices) % _CHUNK
        chunks = [indices[k : k + _CHUNK] for k in range(0, whole, _CHUNK)]
        for chunk in (*chunks, *([i] for i in indices[whole:])):
            results = _call((kernel, statics[chunk[0]]), numbers, tuple(rows[i] for i in chunk))
            for i, result in zip(chunk, results, strict=True):
                out[i] = result
    return out


@partial(jax.jit, static_argnums=0)
def _call(static: tuple[Any, Any], numbers: Any, rows: Sequence[Sequence[Any]]) -> list[Any]:
    kernel, plan = static
    one = jax.jit(partial(kernel, plan), inline=True)  # traced once for all rows
    return [one(numbers, row) for row in rows]


def _apply_stages(
    static: tuple[tuple[Any, ...], bool, bool, tuple[int, ...]],
    numbers: Sequence[Sequence[Any]],
    leaves: Sequence[Any],
) -> tuple[Any, ...]:
    stages, reads, apply, order = static
    update, *states = leaves
    param = states.pop(0) if reads else None
    first, *new = _follow(stages, numbers, update, param, states)
    if apply and param is not None:
        dtype = real_dtype(param, first)
        first = (widen(param, dtype) + widen(first, dtype)).astype(param.dtype)
    written: list[Any] = []
    for i in order:
        # On a CPU each output is a loop of its own. Were a new state written, into the memory of
        # the old one, before another output that reads that, the compiler would copy it for this.
        left = [k for k in range(len(states)) if k not in order[: len(written)]]
        first, written, update, kept = jax.lax.optimization_barrier(
            (first, written, update, [states[k] for k in left])
        )
        for k, state in zip(left, kept, strict=True):
            states[k] = state
        written.append(_follow(stages, numbers, update, param, states)[1 + i])
    for i, state in zip(order, written, strict=True):
        new[i] = state
    return first, *new


def _order(stages: Sequence[Stage]) -> tuple[int, ...]:
    """In which order the new states of all stages are written; empty where it doesn't matter."""
    if not any(stage.order for stage in stages):
        return ()
    starts = itertools.accumulate((len(stage.states) for stage in stages), initial=0)
    orders = [stage.order or range(len(stage.states)) for stage in stages]
    return tuple(start + i for start, order in zip(starts, orders, strict=False) for i in order)


def _barriers_order() -> bool:
    """Whether the compiler keeps what is behind an optimization barrier behind it: on a CPU from
    JAX 0.12; elsewhere one loop writes all outputs, which a barrier would divide."""
    return jax.default_backend() == "cpu" and jax.__version_info__ >= (0, 12)


def _follow(
    stages: Sequence[Any],
    numbers: Sequence[Sequence[Any]],
    update: Any,
    param: Any,
    states: Sequence[Any],
) -> tuple[Any, ...]:
    """The update after all rules, and their new states."""
    rest, new = list(states), []
    for stage, own in zip(stages, numbers, strict=True):
        if stage is None:
            continue
        rule, count, reads_params = stage
        given, rest = rest[:count], rest[count:]
        out = _apply_rule(rule, own, [update, *given, *([param] if reads_params else [])])
        update, *after = out if isinstance(out, tuple) else (out,)
        new += after
    return update, *new


def _apply_rule(static: Static, numbers: Sequence[Any], leaves: Sequence[Any]) -> Any:
    function, treedef, is_method, given = static
    dtype = real_dtype(*leaves)
    owner, scalars = jax.tree.unflatten(treedef, [_as_scalar(x, dtype) for x in numbers])
    arguments = (owner, *given, *scalars) if is_method else (*given, *scalars)
    out = function(*arguments, *(widen(leaf, dtype) for leaf in leaves))
    if isinstance(out, tuple):
        return tuple(x.astype(leaf.dtype) for x, leaf in zip(out, leaves, strict=False))
    return out.astype(leaves[0].dtype)


def _as_scalar(x: Any, dtype: Any) -> Any:
    """A number in the leaf's real dtype; counts and what is no number stay what they are."""
    if not hasattr(x, "dtype"):  # a Python number, where nothing is compiled
        return x if isinstance(x, bool) else jnp.asarray(x, dtype)
    real = jnp.issubdtype(x.dtype, jnp.floating) and x.ndim == 0
    number = x.weak_type and jnp.issubdtype(x.dtype, jnp.number)
    return x.astype(dtype) if real or number else x


def _unpack(rule: Callable[..., Any], scalars: tuple[Any, ...]) -> tuple[Static, list[Any]]:
    """What of a rule is compiled in, and the numbers that are passed in."""
    function = getattr(rule, "__func__", rule)
    if getattr(function, "__closure__", None) and not hasattr(function, "__wrapped__"):
        raise TypeError(
            f"`leafwise(rule={function.__qualname__})` must be a method or a function defined at "
            "module level: a closure would be compiled anew at each call."
        )
    numbers, treedef = jax.tree.flatten((getattr(rule, "__self__", None), scalars))
    return (function, treedef, hasattr(rule, "__func__"), ()), numbers


def _share(numbers: list[Any], leaves: Sequence[Sequence[Any]]) -> list[Any]:
    """Under tracing, Python numbers as traced ones: one constant for all leaves."""
    if not any(isinstance(x, Tracer) for column in leaves for x in column):
        return numbers
    return [
        jax.lax.convert_element_type(x, jnp.result_type(float))
        if isinstance(x, int | float) and not isinstance(x, bool)
        else x
        for x in numbers
    ]


def _outputs(static: Static, numbers: Sequence[Any], inputs: int) -> Any:
    """What the rule returns, found without computing anything."""
    scalars = [jax.ShapeDtypeStruct((), jnp.float32)] * inputs
    return jax.eval_shape(partial(_apply_rule, static), numbers, scalars)


def _flatten(trees: tuple[PyTree, ...]) -> tuple[list[list[Array]], list[Any]]:
    leaves, treedefs = zip(*(jax.tree.flatten(tree) for tree in trees), strict=True)
    for i, treedef in enumerate(treedefs):
        if treedef != treedefs[0]:
            check_same_paths("the first tree", trees[0], f"tree {i}", trees[i])
    return list(leaves), list(treedefs)


def like_updates(name: str, new: PyTree, updates: PyTree) -> PyTree:
    """What somebody else's function made of the updates, in their structure and dtypes.

    **Raises** `ValueError` if it doesn't have their leaves and shapes.
    """
    if jax.tree.structure(new) != jax.tree.structure(updates):
        check_same_paths(f"`{name}`: the result", new, "`updates`", updates)
    leaves, treedef = jax.tree.flatten(updates)
    cast = [
        jnp.asarray(x, leaf.dtype) for x, leaf in zip(jax.tree.leaves(new), leaves, strict=True)
    ]
    for i, (x, leaf) in enumerate(zip(cast, leaves, strict=True)):
        if x.shape != leaf.shape:
            raise ValueError(
                f"`{name}`: the result must be like the updates; at "
                f"`{paths_and_leaves(updates)[i][0]}` it has shape {x.shape}, they {leaf.shape}."
            )
    return jax.tree.unflatten(treedef, cast)


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
