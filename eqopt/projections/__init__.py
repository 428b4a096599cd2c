"""Projections: the nearest tree of a set."""

from .._core.projection import (
    AbstractProjection as AbstractProjection,
    Sequential as Sequential,
)
from ._affine import Affine as Affine, Polyhedron as Polyhedron
from ._bounds import (
    Box as Box,
    Hypercube as Hypercube,
    LInfBall as LInfBall,
    NonNegative as NonNegative,
)
from ._intersection import Intersection as Intersection
from ._l2 import L2Ball as L2Ball, L2Sphere as L2Sphere
from ._linear import Halfspace as Halfspace, Hyperplane as Hyperplane, Vector as Vector
from ._matrices import PSD as PSD, Orthogonal as Orthogonal
from ._monotone import Monotone as Monotone
from ._simplex import L1Ball as L1Ball, L1Sphere as L1Sphere, Simplex as Simplex
from ._transport import TransportPolytope as TransportPolytope
from ._vectors import (
    AbstractPartsProjection as AbstractPartsProjection,
    AbstractVectorProjection as AbstractVectorProjection,
)
