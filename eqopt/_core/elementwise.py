"""Transformations that are one formula on each leaf."""

import dataclasses
from abc import abstractmethod
from typing import Any, ClassVar

from .arithmetic import increment
from .leafwise import Stage, run_stages
from .transform import AbstractTransform
from .types import Count, Params, Updates


class AbstractElementwise(AbstractTransform):
    """A transformation whose update is one rule on the matching leaves of the updates, its states
    and the parameters.

    A concrete class gives `_stage` in place of `_update`. Chains run the rules of neighbouring
    members together, and the addition to the parameters with them.
    """

    _reads_updates: ClassVar[bool] = False  # whether `_stage` looks at the updates, as for a norm

    @abstractmethod
    def _stage(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> Stage:
        """The rule, with its scalars and states. `updates` are those that the rule will be given
        only where `_reads_updates`; else, inside a chain, those of an earlier member."""

    def _update(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, Any]:
        stage = self._stage(updates, state, params, count, **extras)
        updates, (state,) = run_stages([stage], updates, params, apply=False)
        return updates, state

    def _step(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Params, Any]:
        stage = self._stage(updates, state, params, count, **extras)
        params, (state,) = run_stages([stage], updates, params, apply=True)
        return params, state


class AbstractStateless(AbstractElementwise):
    """An elementwise transformation that remembers nothing."""

    def _init(self, params: Params) -> None:
        return None


class AbstractRecursive(AbstractElementwise):
    """An elementwise transformation whose rule takes the update and the fields of its state, trees
    like the parameters, and returns the new ones: `_rule(update, *fields) -> update, *fields`.
    """

    _counts: ClassVar[bool] = False  # whether the rule is given the update's number, from 1, first
    _reads_params: ClassVar[bool] = False  # whether the rule is given the parameter, last
    _order: ClassVar[tuple[int, ...] | None] = None  # of writing states; see `Stage`

    @abstractmethod
    def _rule(self, *args: Any, **kwargs: Any) -> Any:
        """The formula on arrays."""

    def _stage(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> Stage:
        return Stage(
            self._rule,
            scalars=(increment(count),) if self._counts else (),
            states=tuple(getattr(state, field.name) for field in dataclasses.fields(state)),
            new_state=type(state),
            reads_params=self._reads_params,
            order=self._order,
        )
