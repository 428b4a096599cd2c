"""`Flatten`: a transformation that sees one vector instead of many leaves."""

import dataclasses
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._core.layout import AbstractJoined, Layout, layout_of
from .._core.leaves import gathered, sharded_like, varying
from .._core.types import Params
from .._core.view import AbstractForm, AbstractView
from .._core.wrapper import Inner


@dataclasses.dataclass(frozen=True)
class _Vectors(AbstractForm):
    """One vector for each dtype, under its name, of the leaves of that dtype one after the other;
    leaves of one dtype that vary over different axes of a mesh are in different ones.

    - `names`: for each leaf, in order, the name of the vector that it is in.
    """

    names: Sequence[str]

    def see(self, tree: PyTree) -> dict[str, Array]:
        leaves = jax.tree.leaves(tree)
        parts: dict[str, list[Any]] = {}
        for name, leaf in zip(self.names, leaves, strict=True):
            parts.setdefault(name, []).append(leaf)
        return {name: _joined(found) for name, found in parts.items()}

    def whole(self, seen: PyTree, tree: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(tree)
        places: dict[str, list[int]] = {}
        for i, name in enumerate(self.names):
            places.setdefault(name, []).append(i)
        for name, indices in places.items():
            ends = accumulate(math.prod(leaves[i].shape) for i in indices)
            for i, x in zip(indices, jnp.split(seen[name], list(ends)[:-1]), strict=True):
                new = x.reshape(leaves[i].shape).astype(leaves[i].dtype)
                leaves[i] = sharded_like(new, leaves[i])
        return jax.tree.unflatten(treedef, leaves)


def _joined(leaves: Sequence[Array]) -> Array:
    with jax.numpy_dtype_promotion("standard"):  # gradients may be of several dtypes
        return jnp.concatenate([jnp.ravel(gathered(x)) for x in leaves])


class FlattenState(AbstractJoined):
    """- `inner_state`: what the inner transformation remembers, of the vectors.
    - `layout`: what the vectors hold, in order: the name of the vector, the path and the shape of
      each leaf at `init`; static.
    """

    inner_state: Any
    layout: Layout = eqx.field(default=(), static=True)

    def _holds(self) -> Layout:
        return self.layout


class Flatten(AbstractView):
    """Applies a transformation to the leaves joined to one vector for each dtype.

    The inner transformation sees a dict such as `{"float32": vector}`, by the dtypes of the
    parameters (of the updates where there are none); each leaf gets its shape and its dtype back.
    What goes by leaf, such as a trust ratio, so goes by vector, and there are neither paths,
    layers nor matrices to select inside. With many small leaves it is fewer operations, but each
    number is copied: under `jax.jit` it is rarely faster. Explicitly sharded leaves are gathered;
    inside `jax.shard_map` those of one dtype that vary over different axes are in different
    vectors, such as `"float32[]"` and `"float32[data]"`. The state knows which leaves are in a
    vector, so that it is not taken for one of other leaves with as many numbers.

    - `inner`: the transformation of the vectors.
    """

    inner: Inner

    _state_type: ClassVar[Any] = FlattenState

    def _init(self, params: Params) -> FlattenState:
        layout = layout_of(self._form(params).names, params)
        return FlattenState(super()._init(params).inner_state, layout)

    def _form(self, like: PyTree) -> _Vectors:
        leaves = jax.tree.leaves(like)
        kinds = [(leaf.dtype.name, varying(leaf)) for leaf in leaves]
        found = dict.fromkeys(kinds)
        alone = {name for name, _ in found if sum(name == other for other, _ in found) == 1}
        return _Vectors([name if name in alone else _named(name, axes) for name, axes in kinds])


def _named(name: str, axes: frozenset[str]) -> str:
    return f"{name}[{','.join(sorted(axes))}]"
