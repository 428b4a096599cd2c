"""Rescaling updates by norms."""

from typing import Any, ClassVar

from jaxtyping import Array, Float

from .._core.arithmetic import safe_divide
from .._core.elementwise import AbstractStateless
from .._core.hyperparam import NonNegative
from .._core.leafwise import Stage
from .._core.norms import global_norm
from .._core.types import Count, Leaf, Updates


class NormalizeByGlobalNorm(AbstractStateless):
    r"""Normalised updates: $u = s\, g / (\lVert g \rVert + \epsilon)$, and 0 at 0.

    The updates are projected onto the sphere of radius $s$, also where their norm is below it,
    which clipping does not. `NormalizeByGlobalNorm() >> ScaleByLearningRate(lr)` is normalised
    gradient descent (Nesterov 1984; Cortes 2006), `ScaleByAdam() >> NormalizeByGlobalNorm() >>
    ScaleByLearningRate(lr)` normalised Adam. Counterpart of optax's `normalize` and
    `normalize_by_update_norm`.

    - `scale`: the radius $s$, at least 0.
    - `eps`: $\epsilon$, at least 0.
    """

    scale: NonNegative = 1.0
    eps: NonNegative = 0.0

    _reads_updates: ClassVar[bool] = True

    def _stage(
        self, updates: Updates, state: None, params: Any, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule, scalars=(global_norm(updates),))

    def _rule(self, norm: Float[Array, ""], g: Leaf) -> Leaf:
        return g * safe_divide(self.scale, norm + self.eps)
