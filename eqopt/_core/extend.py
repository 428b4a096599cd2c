"""`extend_state`: the state of a training whose parameters, or whose frozen leaves, change."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from .boundary import check_state_type
from .layout import AbstractJoined, Layout, other_layout
from .leaves import paths_and_leaves
from .transform import AbstractTransform, State
from .types import OptState, Params

# States of wrappers that leave leaves out and change nothing else.
_TRANSPARENT = {"State", "MaskedState", "FreezeState", "PartitionState"}
_ARRAY = "an array"


class _Part(NamedTuple):
    """A leaf of a state, or the beginning of one kind of state.

    - `kinds`: the kinds of state that it is in, from the outermost inwards.
    - `order`: which one of each kind it is, counted along the chain: groups of `Partition` stand
      beside each other, and what is masked counts too.
    - `path`: the path in the last of them; `None` at its beginning.
    - `leaf`: the leaf.
    - `groups`: the groups of `Partition` that it is in, from the outermost inwards.
    - `named`: whether the optimizer gives them names.
    - `counted`: whether a counter of the same state says what it means, as of sums in a round.
    - `layout`: the leaves in the vectors of the `Flatten` that it is in.
    """

    kinds: tuple[str, ...]
    order: tuple[int, ...]
    path: str | None
    leaf: Any
    groups: tuple[str, ...] = ()
    named: bool = True
    counted: bool = False
    layout: Layout = ()

    @property
    def site(self) -> Any:
        """What it has in common with those from which its place tells it apart."""
        return self.kinds, self.order[:-1], self.path

    @property
    def place(self) -> tuple[int, tuple[str, ...]]:
        """The number and the groups."""
        return self.order[-1] if self.order else 0, self.groups


_Sites: TypeAlias = dict[Any, list[_Part]]


def extend_state(optim: AbstractTransform, state: OptState, params: Params) -> OptState:
    """The state of `optim` for `params`, with what an older state has of it.

    For a training in whose midst leaves are added or removed, are frozen or unfrozen (by `Freeze`,
    `Masked` or `Partition`), or a hyperparameter becomes a schedule. What the older state has for
    the same leaf, in the same kind of state and of the same shape, is kept, and so is the count;
    everything else is as `init` gives it. Freezing a leaf drops its moments. In the midst of a
    round of `MultiSteps` the leaves that stay keep their sums, and new ones start at zero, as do
    those that come from another group of `Partition`.

    The structure of the optimizer may not change: a wrapper or another part with a state that is
    there stays there, in the same wrappers and as often; what has none may come and go. Several
    states of one kind in a chain are told apart by their places in it.

    The count is one for all leaves, so the bias correction of moments that start later is that of
    the others. After many steps it is nearly 1, and the first step of a new leaf by Adam is
    `(1 - b1) / sqrt(1 - b2)` times as long as usual, about 3 with its defaults.

    - `optim`: the transformation as it is from now on.
    - `state`: the state so far, of this or of the former transformation.
    - `params`: the parameters as they are from now on.

    **Raises** `TypeError` if `state` is none, `ValueError` if it has a kind of state that `optim`
    has not, or not in the same wrappers, the same one more or less often or in groups of
    `Partition` that do not tell which is which, or vectors of `Flatten` with other leaves in them.
    Groups to which `optim` gives no names are told by their leaves: where several hold counters,
    each has to keep leaves, and none may take one from another.
    """
    check_state_type(optim, state, State)
    fresh = optim.init(params)
    old = list(_parts(state, _Part((), (), "", None), Counter(), {}))
    new = list(_parts(fresh, _Part((), (), "", None), Counter(), _names(optim, fresh)))
    _check_kinds(type(optim).__name__, old, new)
    known, wanted = _sites(old), _sites(new)
    same = _same_groups(known, wanted)
    kept: dict[Any, Iterator[_Part | None]] = {}
    for site, after in wanted.items():
        before, nodes = known.get(site, []), (*site[:2], None)
        if site[2] is None:
            _check_number(before, after)
        else:
            kept[site] = iter(
                _matched(before, after, known.get(nodes, []), wanted.get(nodes, []), same)
            )
    leaves = [_kept(next(kept[part.site]), part) for part in new if part.path is not None]
    return jax.tree.unflatten(jax.tree.structure(fresh), leaves)


def _names(transform: AbstractTransform, state: State) -> dict[int, set[str | None]]:
    """The names that each `Partition` gives its groups, by the identity of its state."""
    found: dict[int, set[str | None]] = {}

    def visit(transform: AbstractTransform, state: Any, count: Any) -> None:
        members = list(transform._members(state, count))
        if hasattr(state, "inner_states"):
            found[id(state)] = {member.name for member in members}
        for member in members:
            visit(member.transform, member.state, member.count)

    visit(transform, state.inner, state.count)
    return found


def _sites(parts: list[_Part]) -> _Sites:
    sites: _Sites = defaultdict(list)
    for part in parts:
        sites[part.site].append(part)
    return dict(sites)


def _check_kinds(name: str, old: list[_Part], new: list[_Part]) -> None:
    """What the older state remembers has a place in the new one."""
    there = {part.kinds for part in new}
    for kinds, _, path, *_ in old:
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


def _same_groups(known: _Sites, wanted: _Sites) -> set[tuple[str, ...]]:
    """The groups of `Partition` that keep leaves and neither lose nor gain one of another group."""
    found = [
        [{part.groups for part in parts} for parts in (before, wanted.get(site, []))]
        for site, before in known.items()
        if site[2] is not None
    ]
    moves = [(*old, *new) for old, new in found if len(old) == 1 == len(new)]
    changed = {group for old, new in moves if old != new for group in (old, new)}
    return {old for old, _ in moves} - changed


def _check_number(before: list[_Part], after: list[_Part]) -> None:
    """States of one kind in one lane are as many as before."""
    lanes = {part.groups for part in (*before, *after)}
    if before and len(lanes) == 1 and len(before) != len(after) and before[0].kinds[-1] != _ARRAY:
        raise ValueError(
            f"`extend_state(state=...)` must have as many of {_in_words(before[0].kinds)} as the "
            f"optimizer; it has {len(before)} for {len(after)}."
        )


def _matched(
    before: list[_Part],
    after: list[_Part],
    nodes: list[_Part],
    new_nodes: list[_Part],
    same: set[tuple[str, ...]],
) -> Sequence[_Part | None]:
    """For each part of one site, the one that was there before.

    - `nodes`, `new_nodes`: all states of the kind, also those in which masks leave the leaf out.
    """
    if not before:
        return [None] * len(after)
    old, new = ([part.place for part in parts] for parts in (before, after))
    if any(len(dict(places)) < len(places) for places in (old, new)):  # in groups side by side
        if old != new:
            raise _ambiguous(before, after)
        _check_unnamed(after, same)
        found = before
    elif list(dict(old)) == list(dict(new)) and _moves_once(before, after):
        found = before
    elif _only_masks(old, new, nodes, new_nodes):
        by_place = dict(zip(old, before, strict=True))
        found = [by_place.get(place) for place in new]
    elif len(old) == len(new) and _moves_once(before, after):
        found = before
    else:
        raise _ambiguous(before, after)
    for was, part in zip(found, after, strict=True):
        if was is not None:
            _check_vectors(was, part)
    return found


def _moves_once(before: list[_Part], after: list[_Part]) -> bool:
    """Whether no more than one group became another one, so that the order tells all."""
    pairs = {(was.groups, part.groups) for was, part in zip(before, after, strict=True)}
    return sum(old != new for old, new in pairs) <= 1


def _only_masks(old: list[Any], new: list[Any], nodes: list[_Part], new_nodes: list[_Part]) -> bool:
    """Whether both have the same states, and differ only in which of them have the leaf."""
    numbers = [{part.place[0] for part in parts} for parts in (nodes, new_nodes)]
    was, now = dict(old), dict(new)
    if not {*was, *now} <= numbers[0] & numbers[1]:
        return False
    if any(was[number] != now[number] for number in {*was} & {*now}):
        return False
    before, after = ({groups for _, groups in places} for places in (old, new))
    apart = [
        (a, b)
        for a in before
        for b in after
        if a[: len(b)] != b[: len(a)] and not {a, b} <= before and not {a, b} <= after
    ]
    return not apart  # a leaf that went to another group is not masked


def _ambiguous(before: list[_Part], after: list[_Part]) -> ValueError:
    kind, path = before[0].kinds[-1], before[0].path
    there, wanted = (
        [" in ".join(reversed(part.groups)) or "no group" for part in parts]
        for parts in (before, after)
    )
    return ValueError(
        f"`extend_state(state=...)` must tell which `{kind}` is which: the optimizer has "
        f"`{path}` of it in the groups {wanted} of `Partition`, the state in {there}."
    )


def _check_unnamed(after: list[_Part], same: set[tuple[str, ...]]) -> None:
    if not {part.groups for part in after if not part.named} <= same:
        raise ValueError(
            f"`extend_state(state=...)` must tell the groups of `Partition` apart that have "
            f"`{after[0].kinds[-1]}`; they have no names, and their leaves do not tell which is "
            "which. Give names from the start: `Partition({name: (where, transformation)})`."
        )


def _check_vectors(before: _Part, after: _Part) -> None:
    """Vectors of `Flatten` are of the same leaves."""
    if "FlattenState" not in before.kinds or (
        not jnp.shape(before.leaf) and not jnp.shape(after.leaf)
    ):
        return
    start = "`extend_state(params=...)` must be the same leaves inside `Flatten`, whose vectors"
    if jnp.shape(before.leaf) != jnp.shape(after.leaf):
        raise ValueError(
            f"{start} are not taken apart; `{before.path}` is of shape {jnp.shape(before.leaf)} "
            f"and would be of {jnp.shape(after.leaf)}."
        )
    old, new = (
        tuple(x for x in part.layout if f"[{x[0]!r}]" in str(part.path)) for part in (before, after)
    )
    if reason := other_layout(old, new):
        raise ValueError(f"{start} are not taken apart; of the state, {reason}")


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


def _parts(
    node: Any, at: _Part, seen: Counter[Any], names: dict[int, set[str | None]]
) -> Iterator[_Part]:
    """The parts of a state, its leaves in their order.

    - `at`: the part whose `kinds`, `order` and `path` are those of what is around the node.
    - `seen`: how many states of each kind came before.
    - `names`: the names of groups, by the identity of the state of `Partition`.
    """
    name = type(node).__name__
    if type(node) in (tuple, list, dict, type(None)):  # as in a chain, whose numbers may change
        for key, child in _children(node):
            below = f"{at.path}{key}" if type(node) is dict else at.path
            yield from _parts(child, at._replace(path=below), seen, names)
        return
    if name not in _TRANSPARENT:
        kinds = (*at.kinds, _ARRAY if jax.tree_util.all_leaves([node]) else name)
        number = seen[kinds, at.order, at.path]
        seen[kinds, at.order, at.path] += 1
        at = at._replace(kinds=kinds, order=(*at.order, number))
        yield at._replace(path=None)
    if isinstance(node, AbstractJoined):
        at = at._replace(layout=node._holds())
    if not hasattr(node, "inner_state") and name not in _TRANSPARENT:
        yield from _leaves(node, at)
        return
    for key, child in _children(node):
        if key == ".inner_states":
            yield from _in_groups(child, at, seen, names, names.get(id(node), set()))
        elif key in (".inner_state", ".inner"):
            yield from _parts(child, at, seen, names)
        else:
            counted = key in getattr(node, "_counted", ())
            yield from _leaves(child, at._replace(path=f"{at.path}{key}", counted=counted))


def _in_groups(
    states: dict[str, Any],
    at: _Part,
    seen: Counter[Any],
    names: dict[int, set[str | None]],
    own: set[str | None],
) -> Iterator[_Part]:
    """The parts of the states of groups, which stand beside each other.

    - `own`: the names of these groups.
    """
    start = seen.copy()
    for group, inner in states.items():
        lane = start.copy()
        inside = at._replace(groups=(*at.groups, group), named=at.named and group in own)
        yield from _parts(inner, inside, lane, names)
        seen |= lane


def _leaves(node: Any, at: _Part) -> Iterator[_Part]:
    for path, leaf in paths_and_leaves(node):
        yield at._replace(path=f"{at.path}{path}", leaf=leaf)


def _children(node: Any) -> list[tuple[str, Any]]:
    found, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)
    return [(jax.tree_util.keystr(path), child) for path, child in found]
