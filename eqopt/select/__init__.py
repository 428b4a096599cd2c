"""Selectors: which leaves of a model something applies to."""

from .._core.axes import Axes as Axes, axes as axes
from .._core.selector import AbstractSelector as AbstractSelector, Everything as Everything
from ._describe import describe as describe, describe_axes as describe_axes
from ._matrices import Matrices as Matrices, Ndim as Ndim
from ._path import Path as Path
