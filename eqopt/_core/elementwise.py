"""Transformations that are one formula on each leaf."""

from abc import abstractmethod
from typing import Any, ClassVar

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
