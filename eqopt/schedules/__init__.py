"""Schedules: values of hyperparameters over the course of training."""

from .._core.schedule import (
    AbstractSchedule as AbstractSchedule,
    Product as Product,
    Sequential as Sequential,
    Sum as Sum,
)
from ._basic import (
    Constant as Constant,
    FromFunction as FromFunction,
    Linear as Linear,
    Polynomial as Polynomial,
)
from ._cosine import CosineDecay as CosineDecay
from ._cycles import (
    SGDR as SGDR,
    CosineOneCycle as CosineOneCycle,
    LinearOneCycle as LinearOneCycle,
)
from ._decay import ExponentialDecay as ExponentialDecay, InverseSqrt as InverseSqrt
from ._join import Join as Join
from ._piecewise import (
    PiecewiseConstant as PiecewiseConstant,
    PiecewiseInterpolate as PiecewiseInterpolate,
)
from ._plot import plot as plot
from ._warmup import (
    WSD as WSD,
    WarmupConstant as WarmupConstant,
    WarmupCosineDecay as WarmupCosineDecay,
    WarmupExponentialDecay as WarmupExponentialDecay,
)
