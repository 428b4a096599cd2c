"""`Project`: keeps the parameters in a set."""

from typing import Any, ClassVar

import equinox as eqx

from .apply import apply_updates
from .leafwise import leafwise
from .projection import AbstractProjection
from .selector import Where, split
from .transform import AbstractTransform
from .types import Count, Leaf, Params, Updates


class Project(AbstractTransform):
    r"""Keeps the parameters in a set: $u \mapsto P(x + u) - x$ for parameters $x$.

    `optimizer >> projection` builds it. In `step` the new parameters are projected themselves, not
    the update: bounds on elements hold exactly, other sets to rounding. Belongs at the end of a
    chain.

    - `projection`: the projection $P$.
    - `where`: the leaves that are projected, all if `None`; taken together as one tree.
    """

    projection: AbstractProjection
    where: Where | None = None

    def __check_init__(self) -> None:
        if not isinstance(self.projection, AbstractProjection):
            raise TypeError(
                f"`Project(projection=...)` must be a projection; got {self.projection!r}."
            )

    _needs: ClassVar[frozenset[str]] = frozenset({"params"})

    def _init(self, params: Params) -> None:
        return None

    def _update(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, None]:
        projected = self.project(apply_updates(params, updates))
        return leafwise(_difference)(updates, projected, params), None

    def _step(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> tuple[Params, None]:
        return self.project(apply_updates(params, updates)), None

    def project(self, params: Params) -> Params:
        """The parameters, the selected ones projected."""
        chosen, rest = split(self.where, params, params)
        return eqx.combine(self.projection._apply(chosen), rest)


def _difference(update: Leaf, new: Leaf, old: Leaf) -> Leaf:
    return new - old
