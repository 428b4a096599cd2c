"""`Chain`: one transformation after the other; what `>>` builds."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import wadler_lindig as wl

from .apply import apply_updates
from .component import infix
from .elementwise import AbstractElementwise
from .from_optax import FromOptax, is_optax
from .leafwise import Stage, run_stages
from .project import Project
from .projection import AbstractProjection
from .schedule import AbstractSchedule
from .transform import AbstractTransform, Member, replace_fields
from .types import Count, Params, Updates


class Chain(AbstractTransform):
    """Applies its members in order: the updates of one are what the next is given.

    `a >> b >> c` builds it. Chains inside chains are flattened and neighbouring projections
    merged, so the grouping makes no difference. `Chain(clip=ClipByGlobalNorm(1.0),
    adam=AdamW(3e-4))` names members: `optim["adam"]`, beside `optim[1]`. All members share one
    count. A chain without members changes nothing.

    In `step` the last member's own step is used; a projection at the end is applied to the
    parameters themselves. Wrappers that skip steps belong outside a chain.

    - `members`: the transformations.
    - `names`: the name of each member or `None`, static.

    **Raises** `TypeError` if a member is no transformation (projections and optax's are taken
    too), `ValueError` if a name is given twice.
    """

    members: tuple[AbstractTransform, ...]
    names: tuple[str | None, ...] = eqx.field(static=True)

    def __init__(self, *members: Any, **named: Any):
        pairs: list[tuple[str | None, AbstractTransform]] = []
        for name, given in [*((None, m) for m in members), *named.items()]:
            member = as_transform(given)
            if isinstance(member, Chain) and name is None:
                pairs += zip(member.names, member.members, strict=True)
            else:
                pairs.append((name, member))
        pairs = _merge_projects(pairs)
        self.names = tuple(name for name, _ in pairs)
        self.members = tuple(member for _, member in pairs)

    def __check_init__(self) -> None:
        given = [name for name in self.names if name is not None]
        if repeated := [name for name in given if given.count(name) > 1]:
            raise ValueError(f"`Chain(...)` must have distinct names; got `{repeated[0]}` twice.")

    def _init(self, params: Params) -> tuple[Any, ...]:
        return tuple(member._begin(params) for member in self.members)

    def _update(
        self, updates: Updates, state: tuple[Any, ...], params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, tuple[Any, ...]]:
        run = _Run(params, count, extras)
        updates, states = run.update(list(self._flat(state)), updates)
        return updates, self._nested(iter(states))

    def _step(
        self, updates: Updates, state: tuple[Any, ...], params: Params, count: Count, **extras: Any
    ) -> tuple[Params, tuple[Any, ...]]:
        run = _Run(params, count, extras)
        params, states = run.step(list(self._flat(state)), updates)
        return params, self._nested(iter(states))

    def _flat(self, state: tuple[Any, ...]) -> Iterator["_Pair"]:
        for member, inner in zip(self.members, state, strict=True):
            yield from member._flat(inner)

    def _nested(self, states: Iterator[Any]) -> tuple[Any, ...]:
        return tuple(member._nested(states) for member in self.members)

    def _members(self, state: Any, count: Any) -> Iterator[Member]:
        states = [None] * len(self.members) if state is None else state
        for name, member, inner in zip(self.names, self.members, states, strict=True):
            yield Member(name, member, inner, count)

    def __getitem__(self, key: int | str | slice) -> AbstractTransform:
        if isinstance(key, str):
            if key not in self.names:
                known = ", ".join(repr(name) for name in self.names if name is not None) or "none"
                raise KeyError(f"`Chain` has no member named {key!r}; its names are: {known}.")
            return self.members[self.names.index(key)]
        if isinstance(key, slice):
            return _chain_of(list(zip(self.names[key], self.members[key], strict=True)))
        return self.members[key]

    def __iter__(self) -> Iterator[AbstractTransform]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __pdoc__(self, **kwargs: Any) -> wl.AbstractDoc:
        if len(self.members) > 1 and not any(self.names):
            return infix(">>", self.members, **kwargs)
        pairs = zip(self.names, self.members, strict=True)
        return wl.bracketed(
            begin=wl.TextDoc("Chain("),
            docs=[
                wl.pdoc(m, **kwargs) if n is None else wl.TextDoc(f"{n}=") + wl.pdoc(m, **kwargs)
                for n, m in pairs
            ],
            sep=wl.comma,
            end=wl.TextDoc(")"),
            indent=kwargs["indent"],
        )


_Pair: TypeAlias = tuple[AbstractTransform, Any]


@dataclasses.dataclass(frozen=True)
class _Run:
    """One update of a chain: its members in order, neighbouring elementwise ones together."""

    params: Params
    count: Count
    extras: dict[str, Any]

    def update(self, pairs: Sequence[_Pair], updates: Updates) -> tuple[Updates, list[Any]]:
        """The updates that come out, and the new states."""
        updates, states, pending = self._until_pending(pairs, updates)
        if pending:
            updates, new = run_stages(pending, updates, self.params, apply=False)
            states += new
        return updates, states

    def step(self, pairs: Sequence[_Pair], updates: Updates) -> tuple[Params, list[Any]]:
        """The new parameters and the new states."""
        if not pairs:
            return apply_updates(self.params, updates), []
        *front, (last, state) = pairs
        if isinstance(last, Project) and front:
            params, states = self.step(front, updates)
            return last.project(params), [*states, None]
        if not isinstance(last, AbstractElementwise):
            updates, states = self.update(front, updates)
            last = last._at(self.count)
            params, new = last._step(updates, state, self.params, self.count, **self.extras)
            return params, [*states, new]
        updates, states, pending = self._until_pending(pairs, updates)
        params, new = run_stages(pending, updates, self.params, apply=True)
        return params, states + new

    def _until_pending(
        self, pairs: Sequence[_Pair], updates: Updates
    ) -> tuple[Updates, list[Any], list[Stage]]:
        """Runs all but the elementwise members at the end; gives their stages."""
        states: list[Any] = []
        pending: list[Stage] = []
        for member, state in pairs:
            member = member._at(self.count)
            joins = isinstance(member, AbstractElementwise) and not member._reads_updates
            if pending and not joins:
                updates, new = run_stages(pending, updates, self.params, apply=False)
                states, pending = states + new, []
            arguments = (updates, state, self.params, self.count)
            if isinstance(member, AbstractElementwise):
                pending.append(member._stage(*arguments, **self.extras))
            else:
                updates, new = member._update(*arguments, **self.extras)
                states.append(new)
        return updates, states, pending


_Pairs: TypeAlias = list[tuple[str | None, AbstractTransform]]


def _chain_of(pairs: _Pairs) -> Chain:
    names, members = zip(*pairs, strict=True) if pairs else ((), ())
    return replace_fields(Chain(), {"names": tuple(names), "members": tuple(members)})


def _merge_projects(pairs: _Pairs) -> _Pairs:
    """Neighbouring projections of the same leaves as one."""
    merged: _Pairs = []
    for name, member in pairs:
        if merged and isinstance(member, Project) and name is None:
            before_name, before = merged[-1]
            if isinstance(before, Project) and before_name is None and before.where == member.where:
                merged[-1] = (None, Project(before.projection >> member.projection, member.where))
                continue
        merged.append((name, member))
    return merged


def as_transform(given: Any) -> AbstractTransform:
    """The transformation that a member of a chain stands for."""
    if isinstance(given, AbstractTransform):
        return given
    if isinstance(given, AbstractProjection):
        return Project(given)
    if is_optax(given):
        return FromOptax(given)
    hint = ""
    if isinstance(given, type) and issubclass(given, AbstractTransform):
        hint = f" Write `{given.__name__}(...)`: an instance, not the class."
    elif isinstance(given, AbstractSchedule):
        hint = " A schedule is the value of a hyperparameter: `ScaleByLearningRate(schedule)`."
    raise TypeError(
        "A member of a chain must be a transformation, a projection or an optax transformation; "
        f"got {given!r}.{hint}"
    )


def chained(first: Any, second: Any) -> Chain:
    """`first >> second`, flattened."""
    pairs: _Pairs = []
    for given in (first, second):
        chain = Chain(given)
        pairs += zip(chain.names, chain.members, strict=True)
    chain = _chain_of(_merge_projects(pairs))
    chain.__check_init__()
    return chain
