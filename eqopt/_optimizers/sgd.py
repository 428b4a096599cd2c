"""Stochastic gradient descent."""

import equinox as eqx

from .._core.chain import Chain
from .._core.hyperparam import Decay, FloatDtype, NonNegative
from .._core.optimizer import AbstractOptimizer
from .._transforms.momentum import Trace
from .._transforms.scaling import ScaleByLearningRate


class SGD(AbstractOptimizer):
    r"""Stochastic gradient descent, $u = -\eta\, g$, with momentum $u = -\eta\, t$,
    $t \leftarrow g + \mu\, t$ (Sutskever et al. 2013).

    - `learning_rate`: $\eta$, at least 0.
    - `momentum`: $\mu$, in [0, 1); `None` keeps no state.
    - `nesterov`: whether the momentum looks ahead; static.
    - `accumulator_dtype`: the dtype of the momentum, the parameter's if `None`; static.
    """

    learning_rate: NonNegative
    momentum: Decay | None = None
    nesterov: bool = eqx.field(default=False, static=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True)

    def build(self) -> Chain:
        descent = Chain(ScaleByLearningRate(self.learning_rate))
        if self.momentum is None:
            return descent
        return Chain(Trace(self.momentum, self.nesterov, self.accumulator_dtype), descent)
