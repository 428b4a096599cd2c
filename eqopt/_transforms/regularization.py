"""Regularisation: what is added to the updates besides the gradient."""

from typing import Any, ClassVar

import equinox as eqx

from .._core.hyperparam import NonNegative
from .._core.leafwise import leafwise
from .._core.selector import Where, split
from .._core.types import Count, Leaf, Params, Updates
from .scaling import AbstractStateless


class AddDecayedWeights(AbstractStateless):
    r"""Adds the parameters, times a rate: $u = g + \lambda\, p$.

    After the rescaling of an adaptive method this is decoupled weight decay (Loshchilov and Hutter
    2019, algorithm 2, line 12), before it an L2 penalty of $\lambda / 2$.

    - `weight_decay`: $\lambda$, at least 0.
    - `where`: the leaves that decay, all if `None`.
    """

    weight_decay: NonNegative = 0.0
    where: Where | None = None

    _needs: ClassVar[frozenset[str]] = frozenset({"params"})

    def _update(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, None]:
        decayed, rest = split(self.where, params, updates)
        chosen, _ = split(self.where, params, params)
        return eqx.combine(leafwise(self._rule)(decayed, chosen), rest), state

    def _rule(self, g: Leaf, p: Leaf) -> Leaf:
        return g + self.weight_decay * p
