"""Adam, with decoupled weight decay and with Nesterov's momentum."""

from typing import ClassVar

import equinox as eqx

from .._core.chain import Chain
from .._core.hyperparam import Decay, FloatDtype, NonNegative
from .._core.optimizer import AbstractOptimizer
from .._core.selector import Where
from .._core.transform import AbstractTransform
from .._transforms.moments import ScaleByAdam
from .._transforms.regularization import AddDecayedWeights
from .._transforms.scaling import Scale, ScaleByLearningRate


class Adam(AbstractOptimizer):
    r"""Adam, $u = -\eta\, \hat\mu / (\sqrt{\hat\nu + \epsilon_{root}} + \epsilon)$ (Kingma and
    Ba 2015, algorithm 1).

    - `learning_rate`: $\eta$, at least 0.
    - `b1`: decay rate of the first moment, in [0, 1).
    - `b2`: decay rate of the second moment, in [0, 1).
    - `eps`: added outside the square root, at least 0.
    - `eps_root`: added inside the square root, at least 0.
    - `mu_dtype`: dtype of the first moment, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of the second moment, the parameter's but at least float32 if
      `None`; static.
    """

    learning_rate: NonNegative
    b1: Decay = 0.9
    b2: Decay = 0.999
    eps: NonNegative = 1e-8
    eps_root: NonNegative = 0.0
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)

    def build(self) -> Chain:
        return Chain(_adam(self), ScaleByLearningRate(self.learning_rate))


class AdamW(AbstractOptimizer):
    r"""Adam with decoupled weight decay,
    $u = -\eta\, (\hat\mu / (\sqrt{\hat\nu + \epsilon_{root}} + \epsilon) + \lambda\, p)$
    (Loshchilov and
    Hutter 2019, algorithm 2).

    As in PyTorch and optax the decay is multiplied by the learning rate. The paper multiplies it
    by the schedule's factor alone: that is `independent_decay`, $u = -\eta\, (...) - \lambda\, p$,
    with the factor, if there is one, in a schedule given as `weight_decay`.

    - `learning_rate`: $\eta$, at least 0.
    - `b1`: decay rate of the first moment, in [0, 1).
    - `b2`: decay rate of the second moment, in [0, 1).
    - `eps`: added outside the square root, at least 0.
    - `eps_root`: added inside the square root, at least 0.
    - `weight_decay`: the decay rate, at least 0. PyTorch's default is 1e-2.
    - `decay_where`: the leaves that decay, all if `None`: `eqopt.select.Matrices()` spares
      biases and norms.
    - `independent_decay`: whether the decay is not multiplied by the learning rate; static.
    - `mu_dtype`: dtype of the first moment, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of the second moment, the parameter's but at least float32 if
      `None`; static.
    """

    _name: ClassVar[str | None] = "adamw"

    learning_rate: NonNegative
    b1: Decay = 0.9
    b2: Decay = 0.999
    eps: NonNegative = 1e-8
    eps_root: NonNegative = 0.0
    weight_decay: NonNegative = 1e-4
    decay_where: Where | None = None
    independent_decay: bool = eqx.field(default=False, static=True, kw_only=True)
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)

    def build(self) -> Chain:
        return Chain(_adam(self), *_decayed(self))


class NAdam(AbstractOptimizer):
    r"""Adam with Nesterov's momentum (Dozat 2016, algorithm 2; see `ScaleByAdam`).

    - `learning_rate`: $\eta$, at least 0.
    - `b1`: decay rate of the first moment, in [0, 1).
    - `b2`: decay rate of the second moment, in [0, 1).
    - `eps`: added outside the square root, at least 0.
    - `eps_root`: added inside the square root, at least 0.
    - `mu_dtype`: dtype of the first moment, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of the second moment, the parameter's but at least float32 if
      `None`; static.
    """

    _name: ClassVar[str | None] = "nadam"

    learning_rate: NonNegative
    b1: Decay = 0.9
    b2: Decay = 0.999
    eps: NonNegative = 1e-8
    eps_root: NonNegative = 0.0
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)

    def build(self) -> Chain:
        return Chain(_adam(self, nesterov=True), ScaleByLearningRate(self.learning_rate))


class NAdamW(AbstractOptimizer):
    r"""Adam with Nesterov's momentum (Dozat 2016, algorithm 2; see `ScaleByAdam`) and decoupled
    weight decay (see `AdamW`).

    - `learning_rate`: $\eta$, at least 0.
    - `b1`: decay rate of the first moment, in [0, 1).
    - `b2`: decay rate of the second moment, in [0, 1).
    - `eps`: added outside the square root, at least 0.
    - `eps_root`: added inside the square root, at least 0.
    - `weight_decay`: the decay rate, at least 0. PyTorch's default is 1e-2.
    - `decay_where`: the leaves that decay, all if `None`: `eqopt.select.Matrices()` spares
      biases and norms.
    - `independent_decay`: whether the decay is not multiplied by the learning rate; static.
    - `mu_dtype`: dtype of the first moment, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of the second moment, the parameter's but at least float32 if
      `None`; static.
    """

    _name: ClassVar[str | None] = "nadamw"

    learning_rate: NonNegative
    b1: Decay = 0.9
    b2: Decay = 0.999
    eps: NonNegative = 1e-8
    eps_root: NonNegative = 0.0
    weight_decay: NonNegative = 1e-4
    decay_where: Where | None = None
    independent_decay: bool = eqx.field(default=False, static=True, kw_only=True)
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)

    def build(self) -> Chain:
        return Chain(_adam(self, nesterov=True), *_decayed(self))


def _adam(recipe: Adam | AdamW | NAdam | NAdamW, nesterov: bool = False) -> ScaleByAdam:
    return ScaleByAdam(
        recipe.b1,
        recipe.b2,
        recipe.eps,
        recipe.eps_root,
        mu_dtype=recipe.mu_dtype,
        accumulator_dtype=recipe.accumulator_dtype,
        nesterov=nesterov,
    )


def _decayed(recipe: AdamW | NAdamW) -> tuple[AbstractTransform, ...]:
    decay = AddDecayedWeights(recipe.weight_decay, recipe.decay_where)
    if recipe.independent_decay:
        return Scale(recipe.learning_rate), decay, Scale(-1.0)
    return decay, ScaleByLearningRate(recipe.learning_rate)
