"""Selectors: which leaves of a model something applies to."""

from .._core.axes import Axes as Axes, axes as axes
from .._core.selector import (
    AbstractSelector as AbstractSelector,
    Everything as Everything,
    Nothing as Nothing,
)
from ._describe import describe as describe, describe_axes as describe_axes
from ._matrices import Dtype as Dtype, Matrices as Matrices, Ndim as Ndim
from ._path import At as At, Layer as Layer, Path as Path
