"""Wrappers: transformations that hold another one, in the field `inner`."""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from equinox import AbstractVar
from jaxtyping import Array, Bool

from .apply import apply_updates
from .chain import as_transform
from .component import AbstractConverter
from .gate import gate
from .leaves import zeros_like
from .transform import AbstractTransform, Member, replace_fields
from .types import Count, Params, Updates


class _AsInner(AbstractConverter):
    def convert(self, label: str, value: Any) -> AbstractTransform:
        try:
            return as_transform(value)
        except TypeError as error:
            reason = str(error).removeprefix("A member of a chain must be ")
            raise TypeError(f"{label} must be {reason}") from None


Inner: TypeAlias = Annotated[Any, _AsInner()]
"""The transformation inside a wrapper; projections and optax's transformations are taken too."""


_NO_KEYWORDS = frozenset({"updates", "state", "params", "count"})  # arguments of their own


def check_predicate(label: str, predicate: Any, *arguments: str, forwards: bool = True) -> None:
    """Raises `TypeError` for what cannot be called, or not with these positional arguments and
    keywords of an update.

    - `forwards`: whether it is given keywords at all.
    """
    if not callable(predicate):
        raise TypeError(f"{label} must be a function; got {predicate!r}.")
    if (signature := _signature(predicate)) is None:
        return
    wanted = " and ".join(f"`{name}`" for name in arguments)
    needs = needed(predicate, len(arguments))
    try:
        signature.bind(*arguments, **dict.fromkeys(needs))
    except TypeError:
        raise TypeError(
            f"{label} must be a function of {wanted}; got one of `{signature}`."
        ) from None
    for name in sorted(needs):
        if not forwards:
            raise TypeError(
                f"{label} must be a function of {wanted} alone, unless `forward_extras=True`; got "
                f"one of `{signature}`, which needs `{name}`."
            )
        if name in _NO_KEYWORDS:
            raise TypeError(
                f"{label} must be a function of {wanted} and keywords of the update; got one of "
                f"`{signature}`, and `{name}` is no such keyword."
            )


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature, if one can be told."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def keywords_of(function: Callable[..., Any], positional: int) -> dict[str, bool]:
    """The keywords that a function names, and whether it needs each.

    - `positional`: the number of arguments before them.
    """
    signature = _signature(function)
    parameters = list(signature.parameters.values()) if signature else []
    before = sum(x.kind == x.POSITIONAL_ONLY for x in parameters)
    either = [x for x in parameters if x.kind == x.POSITIONAL_OR_KEYWORD]
    named = either[max(positional - before, 0) :]
    named += [x for x in parameters if x.kind == x.KEYWORD_ONLY]
    return {x.name: x.default is x.empty for x in named}


def needed(function: Callable[..., Any], positional: int) -> frozenset[str]:
    """The keywords without which a function cannot be called."""
    named = keywords_of(function, positional)
    return frozenset(name for name, is_needed in named.items() if is_needed)


def forwarded(
    function: Callable[..., Any], positional: int, extras: dict[str, Any]
) -> dict[str, Any]:
    """Of the keywords, those that a function takes."""
    signature = _signature(function)
    kinds = [x.kind for x in signature.parameters.values()] if signature else []
    if signature is None or inspect.Parameter.VAR_KEYWORD in kinds:
        return extras
    named = keywords_of(function, positional)
    return {name: value for name, value in extras.items() if name in named}


def verdict(label: str, answer: Any) -> Bool[Array, ""]:
    """What a predicate returned, as an array; raises `TypeError` unless it is one bool."""
    if not jax.tree_util.all_leaves([answer]) or not eqx.is_array_like(answer):
        raise TypeError(f"{label} must return a scalar bool; got {answer!r}.")
    answer = jnp.asarray(answer)
    if answer.shape != () or answer.dtype != jnp.bool_:
        raise TypeError(
            f"{label} must return a scalar bool; got an array of shape {answer.shape} and dtype "
            f"{answer.dtype}."
        )
    return answer


class AbstractWrapper(AbstractTransform):
    """A transformation that holds another one and shares its count: `inner` is called at each
    update, through its hooks. The state has a field `inner_state`.

    - `inner`: the transformation.
    """

    inner: AbstractVar[Any]

    def _members(self, state: Any, count: Any) -> Iterator[Member]:
        yield Member(None, self.inner, None if state is None else state.inner_state, count)


class AbstractOwnClock(AbstractTransform):
    """A wrapper that may skip or repeat its inner transformation, which so has a count of its own:
    `inner` is called through its public methods. The field `inner_state` of the state is a
    `State`.

    - `inner`: the transformation.
    """

    inner: AbstractVar[Any]

    def _members(self, state: Any, count: Any) -> Iterator[Member]:
        inner = None if state is None else state.inner_state
        yield Member(None, self.inner, inner and inner.inner, inner and inner.count)


class AbstractGated(AbstractOwnClock):
    """A wrapper whose inner transformation acts at some updates only.

    At the others the update is zero, `step` returns the parameters as they are, and the inner
    state stays bit-equal: its count, and with it schedules and bias corrections, stands still.

    - `inner`: the transformation.
    """

    _passes: ClassVar[bool] = False  # whether updates go through where the inner does not act

    @abstractmethod
    def _decide(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Bool[Array, ""], dict[str, Any]]:
        """Whether the inner transformation acts, and the new fields of the state but for
        `inner_state`."""

    def _update(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, Any]:
        acts, new = self._decide(updates, state, params, count, **extras)

        def act(carry: Any) -> Any:
            _, inner_state = carry
            return self.inner(updates, inner_state, params, **extras)

        idle = updates if self._passes else zeros_like(updates)
        result, inner_state = gate(acts, act, (idle, state.inner_state))
        return result, replace_fields(state, {**new, "inner_state": inner_state})

    def _step(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Params, Any]:
        acts, new = self._decide(updates, state, params, count, **extras)

        def act(carry: Any) -> Any:
            params, inner_state = carry
            return self.inner.step(updates, inner_state, params, **extras)

        if self._passes:
            # A gate of its own: parameters computed before the other would be copied into it.
            params = gate(~acts, lambda params: apply_updates(params, updates), params)
        params, inner_state = gate(acts, act, (params, state.inner_state))
        return params, replace_fields(state, {**new, "inner_state": inner_state})
