"""Projections: the nearest tree of a set."""

from .._core.projection import (
    AbstractProjection as AbstractProjection,
    Sequential as Sequential,
)
from ._l2 import L2Ball as L2Ball, L2Sphere as L2Sphere
from ._orthant import NonNegative as NonNegative
from ._vectors import (
    AbstractPartsProjection as AbstractPartsProjection,
    AbstractVectorProjection as AbstractVectorProjection,
)
