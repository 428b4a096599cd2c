"""The boundary of a transformation: what is checked and made plain before its hooks run."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .component import Component
from .hyperparam import check_scalars
from .layout import check_layouts
from .leafwise import check_same_paths
from .leaves import is_abstract, is_trained, paths_and_leaves, select_leaves, varying
from .selector import AbstractPlaces

if TYPE_CHECKING:
    from .transform import AbstractTransform

_ALWAYS = frozenset({"value", "grad", "value_fn"})  # accepted everywhere, used where wanted


def walk(transform: "AbstractTransform") -> Iterator["AbstractTransform"]:
    """A transformation and all inside it, their numbers checked to be scalars."""
    check_scalars(transform)
    yield transform
    for member in transform._members(None, None):
        yield from walk(member.transform)


def has_structs(params: PyTree) -> bool:
    """Whether a tree holds `ShapeDtypeStruct`s."""
    return any(map(is_abstract, jax.tree.leaves(params)))


def abstractly(fn: Callable[[PyTree], Any], params: PyTree) -> Any:
    """The structs that `fn` gives on a tree with structs among its leaves."""
    structs, rest = eqx.partition(params, is_abstract)
    return jax.eval_shape(lambda structs: fn(eqx.combine(structs, rest)), structs)


def check_params(transform: "AbstractTransform", params: PyTree, kept: PyTree) -> None:
    """A tree with leaves but nothing to train is a mistake."""
    if jax.tree.leaves(params) and not jax.tree.leaves(kept):
        path, leaf = paths_and_leaves(params)[0]
        raise ValueError(
            f"`{type(transform).__name__}.init(params=...)` must hold at least one float or "
            f"complex array; got {leaf!r} at `{path}` and no array. Python numbers are not "
            "trained: use `jnp.asarray`."
        )


def check_inside(
    transform: "AbstractTransform", params: PyTree, seen: PyTree | None = None
) -> None:
    """A path, layer or leaf that a selector names must be there, and an algorithm that has no
    complex form must see no complex leaf: in a transformation and all inside it.

    - `seen`: what the transformation sees of `params`, if not all. Its selectors may name what is
      left out, and trees of bools leave it out: one optimizer may stand in several groups.
    """
    seen = params if seen is None else seen
    name = type(transform).__name__
    check_scalars(transform)
    for field, places in _places(transform):
        if why := places._unmatched(params) or places._uncovered(seen):
            raise ValueError(f"`{name}({field}=...)` {why}")
    for path, leaf in paths_and_leaves(seen) if transform._real_only else ():
        if jnp.iscomplexobj(leaf):
            raise TypeError(
                f"`{name}` must be given real parameters; got {leaf.dtype} at `{path}`."
            )
    for member in transform._members(None, None):
        if member.sees is None:
            check_inside(member.transform, params, seen)
            continue
        below = jax.eval_shape(member.sees, seen)
        in_another_layout = not _paths(below) <= _paths(params)
        check_inside(member.transform, below if in_another_layout else params, below)


def _places(transform: "AbstractTransform") -> Iterator[tuple[str, AbstractPlaces]]:
    """The selectors of a transformation, each with its field; those of members are their own."""
    for field, value in vars(transform).items():
        parts = [value]  # alone, or among `rules`
        if isinstance(value, tuple | list | dict):
            parts = jax.tree.leaves(value, is_leaf=lambda x: isinstance(x, Component))
        for part in parts:
            if isinstance(part, AbstractPlaces):
                yield field, part


def _paths(tree: PyTree) -> set[str]:
    return {path for path, _ in paths_and_leaves(tree)}


def check_state_type(transform: "AbstractTransform", state: Any, wanted: type) -> None:
    """The state is what `init` returned, not the parameters and not another member's state."""
    if not isinstance(state, wanted):
        raise TypeError(
            f"`{type(transform).__name__}`: `state` must be what its `init` returned; got "
            f"{type(state).__name__}."
        )


def match_params(name: str, updates: PyTree, params: PyTree, what: str = "`updates`") -> PyTree:
    """The parameters that have an update, in the structure of `params`.

    - `what`: what errors call the updates.
    """
    new, old = jax.tree.leaves(updates), jax.tree.leaves(params)
    if jax.tree.structure(updates) != jax.tree.structure(params):
        wanted = {path for path, _ in paths_and_leaves(updates)}
        found = [path for path, _ in paths_and_leaves(params)]
        if missing := [path for path, _ in paths_and_leaves(updates) if path not in set(found)]:
            raise ValueError(
                f"`{name}`: {what} and `params` must have the same structure; {what} has a "
                f"leaf at `{missing[0]}`, `params` has no parameter there."
            )
        params = select_leaves(params, [path in wanted for path in found])
        check_same_paths(f"`{name}`: {what}", updates, "`params`", params)
        old = jax.tree.leaves(params)
    for i, (u, p) in enumerate(zip(map(jax.typeof, new), map(jax.typeof, old), strict=True)):
        if u.shape != p.shape or (u.dtype.kind == "c") != (p.dtype.kind == "c"):
            path = paths_and_leaves(updates)[i][0]
            raise ValueError(
                f"`{name}`: {what} and `params` must match; at `{path}` {what} is "
                f"{u.str_short()}, `params` {p.str_short()}."
            )
    return params


def check_kinds(name: str, updates: PyTree, kept: PyTree, params: PyTree) -> None:
    """A Python number, a list or an integer array is no update of a parameter.

    - `kept`: what of the updates is trained.
    """
    found = jax.tree.leaves(updates)
    if len(found) == len(jax.tree.leaves(kept)):
        return
    trained = {path for path, leaf in paths_and_leaves(params) if is_trained(leaf)}
    others = {path for path, _ in paths_and_leaves(params)} - trained
    for path, x in paths_and_leaves(updates):
        if is_trained(x) or path in others:
            continue
        dtype = getattr(x, "dtype", None)
        if path in trained or dtype is not None or isinstance(x, int | float | complex):
            got = repr(x) if dtype is None else f"an array of {dtype}"
            raise TypeError(
                f"`{name}`: `updates` must be float arrays where `params` are, in the same "
                f"structure; got {got} at `{path}`."
            )


def keywords(transform: "AbstractTransform") -> tuple[dict[str, str], frozenset[str] | None]:
    """The keywords that an update needs, each with the class that does, and those that it takes;
    `None` is any."""
    needs: dict[str, str] = {}
    takes: frozenset[str] | None = _ALWAYS
    for member in walk(transform):
        by_dtype = any(places._goes_by_dtype() for _, places in _places(member))
        for keyword in member._needs | ({"params"} if by_dtype else set()):
            needs.setdefault(keyword, type(member).__name__)
        more = member._takes
        takes = None if takes is None or more is None else takes | more | member._needs
    return needs, takes


def check_extras(
    transform: "AbstractTransform", updates: PyTree, params: PyTree, extras: dict[str, Any]
) -> None:
    """What is needed was given, and nothing that nobody knows."""
    needs, takes = keywords(transform)
    for keyword, owner in needs.items():
        missing = (
            params is None and jax.tree.leaves(updates)
            if keyword == "params"
            else (keyword not in extras)
        )
        if missing:
            raise TypeError(f"`{owner}` needs `{keyword}`: pass `{keyword}=...` to the update.")
    if "value" in needs:
        check_value(needs["value"], extras["value"])
    if takes is not None and (unknown := sorted(set(extras) - takes)):
        raise TypeError(
            f"`{type(transform).__name__}` got an unexpected keyword `{unknown[0]}`; it takes "
            f"{', '.join(f'`{name}`' for name in sorted(takes - {'params'}))}."
        )


def check_value(owner: str, value: Any) -> None:
    """A loss is a real scalar, not one for each example."""
    got = repr(value)
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        if value.ndim == 0 and jnp.isrealobj(value):
            return
        got = f"an array of shape {value.shape} and dtype {value.dtype}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return
    raise TypeError(f"`{owner}`: `value` must be a real scalar; got {got}.")


def plain_extras(extras: dict[str, Any], params: PyTree) -> dict[str, Any]:
    """The keywords as the hooks see them: a loss as an array, functions of what is trained."""
    plain = dict(extras)
    if plain.get("value") is not None:
        plain["value"] = jnp.asarray(plain["value"])
    if plain.get("value_fn") is not None and params is not None:
        value_fn = plain["value_fn"]
        plain["value_fn"] = lambda kept, *args, **kwargs: value_fn(
            eqx.combine(kept, params), *args, **kwargs
        )
    return plain


_checked: set[int] = set()  # hashes of what was found right; they keep nothing alive


def check_state(
    transform: "AbstractTransform", updates: PyTree, params: PyTree | None, state: Any
) -> None:
    """The state has the leaves, and the shapes, that `init` gives for these updates."""
    like = updates if params is None else params
    key = _signature(transform, like, state)
    if key in _checked:
        return
    wanted = _expected_state(transform, like)
    name = type(transform).__name__
    if jax.tree.structure(state) != jax.tree.structure(wanted):
        try:
            check_same_paths("`state`", state, "the state for these `updates`", wanted)
        except ValueError as error:
            raise ValueError(f"`{name}`: {error} {_where_none(updates)}".rstrip()) from None
        if path := _first_other_node(state, wanted, ""):
            raise ValueError(
                f"`{name}`: `state` must be what its `init` returned; its structure differs at "
                f"`{path}`."
            )
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(wanted), strict=True)
    for i, (found, right) in enumerate(pairs):
        if jnp.shape(found) != right.shape:
            raise ValueError(
                f"`{name}`: `state` and `updates` must match; `state` has shape "
                f"{jnp.shape(found)} at `{paths_and_leaves(state)[i][0]}`, these `updates` need "
                f"{right.shape}. {_where_none(updates)}".rstrip()
            )
        if jnp.iscomplexobj(found) != jnp.issubdtype(right.dtype, jnp.complexfloating):
            raise ValueError(
                f"`{name}`: `state` and `updates` must match; `state` is {jnp.result_type(found)} "
                f"at `{paths_and_leaves(state)[i][0]}`, these `updates` need {right.dtype}."
            )
    check_layouts(f"`{name}`", state, wanted)
    if len(_checked) >= 1024:
        _checked.clear()
    _checked.add(key)


def _expected_state(transform: "AbstractTransform", like: PyTree) -> Any:
    """What `init` gives for a tree, as far as structure and shapes go.

    Zeros like a struct are a struct, so most states take no tracing; one that computes with the
    parameters is traced.
    """
    structs = _structs(like)
    found = []
    if any(map(varying, jax.tree.leaves(like))):  # which a struct does not tell
        return jax.eval_shape(lambda tree: transform._initial_state(tree).inner, like)
    try:
        jax.eval_shape(lambda: found.append(_structs(transform._initial_state(structs).inner)))
        return found[0]
    except (TypeError, AttributeError):
        return jax.eval_shape(lambda tree: transform._initial_state(tree).inner, structs)


def _structs(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def _first_other_node(a: Any, b: Any, path: str) -> str | None:
    """The path of the first node at which two states are of different types; what is static in
    them may differ, and an empty part of the parameters may be `None`."""
    empty = not jax.tree.leaves((a, b))
    if type(a) is not type(b) and not jax.tree_util.all_leaves([a, b]):
        tolerable = empty and not isinstance(a, tuple) and not isinstance(b, tuple)
        return None if tolerable else path or "."
    below = [
        jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x, node=node: x is not node)[0]
        for node in (a, b)
    ]
    if jax.tree_util.all_leaves([a]) or a is None:
        return None
    if len(below[0]) != len(below[1]):
        return path or "."
    for (key, x), (_, y) in zip(*below, strict=True):
        if found := _first_other_node(x, y, path + jax.tree_util.keystr(key)):
            return found
    return None


def _signature(*trees: PyTree) -> Any:
    leaves, treedef = jax.tree.flatten(trees)
    leaves = tuple((jnp.shape(x), getattr(x, "dtype", type(x))) for x in leaves)
    return hash((treedef, str(treedef), leaves))  # the hash alone knows no keys of dicts


def _where_none(updates: PyTree) -> str:
    nones = [
        jax.tree_util.keystr(path) or "."
        for path, leaf in jax.tree_util.tree_flatten_with_path(
            updates, is_leaf=lambda x: x is None
        )[0]
        if leaf is None
    ]
    if not nones:
        return ""
    return (
        f"`updates` is None at `{nones[0]}`: a part of a model is trained with a state of that "
        "part, `optim.init(part)`, or inside `Freeze(optim, where)`, which then stands outermost."
    )


def without_aliases(state: Any, others: PyTree) -> Any:
    """The state with a copy of each array that is also somewhere else, so that it can be
    donated."""
    seen = {id(x) for x in jax.tree.leaves(others) if isinstance(x, jax.Array)}
    return jax.tree.map(partial(_own, seen), state)


def _own(seen: set[int], x: Any) -> Any:
    if not isinstance(x, jax.Array):
        return x
    if id(x) in seen:
        x = jnp.array(x, copy=True)
    seen.add(id(x))
    return x


def snake_case(name: str) -> str:
    """`ClipByGlobalNorm` as `clip_by_global_norm`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
