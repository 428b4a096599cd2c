"""`extend_state`: the state of a training whose parameters, or whose frozen leaves, change."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .boundary import check_state_type
from .leaves import paths_and_leaves
from .transform import AbstractTransform, State
from .types import OptState, Params

# States of wrappers that leave leaves out and change nothing else.
_TRANSPARENT = {"State", "MaskedState", "FreezeState", "PartitionState"}


class _Part(NamedTuple):
    """A leaf of a state, or the beginning of one kind of state.

    - `kinds`: the kinds of state that it is in, from the outermost inwards.
    - `path`: the path in the last of them; `None` at its beginning.
    - `leaf`: the leaf.
    - `groups`: the groups of `Partition` that it is in, from the outermost inwards.
    - `counted`: whether a counter of the same state says what it means, as of sums in a round.
    """

    kinds: tuple[str, ...]
    path: str | None
    leaf: Any
    groups: tuple[str, ...] = ()
    counted: bool = False


def extend_state(optim: AbstractTransform, state: OptState, params: Params) -> OptState:
    """The state of `optim` for `params`, with what an older state has of it.

    For a training in whose midst leaves are added or removed, are frozen or unfrozen (by `Freeze`,
    `Masked` or `Partition`), or a hyperparameter becomes a schedule. What the older state has for
    the same leaf, in the same kind of state and of the same shape, is kept, and so is the count;
    everything else is as `init` gives it. Freezing a leaf drops its moments. In the midst of a
    round of `MultiSteps` the leaves that stay keep their sums, and new ones start at zero, as do
    those that come from another group of `Partition`.

    The structure of the optimizer may not change: a wrapper or another part with a state that is
    there stays there, in the same wrappers and as often; what has none may come and go.

    The count is one for all leaves, so the bias correction of moments that start later is that of
    the others. After many steps it is nearly 1, and the first step of a new leaf by Adam is
    `(1 - b1) / sqrt(1 - b2)` times as long as usual, about 3 with its defaults.

    - `optim`: the transformation as it is from now on.
    - `state`: the state so far, of this or of the former transformation.
    - `params`: the parameters as they are from now on.

    **Raises** `TypeError` if `state` is none, `ValueError` if it has a kind of state that `optim`
    has not, or not in the same wrappers, the same one more or less often or in other groups of
    `Partition`, or vectors of `Flatten` with other leaves in them. Groups without names are told by
    their leaves: where several hold counters, each has to keep leaves, and none may take one from
    another.
    """
    check_state_type(optim, state, State)
    fresh = optim.init(params)
    old, new = list(_parts(state, (), "")), list(_parts(fresh, (), ""))
    _check_kinds(type(optim).__name__, old, new)
    known: dict[Any, list[_Part]] = defaultdict(list)
    wanted: dict[Any, list[_Part]] = defaultdict(list)
    for parts, found in ((old, known), (new, wanted)):
        for part in parts:
            if part.path is not None:
                found[part.kinds, part.path].append(part)
    same = _same_groups(known, wanted)
    for place, parts in wanted.items():
        if known[place]:
            _check_same(known[place], parts, same)
    kept = {place: iter(before) for place, before in known.items()}
    leaves = [
        _kept(next(kept.get((part.kinds, part.path), iter(())), None), part)
        for part in new
        if part.path is not None
    ]
    return jax.tree.unflatten(jax.tree.structure(fresh), leaves)


def _check_kinds(name: str, old: list[_Part], new: list[_Part]) -> None:
    """What the older state remembers has a place in the new one."""
    there = {part.kinds for part in new}
    for kinds, path, *_ in old:
        if path is not None and kinds not in there:
            alike = sorted({_in_words(other) for other in there if other[-1:] == kinds[-1:]})
            but = f" but {', '.join(alike)}" if alike else ""
            raise ValueError(
                f"`extend_state(state=...)` must be of a transformation like `{name}`, which has "
                f"no {_in_words(kinds)}{but}. Leaves, what is frozen and numbers may change; "
                "wrappers and other parts with a state may not."
            )


def _in_words(kinds: tuple[str, ...]) -> str:
    around = " in ".join(f"`{kind}`" for kind in reversed(kinds[:-1]))
    return f"`{kinds[-1]}` " + (f"inside {around}" if around else "outside of wrappers")


def _same_groups(
    known: dict[Any, list[_Part]], wanted: dict[Any, list[_Part]]
) -> set[tuple[str, ...]]:
    """The groups of `Partition` that keep leaves and neither lose nor gain one of another group."""
    found = [
        [{part.groups for part in parts} for parts in (before, wanted.get(place, []))]
        for place, before in known.items()
    ]
    moves = [(*old, *new) for old, new in found if len(old) == 1 == len(new)]
    changed = {group for old, new in moves if old != new for group in (old, new)}
    return {old for old, _ in moves} - changed


def _check_same(before: list[_Part], after: list[_Part], same: set[tuple[str, ...]]) -> None:
    """What stands in one place of both states, one after the other, is the same."""
    kinds, path, leaf, *_ = before[0]
    if len(before) != len(after):
        raise ValueError(
            f"`extend_state(state=...)` must have as many of `{kinds[-1]}` as the optimizer; "
            f"it has {len(before)} for {len(after)}."
        )
    groups = [[" in ".join(reversed(part.groups)) for part in parts] for parts in (before, after)]
    if len(before) > 1 and groups[0] != groups[1]:
        raise ValueError(
            f"`extend_state(state=...)` must have `{kinds[-1]}` in the groups {groups[1]} of the "
            f"optimizer; it has them in {groups[0]}."
        )
    unnamed = {part.groups for part in before if any(map(str.isdecimal, part.groups))}
    if len(before) > 1 and not unnamed <= same:
        raise ValueError(
            f"`extend_state(state=...)` must tell the groups of `Partition` apart that have "
            f"`{kinds[-1]}`; they have no names, and their leaves do not tell which is which. Give "
            "names from the start: `Partition({name: (where, transformation)})`."
        )
    if "FlattenState" in kinds and jnp.shape(leaf) != jnp.shape(after[0].leaf):
        raise ValueError(
            f"`extend_state(params=...)` must be the same leaves inside `Flatten`, whose "
            f"vectors are not taken apart; `{path}` is of shape {jnp.shape(leaf)} and "
            f"would be of {jnp.shape(after[0].leaf)}."
        )


def _kept(before: _Part | None, after: _Part) -> Any:
    """The older leaf, where it is of the kind of the new one and means the same."""
    if before is None or (after.counted and before.groups != after.groups):
        return after.leaf
    old, new = before.leaf, after.leaf
    if not hasattr(old, "dtype") or jnp.shape(old) != jnp.shape(new):
        return new
    if old.dtype == new.dtype:
        return old
    for kind in (jnp.floating, jnp.complexfloating):
        if all(jnp.issubdtype(x.dtype, kind) for x in (old, new)):
            return old.astype(new.dtype)
    return new


def _parts(node: Any, kinds: tuple[str, ...], prefix: str) -> Iterator[_Part]:
    """The parts of a state, its leaves in their order."""
    name = type(node).__name__
    if type(node) in (tuple, list, dict, type(None)):  # as in a chain, whose numbers may change
        for key, child in _children(node):
            yield from _parts(child, kinds, prefix + (key if type(node) is dict else ""))
        return
    if name not in _TRANSPARENT:
        kinds = (*kinds, "an array" if jax.tree_util.all_leaves([node]) else name)
        yield _Part(kinds, None, None)
    if hasattr(node, "inner_state") or name in _TRANSPARENT:
        for key, child in _children(node):
            if key == ".inner_states":
                for group, inner in child.items():
                    for part in _parts(inner, kinds, prefix):
                        yield part._replace(groups=(group, *part.groups))
            elif key in (".inner_state", ".inner"):
                yield from _parts(child, kinds, prefix)
            else:
                counted = key in getattr(node, "_counted", ())
                for part in _leaves(child, kinds, prefix + key):
                    yield part._replace(counted=counted)
        return
    yield from _leaves(node, kinds, prefix)


def _leaves(node: Any, kinds: tuple[str, ...], prefix: str) -> Iterator[_Part]:
    for path, leaf in paths_and_leaves(node):
        yield _Part(kinds, prefix + path, leaf)


def _children(node: Any) -> list[tuple[str, Any]]:
    found, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)
    return [(jax.tree_util.keystr(path), child) for path, child in found]
