"""Schedules: values of hyperparameters over the course of training."""

from .._core.schedule import (
    AbstractSchedule as AbstractSchedule,
    Product as Product,
    Sequential as Sequential,
    Sum as Sum,
)
from ._basic import Constant as Constant, FromFunction as FromFunction, Linear as Linear
from ._cosine import CosineDecay as CosineDecay
from ._join import Join as Join
