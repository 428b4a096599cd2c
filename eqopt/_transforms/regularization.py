"""Regularisation: what is added to the updates besides the gradient."""

from typing import Any, ClassVar

from .._core.elementwise import AbstractStateless
from .._core.hyperparam import NonNegative
from .._core.leafwise import Stage
from .._core.selector import Where, chosen
from .._core.types import Count, Leaf, Params, Updates


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

    def _stage(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> Stage:
        where = None if self.where is None else chosen(self.where, params, updates)
        return Stage(self._rule, reads_params=True, where=where)

    def _rule(self, g: Leaf, p: Leaf) -> Leaf:
        return g + self.weight_decay * p
