"""What a transformation is: `AbstractTransform`, the boundary that all share, and its `State`.

The public methods are the boundary: they look at what the user gave, keep what is trained, and
call the hooks. Hooks call hooks, with one count: the clock of the whole transformation. A wrapper
that may skip or repeat its inner transformation calls the inner's public methods instead, which
gives the inner a clock of its own.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from . import boundary
from .apply import apply_updates
from .arithmetic import increment
from .component import Component
from .hyperparam import check_scalars, own_numbers, own_rows
from .leaves import trained
from .schedule import AbstractSchedule
from .types import Count, OptState, Params, Updates


class State(eqx.Module):
    """The state of a transformation.

    - `count`: the number of updates seen, an int32 scalar that saturates: the one clock of the
      transformation, for its schedules and its bias corrections.
    - `inner`: what the transformation itself remembers; `None` if nothing.
    """

    count: Count
    inner: Any


class Member(NamedTuple):
    """A transformation inside another: its name, itself, its state, its count, and what it sees of
    the parameters, where that is not all of them as they are."""

    name: str | None
    transform: "AbstractTransform"
    state: Any
    count: Any
    sees: Callable[[Params], Any] | None = None


# Set while the hooks of a public method run: what is inside need not check again.
_inside: ContextVar[bool] = ContextVar("eqopt_inside", default=False)


@contextmanager
def _hooks() -> Iterator[None]:
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


class AbstractTransform(Component):
    """A gradient transformation: an immutable module with hyperparameters as its fields.

    A concrete class gives `_init` and `_update` and, where it can do better than the default,
    `_step` and `_eval_params`. Inside these hooks each schedule among the fields has been
    replaced by its value at the count.
    """

    _needs: ClassVar[frozenset[str]] = frozenset()  # keywords without which no update is possible
    _takes: ClassVar[frozenset[str] | None] = frozenset()  # further keywords; None is any
    _real_only: ClassVar[bool] = False  # whether the algorithm has no complex form
    # The count by which schedules in a field go, from the state, where it is not the domain's.
    _clocks: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    _name: ClassVar[str | None] = None  # optax's name, where it is not the class's in snake_case

    # ---- hooks: what a concrete class fills in

    @abstractmethod
    def _init(self, params: Params) -> Any:
        """The state at `params`, whose leaves are float or complex arrays."""

    @abstractmethod
    def _update(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, Any]:
        """One update and the new state; `count` updates came before."""

    def _step(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Params, Any]:
        """The new parameters and the new state."""
        updates, state = self._update(updates, state, params, count, **extras)
        return apply_updates(params, updates), state

    def _eval_params(self, state: Any, params: Params, count: Count) -> Params:
        """The parameters to evaluate with; `count` updates came before."""
        for member in self._members(state, count):
            inner = member.transform._at(member.count)
            params = inner._eval_params(member.state, params, member.count)
        return params

    def _members(self, state: Any, count: Any) -> Iterator[Member]:
        """The transformations inside this one. `state` and `count` may be `None`."""
        yield from ()

    def _flat(self, state: Any) -> Iterator[tuple["AbstractTransform", Any]]:
        """The members that are called one after the other, each with its state."""
        yield self, state

    def _nested(self, states: Iterator[Any]) -> Any:
        """The state made of the states of the members that `_flat` gives."""
        return next(states)

    # ---- the boundary: not to be overridden

    def init(self, params: Params) -> OptState:
        """The state at the start of training.

        - `params`: the parameters, such as a whole model; what is not a float or complex array is
          left alone. On `jax.ShapeDtypeStruct`s the state's structs come back.

        **Raises** `ValueError` if `params` has leaves but no float array.
        """
        if boundary.has_structs(params):
            return boundary.abstractly(self.init, params)
        tree = trained(params)
        if _inside.get():
            return self._initial_state(tree)
        boundary.check_params(self, params, tree)
        boundary.check_inside(self, tree)
        return boundary.without_aliases(self._initial_state(tree), (params, self))

    def _initial_state(self, params: Params) -> State:
        with _hooks():
            return State(jnp.zeros((), jnp.int32), self._begin(params))

    def __call__(
        self, updates: Updates, state: OptState, params: Params | None = None, **extras: Any
    ) -> tuple[Updates, OptState]:
        """One update: what is to be added to the parameters, and the new state.

        - `updates`: the gradients, with `None` where nothing is trained.
        - `state`: what `init` or the previous update returned.
        - `params`: the parameters, for transformations that need them.
        - `extras`: `value`, `grad`, `value_fn` and what else a transformation asks for.

        **Raises** `ValueError` or `TypeError`, before anything is computed, if the trees don't
        match, if something needed is missing, or if a keyword is unknown.
        """
        updates, params, extras = self._enter(updates, state, params, extras)
        with _hooks():
            updates, inner = self._at(state.count)._update(
                updates, state.inner, params, state.count, **extras
            )
        return updates, State(increment(state.count), inner)

    update = __call__

    def step(
        self, grads: Updates, state: OptState, params: Params, **extras: Any
    ) -> tuple[Params, OptState]:
        """One update, applied: the new parameters and the new state.

        Takes what `__call__` takes. Leaves of `params` that are not trained come back as they are.
        """
        if params is None and grads is not None:
            raise TypeError(f"`{type(self).__name__}.step(params=...)` must be the parameters.")
        updates, kept, extras = self._enter(grads, state, params, extras)
        with _hooks():
            new, inner = self._at(state.count)._step(
                updates, state.inner, kept, state.count, **extras
            )
        return eqx.combine(new, params), State(increment(state.count), inner)

    def eval_params(self, state: OptState, params: Params) -> Params:
        """The parameters to evaluate with: `params` itself, or an average where one is kept."""
        boundary.check_state_type(self, state, State)
        with _hooks():
            new = self._at(state.count)._eval_params(state.inner, trained(params), state.count)
        return eqx.combine(new, params)

    def __rshift__(self, other: Any) -> "AbstractTransform":
        from .chain import chained  # a chain is a transformation itself

        return chained(self, other)

    def __rrshift__(self, other: Any) -> "AbstractTransform":
        from .chain import chained  # as above

        return chained(other, self)

    # ---- how hooks are reached

    def _at(self, count: Count) -> "AbstractTransform":
        """This transformation at a count: each schedule among its fields is now its value, but for
        those that go by another clock."""
        check_scalars(self)
        values = {
            name: value(count)
            for name, value in own_numbers(self).items()
            if isinstance(value, AbstractSchedule) and name not in self._clocks
        }
        values |= {name: at_count(rows, count) for name, rows in own_rows(self).items()}
        return replace_fields(self, values) if values else self

    def _begin(self, params: Params) -> Any:
        """The state of this transformation at the start: `_init` at count 0."""
        return self._at(jnp.zeros((), jnp.int32))._init(params)

    def _enter(
        self, updates: Updates, state: OptState, params: Params | None, extras: dict[str, Any]
    ) -> tuple[Updates, Params | None, dict[str, Any]]:
        """Checks what an update was given, and keeps what is trained."""
        boundary.check_state_type(self, state, State)
        kept = trained(updates)
        if params is not None:
            name = type(self).__name__
            boundary.check_kinds(name, updates, kept, params)
            params_kept = boundary.match_params(name, kept, trained(params))
        else:
            params_kept = None
        if not _inside.get():
            boundary.check_extras(self, kept, params_kept, extras)
            boundary.check_state(self, kept, params_kept, state.inner)
        return kept, params_kept, boundary.plain_extras(extras, params)


def at_count(value: Any, count: Count) -> Any:
    """A hyperparameter, or rows of them, with the schedules evaluated."""

    def is_schedule(x: Any) -> bool:
        return isinstance(x, AbstractSchedule)

    return jax.tree.map(lambda x: x(count) if is_schedule(x) else x, value, is_leaf=is_schedule)


def replace_fields(module: Any, values: dict[str, Any]) -> Any:
    """A copy with other values in some fields, without the checks of construction."""
    new = object.__new__(type(module))
    for field in dataclasses.fields(module):
        value = values.get(field.name, getattr(module, field.name))
        object.__setattr__(new, field.name, value)
    return new
