"""Views: wrappers whose inner transformation sees the trees in another form.

A form says what the inner transformation sees of a tree, some of its leaves or the same numbers in
another layout, and how what it returns goes back. It is made from one tree, the parameters where
there are any, and then used for all that are like it: updates, parameters, `grad`.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
from jaxtyping import PyTree

from .boundary import match_params
from .leaves import select_leaves, trained
from .transform import AbstractTransform, Member, replace_fields
from .types import Count, Params, Updates
from .wrapper import AbstractWrapper


class AbstractForm(ABC):
    """A form in which trees are seen."""

    @abstractmethod
    def see(self, tree: PyTree) -> PyTree:
        """What is seen of a tree."""

    @abstractmethod
    def whole(self, seen: PyTree, tree: PyTree) -> PyTree:
        """What was seen of `tree` and is now `seen`, back in the structure and the dtypes of
        `tree`; leaves that are not seen are those of `tree`."""


@dataclasses.dataclass(frozen=True)
class Chosen(AbstractForm):
    """Some of the leaves, with `None` for the others.

    - `hits`: one bool for each leaf, in order.
    """

    hits: Sequence[bool]

    def see(self, tree: PyTree) -> PyTree:
        return select_leaves(tree, self.hits)

    def whole(self, seen: PyTree, tree: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(tree)
        new = iter(jax.tree.leaves(seen))
        pairs = zip(leaves, self.hits, strict=True)
        return jax.tree.unflatten(treedef, [next(new) if hit else leaf for leaf, hit in pairs])

    def others(self) -> "Chosen":
        """The form in which the other leaves are seen."""
        return Chosen([not hit for hit in self.hits])


@dataclasses.dataclass(frozen=True)
class Inside:
    """One update of a transformation that sees the trees in a form.

    - `transform`: the transformation.
    - `form`: the form.
    - `state`: its state.
    """

    transform: AbstractTransform
    form: AbstractForm
    state: Any

    def update(
        self, updates: Updates, params: Params, count: Count, extras: dict[str, Any]
    ) -> tuple[PyTree, Any]:
        """The update as the transformation sees it, and its new state."""
        inner, arguments, extras = self._enter(updates, params, count, extras)
        return inner._update(*arguments, **extras)

    def step(
        self, updates: Updates, params: Params, count: Count, extras: dict[str, Any]
    ) -> tuple[PyTree, Any]:
        """The new parameters as the transformation sees them, and its new state."""
        inner, arguments, extras = self._enter(updates, params, count, extras)
        return inner._step(*arguments, **extras)

    def eval_params(self, params: Params, count: Count) -> Params:
        """The parameters to evaluate with."""
        inner = self.transform._at(count)
        return self.form.whole(inner._eval_params(self.state, self.form.see(params), count), params)

    def _enter(
        self, updates: Updates, params: Params, count: Count, extras: dict[str, Any]
    ) -> tuple[AbstractTransform, tuple[Any, ...], dict[str, Any]]:
        inner, form, extras = self.transform._at(count), self.form, dict(extras)
        if extras.get("grad") is not None:
            grad = match_params(type(inner).__name__, updates, trained(extras["grad"]))
            extras["grad"] = form.see(grad)
        if extras.get("value_fn") is not None and params is not None:
            value_fn = extras["value_fn"]
            extras["value_fn"] = lambda seen, *args, **kwargs: value_fn(
                form.whole(seen, params), *args, **kwargs
            )
        seen = None if params is None else form.see(params)
        return inner, (form.see(updates), self.state, seen, count), extras


class AbstractView(AbstractWrapper):
    """A wrapper whose inner transformation sees the trees in a form, and shares the count.

    - `inner`: the transformation.
    """

    _state_type: ClassVar[Any]  # a module with the field `inner_state`; others are static

    @abstractmethod
    def _form(self, like: PyTree) -> AbstractForm:
        """The form for trees like `like`: the parameters, or updates where there are none."""

    def _rest_updates(self, form: Any, updates: Updates) -> Updates:
        """The updates, as they come out where the inner transformation does not see them."""
        return updates

    def _rest_params(self, form: Any, updates: Updates, params: Params) -> Params:
        """The parameters, as a step leaves them where the inner transformation does not see
        them."""
        return params

    def _init(self, params: Params) -> Any:
        return self._state_type(self.inner._begin(self._form(params).see(params)))

    def _update(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, Any]:
        form = self._form(updates if params is None else params)
        inside = Inside(self.inner, form, state.inner_state)
        seen, inner_state = inside.update(updates, params, count, extras)
        new = form.whole(seen, self._rest_updates(form, updates))
        return new, replace_fields(state, {"inner_state": inner_state})

    def _step(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Params, Any]:
        form = self._form(params)
        inside = Inside(self.inner, form, state.inner_state)
        seen, inner_state = inside.step(updates, params, count, extras)
        new = form.whole(seen, self._rest_params(form, updates, params))
        return new, replace_fields(state, {"inner_state": inner_state})

    def _eval_params(self, state: Any, params: Params, count: Count) -> Params:
        return Inside(self.inner, self._form(params), state.inner_state).eval_params(params, count)

    def _members(self, state: Any, count: Any) -> Iterator[Member]:
        def sees(params: Params) -> PyTree:
            return self._form(params).see(params)

        yield Member(None, self.inner, state and state.inner_state, count, sees)
