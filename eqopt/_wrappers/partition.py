"""`Partition`: each leaf with the transformation of its group."""

from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import wadler_lindig as wl
from jaxtyping import PyTree

from .._core.chain import as_transform
from .._core.from_optax import is_optax
from .._core.leaves import paths_and_leaves
from .._core.selector import (
    AbstractPlaces,
    AbstractSelector,
    as_selector,
    entries_at,
    first_unknown,
)
from .._core.transform import AbstractTransform, Member
from .._core.types import Count, Params, Updates
from .._core.view import Chosen, Inside

_DEFAULT = "default"


class _Labels(AbstractPlaces):
    """A PyTree of names of groups, kept by path: static, hashable, and never called.

    - `entries`: pairs of a path and a name, static. A path stands for all that is below it.
    """

    entries: tuple[tuple[str, str], ...] = eqx.field(static=True)

    def _unmatched(self, tree: PyTree) -> str | None:
        return first_unknown(self.entries, tree)


class PartitionState(eqx.Module):
    """- `inner_states`: a dict from the name of each group (its number, where it has none) to what
    its transformation remembers, of the leaves of the group alone."""

    inner_states: dict[str, Any]


def _sorted(states: dict[str, Any]) -> PartitionState:
    """The state, with the names in the order in which JAX gives a dict back."""
    return PartitionState(dict(sorted(states.items())))


class Partition(AbstractTransform):
    """Applies to each leaf the transformation of its group.

    A group is a name, a selector and a transformation; the first group that selects a leaf has
    it, and `default` has the leaves that none selects:

    ```python
    Partition({"matrices": (select.Matrices(), muon), "embed": (select.Path("embed"), sgd)},
              default=AdamW(1e-3))
    ```

    Without names it is a sequence of pairs, `Partition([(select.Matrices(), muon)], default=...)`.
    Instead of selectors there may be `labels`, a PyTree like the model, or a prefix of one, with
    the name of a group for each leaf: `Partition({"a": sgd, "b": adam}, labels)`.

    Each transformation sees the leaves of its own group alone, with `None` for the others: a norm
    over the tree is one of the group, and there is no state for other leaves. All groups share one
    count. `optim["matrices"]` is the transformation of a group, `optim[0]` the one of the first.

    - `transforms`: the transformation of each group.
    - `names`: the name of each group or `None`, static.
    - `rules`: the selector of each group; none where there are `labels`.
    - `labels`: the names of groups by path, or `None`.
    - `default`: the transformation of the leaves that are in no group, or `None`.

    **Raises** `TypeError` or `ValueError` if a group is no such pair, a name is given twice or a
    label is no name of a group; at `init`, `ValueError` if a leaf is in no group and there is no
    `default`, or if there are labels where the model has nothing.
    """

    transforms: tuple[AbstractTransform, ...]
    names: tuple[str | None, ...] = eqx.field(static=True)
    rules: tuple[AbstractSelector, ...]
    labels: _Labels | None
    default: AbstractTransform | None

    def __init__(self, groups: Any, labels: Any = None, *, default: Any = None):
        named = _named(groups)
        if labels is None:
            pairs = [_pair(name, group) for name, group in named]
            self.rules = tuple(where for where, _ in pairs)
            self.transforms = tuple(transform for _, transform in pairs)
        else:
            self.rules = ()
            self.transforms = tuple(_transform(_label(name), group) for name, group in named)
        self.default = None if default is None else _transform("default=...", default)
        self.names = tuple(name for name, _ in named)
        self.labels = None if labels is None else _as_labels(labels, self._keys())

    def __check_init__(self) -> None:
        if self.default is not None and _DEFAULT in self.names:
            raise ValueError(
                f"`Partition(groups=...)` must not have a group {_DEFAULT!r} beside `default=...`."
            )

    def _all(self) -> list[tuple[str | None, AbstractTransform]]:
        """The groups, the default among them: the name and the transformation of each."""
        groups = list(zip(self.names, self.transforms, strict=True))
        return groups if self.default is None else [*groups, (_DEFAULT, self.default)]

    def _keys(self) -> list[str]:
        """The name of each group in the state."""
        return [str(i) if name is None else name for i, (name, _) in enumerate(self._all())]

    def _places(self, like: PyTree) -> list[int]:
        """The number of the group of each leaf of `like`, in order."""
        rest = None if self.default is None else len(self.transforms)
        if self.labels is not None:
            keys = self._keys()
            found = entries_at(self.labels.entries, like)
            places = [rest if name is None else keys.index(name) for name in found]
        else:
            places = [rest] * len(jax.tree.leaves(like))
            for i in reversed(range(len(self.rules))):  # so that the first one wins
                hits = jax.tree.leaves(self.rules[i](like))
                places = [i if hit else old for hit, old in zip(hits, places, strict=True)]
        if None in places:
            path, _ = paths_and_leaves(like)[places.index(None)]
            raise ValueError(
                "`Partition(groups=...)` must have a group for each leaf; there is none for "
                f"`{path}`. Give a `default=...`."
            )
        return [place for place in places if place is not None]

    def _forms(self, like: PyTree) -> list[Chosen]:
        """What each group sees of trees like `like`."""
        places = self._places(like)
        return [Chosen([place == i for place in places]) for i in range(len(self._all()))]

    def _insides(self, like: PyTree, state: PartitionState) -> dict[str, Inside]:
        groups = zip(self._keys(), self._all(), self._forms(like), strict=True)
        return {
            key: Inside(transform, form, state.inner_states[key])
            for key, (_, transform), form in groups
        }

    def _init(self, params: Params) -> PartitionState:
        groups = zip(self._keys(), self._all(), self._forms(params), strict=True)
        return _sorted(
            {key: transform._begin(form.see(params)) for key, (_, transform), form in groups}
        )

    def _update(
        self, updates: Updates, state: PartitionState, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, PartitionState]:
        new, states = updates, {}
        for key, inside in self._insides(updates if params is None else params, state).items():
            seen, states[key] = inside.update(updates, params, count, extras)
            new = inside.form.whole(seen, new)
        return new, _sorted(states)

    def _step(
        self, updates: Updates, state: PartitionState, params: Params, count: Count, **extras: Any
    ) -> tuple[Params, PartitionState]:
        new, states = params, {}
        for key, inside in self._insides(params, state).items():
            seen, states[key] = inside.step(updates, params, count, extras)
            new = inside.form.whole(seen, new)
        return new, _sorted(states)

    def _eval_params(self, state: PartitionState, params: Params, count: Count) -> Params:
        for inside in self._insides(params, state).values():
            params = inside.eval_params(params, count)
        return params

    def _members(self, state: Any, count: Any) -> Iterator[Member]:
        for i, (key, (name, transform)) in enumerate(zip(self._keys(), self._all(), strict=True)):

            def sees(params: Params, i: int = i) -> PyTree:
                return self._forms(params)[i].see(params)

            yield Member(name, transform, state and state.inner_states[key], count, sees)

    def __getitem__(self, key: int | str) -> AbstractTransform:
        named = self._all()
        if isinstance(key, int):
            return named[key][1]
        names = [name for name, _ in named]
        if key not in names:
            known = ", ".join(repr(name) for name in names if name is not None) or "none"
            raise KeyError(f"`Partition` has no group named {key!r}; its names are: {known}.")
        return named[names.index(key)][1]

    def __pdoc__(self, **kwargs: Any) -> wl.AbstractDoc:
        groups = list(self.transforms)
        if self.labels is None:
            groups = list(zip(self.rules, self.transforms, strict=True))
        if None not in self.names:
            groups = dict(zip(self.names, groups, strict=True))
        rest = [("labels", self.labels), (_DEFAULT, self.default)]
        shown = wl.named_objs([(name, x) for name, x in rest if x is not None], **kwargs)
        return wl.bracketed(
            begin=wl.TextDoc("Partition("),
            docs=[wl.pdoc(groups, **kwargs), *shown],
            sep=wl.comma,
            end=wl.TextDoc(")"),
            indent=kwargs["indent"],
        )


def _named(groups: Any) -> list[tuple[str | None, Any]]:
    """The groups, each with its name; a sequence has no names."""
    if isinstance(groups, Mapping):
        for name in groups:
            if not isinstance(name, str):
                raise TypeError(
                    f"`Partition(groups=...)` must have strings for names; got {name!r}."
                )
        return list(groups.items())
    if isinstance(groups, list | tuple) and not is_optax(groups):
        return [(None, group) for group in groups]
    raise TypeError(
        "`Partition(groups=...)` must be a dict from names to groups or a sequence of pairs "
        f"`(where, transformation)`; got {groups!r}."
    )


def _label(name: str | None) -> str:
    return "groups=..." if name is None else f"groups={{{name!r}: ...}}"


def _pair(name: str | None, group: Any) -> tuple[AbstractSelector, AbstractTransform]:
    label = _label(name)
    if not isinstance(group, list | tuple) or len(group) != 2 or is_optax(group):
        raise TypeError(
            f"`Partition({label})` must be a pair `(where, transformation)`, or there must be "
            f"`labels`; got {group!r}."
        )
    where, transform = group
    return as_selector(where, f"`Partition({label})`: `where`"), _transform(label, transform)


def _transform(label: str, given: Any) -> AbstractTransform:
    try:
        return as_transform(given)
    except TypeError as error:
        reason = str(error).removeprefix("A member of a chain must be ")
        raise TypeError(f"`Partition({label})` must be {reason}") from None


def _as_labels(labels: Any, names: list[str]) -> _Labels:
    if isinstance(labels, _Labels):
        return labels
    entries = paths_and_leaves(labels)
    for path, name in entries:
        if not isinstance(name, str):
            raise TypeError(
                f"`Partition(labels=...)` must be a PyTree of names; got {name!r} at `{path}`."
            )
        if name not in names:
            known = ", ".join(map(repr, names))
            raise ValueError(
                f"`Partition(labels=...)` must be names of groups, {known}; got {name!r} at "
                f"`{path}`."
            )
    return _Labels(tuple(entries))
