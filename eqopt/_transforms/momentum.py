"""Momentum: a decaying sum of past updates."""

from typing import Any

import equinox as eqx

from .._core.elementwise import AbstractElementwise
from .._core.hyperparam import Decay, FloatDtype
from .._core.leafwise import Stage
from .._core.leaves import zeros_like
from .._core.types import Count, Leaf, Params, Updates


class TraceState(eqx.Module):
    """- `trace`: the decaying sum of the updates, like the parameters."""

    trace: Updates


class Trace(AbstractElementwise):
    r"""Momentum: $t \leftarrow g + \mu\, t$, $u = t$; with Nesterov's look-ahead
    $u = g + \mu\, t$ (Sutskever et al. 2013, equations 1 to 4, with the learning rate taken out).

    There is no dampening: the sum is not weighted by $1 - \mu$.

    - `decay`: $\mu$, in [0, 1).
    - `nesterov`: whether to look ahead; static.
    - `accumulator_dtype`: the dtype of the trace, the parameter's if `None`; static.
    """

    decay: Decay
    nesterov: bool = eqx.field(default=False, static=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True)

    def _init(self, params: Params) -> TraceState:
        return TraceState(zeros_like(params, self.accumulator_dtype))

    def _stage(
        self, updates: Updates, state: TraceState, params: Params, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule, states=(state.trace,), new_state=TraceState)

    def _rule(self, g: Leaf, trace: Leaf) -> tuple[Leaf, Leaf]:
        trace = g + self.decay * trace
        return (g + self.decay * trace if self.nesterov else trace), trace
