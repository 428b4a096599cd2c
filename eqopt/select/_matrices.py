"""Leaves by their number of axes, by what these axes are, and by their dtype."""

import equinox as eqx
import jax
from jaxtyping import PyTree

from .._core.axes import AxesRules, axes
from .._core.hyperparam import InexactDtype
from .._core.selector import AbstractSelector


class Matrices(AbstractSelector):
    """The leaves with an in and an out axis: weights of linear, convolutional, recurrent and
    embedding layers, not biases and norms.

    The axes come from Equinox's layer types (see `axes`), so layers stacked with
    `eqx.filter_vmap` are decided like single ones. Outside these layers an array of two axes
    counts as a matrix.

    - `rules`: explicit axes for other trees, pairs of a selector and an `Axes`; static.
    """

    rules: AxesRules = eqx.field(default=(), static=True)

    def _select(self, tree: PyTree) -> list[bool]:
        return [leaf_axes.is_matrix for leaf_axes in jax.tree.leaves(axes(tree, self.rules))]

    def _goes_by_dtype(self) -> bool:
        return any(where._goes_by_dtype() for where, _ in self.rules)


class Ndim(AbstractSelector):
    """The leaves with a given number of axes.

    Stacked axes are counted too; `Matrices` knows them apart.

    - `ndim`: the number of axes, at least 0; static.
    """

    ndim: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if isinstance(self.ndim, bool) or not isinstance(self.ndim, int) or self.ndim < 0:
            raise ValueError(
                f"`Ndim(ndim=...)` must be an integer of at least 0; got {self.ndim!r}."
            )

    def _select(self, tree: PyTree) -> list[bool]:
        return [leaf.ndim == self.ndim for leaf in jax.tree.leaves(tree)]


class Dtype(AbstractSelector):
    """The leaves of a dtype: `Dtype(jnp.bfloat16)`.

    It is the dtype of the parameter: gradients may have another one, so an update that has to
    decide by it needs `params`.

    - `dtype`: a real or complex floating dtype, static.
    """

    dtype: InexactDtype = eqx.field(static=True)

    def _select(self, tree: PyTree) -> list[bool]:
        return [leaf.dtype == self.dtype for leaf in jax.tree.leaves(tree)]

    def _goes_by_dtype(self) -> bool:
        return True
