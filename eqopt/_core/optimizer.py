"""Named optimizers: recipes whose fields are the hyperparameters."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from .hyperparam import check_scalars
from .transform import AbstractTransform, Member
from .types import Count, Params, Updates


class AbstractOptimizer(AbstractTransform):
    """A recipe: its fields are hyperparameters, and `build` returns the chain made of them.

    It behaves as that chain. It writes no arithmetic of its own.
    """

    @abstractmethod
    def build(self) -> AbstractTransform:
        """The transformation that this recipe stands for."""

    def _at(self, count: Count) -> AbstractTransform:
        """The recipe as it is: the members of its chain look up their own schedules."""
        check_scalars(self)
        return self

    def _init(self, params: Params) -> Any:
        return self.build()._begin(params)

    def _update(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, Any]:
        return self.build()._at(count)._update(updates, state, params, count, **extras)

    def _step(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Params, Any]:
        return self.build()._at(count)._step(updates, state, params, count, **extras)

    def _flat(self, state: Any) -> Iterator[tuple[AbstractTransform, Any]]:
        yield from self.build()._flat(state)

    def _nested(self, states: Iterator[Any]) -> Any:
        return self.build()._nested(states)

    def _members(self, state: Any, count: Any) -> Iterator[Member]:
        yield Member(None, self.build(), state, count)
