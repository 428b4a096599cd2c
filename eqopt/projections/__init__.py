"""Projections: the nearest tree of a set."""

from .._core.projection import (
    AbstractProjection as AbstractProjection,
    Sequential as Sequential,
)
from ._bounds import (
    Box as Box,
    Hypercube as Hypercube,
    LInfBall as LInfBall,
    NonNegative as NonNegative,
)
from ._l2 import L2Ball as L2Ball, L2Sphere as L2Sphere
from ._simplex import L1Ball as L1Ball, L1Sphere as L1Sphere, Simplex as Simplex
from ._vectors import (
    AbstractPartsProjection as AbstractPartsProjection,
    AbstractVectorProjection as AbstractVectorProjection,
)
