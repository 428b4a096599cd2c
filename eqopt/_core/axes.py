"""`axes`: which axes of a leaf are out, in, spatial or stacked.

Everything that treats rows, units or matrices asks here. The answer comes from Equinox's layer
types, so it is right for models built of them, also when layers are stacked with
`eqx.filter_vmap`; other trees are told by explicit rules.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeAlias

import equinox as eqx
import jax
from jaxtyping import PyTree

from .leaves import is_trained, paths_and_leaves
from .selector import AbstractSelector, aligned


@dataclasses.dataclass(frozen=True)
class Axes:
    """The axes of one leaf, counted from 0.

    - `out`: axes of outputs (units, rows of a matrix).
    - `in_`: axes of inputs (columns).
    - `spatial`: axes of a convolution's kernel.
    - `stacked`: leading axes along which whole layers are stacked.
    """

    out: tuple[int, ...] = ()
    in_: tuple[int, ...] = ()
    spatial: tuple[int, ...] = ()
    stacked: tuple[int, ...] = ()

    @property
    def is_matrix(self) -> bool:
        """Whether the leaf has an axis in and an axis out."""
        return bool(self.out and self.in_)

    def layer(self, ndim: int) -> tuple[int, ...]:
        """The axes, of `ndim`, along which one layer lies: all but the stacked ones."""
        return tuple(axis for axis in range(ndim) if axis not in self.stacked)

    def unit(self, ndim: int) -> tuple[int, ...]:
        """The axes, of `ndim`, along which the weights of one unit lie: those of the layer without
        the out ones. Where nothing comes in, as in a bias, the layer is one unit."""
        apart = self.out if self.is_matrix else ()
        return tuple(axis for axis in self.layer(ndim) if axis not in apart)


AxesRules: TypeAlias = tuple[tuple[AbstractSelector, Axes], ...]
"""Explicit answers: pairs of a selector and the axes of what it selects, first match first."""

# How each layer type stores its arrays: name of the leaf -> (out axes, in axes, spatial from).
# Counted without stacked axes; a name that is missing is a vector of the layer's outputs.
_MATRIX = Axes(out=(0,), in_=(1,))


def _layer_axes(layer: Any, name: str, ndim: int) -> Axes:
    """The axes of one array of a known layer, before stacking is counted in."""
    if ndim == 0:
        return Axes()
    if isinstance(layer, eqx.nn.Conv | eqx.nn.ConvTranspose):
        spatial = tuple(range(2, 2 + layer.num_spatial_dims))
        kernel = Axes(out=(0,), in_=(1,), spatial=spatial)
        return (
            kernel
            if name == "weight"
            else Axes(out=(0,), spatial=tuple(axis - 1 for axis in spatial))
        )
    if isinstance(layer, eqx.nn.Embedding):
        return Axes(out=(1,), in_=(0,))
    if isinstance(layer, eqx.nn.Linear) and name == "weight":
        return _MATRIX
    if isinstance(layer, eqx.nn.GRUCell | eqx.nn.LSTMCell) and name in ("weight_ih", "weight_hh"):
        return _MATRIX
    if isinstance(layer, eqx.nn.LayerNorm | eqx.nn.RMSNorm):
        shape = getattr(layer, "shape", (0,))
        return Axes(out=tuple(range(len(shape))))
    return Axes(out=(0,))


_LAYERS = (
    eqx.nn.Linear,
    eqx.nn.Conv,
    eqx.nn.ConvTranspose,
    eqx.nn.Embedding,
    eqx.nn.GRUCell,
    eqx.nn.LSTMCell,
    eqx.nn.LayerNorm,
    eqx.nn.RMSNorm,
    eqx.nn.GroupNorm,
    eqx.nn.BatchNorm,
    eqx.nn.PReLU,
)


def _is_layer(x: Any) -> bool:
    return isinstance(x, (*_LAYERS, eqx.nn.WeightNorm))


def _stack(axes: Axes, ndim: int) -> Axes:
    """The same axes behind the leading ones by which `ndim` exceeds them."""
    extra = ndim - len(axes.out) - len(axes.in_) - len(axes.spatial)
    if extra <= 0:
        return axes

    def shift(given: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(axis + extra for axis in given)

    return Axes(shift(axes.out), shift(axes.in_), shift(axes.spatial), tuple(range(extra)))


def _array_axes(x: Any) -> Axes:
    """The guess for an array outside any known layer: a matrix is (out, in), as in Equinox."""
    return _MATRIX if x.ndim == 2 else Axes(out=(0,)) if x.ndim == 1 else Axes()


def _leaf_name(path: tuple[Any, ...]) -> str:
    return getattr(path[-1], "name", "") if path else ""


def _decide(nodes: Iterable[Any]) -> Iterable[Axes]:
    for node in nodes:
        if not _is_layer(node):
            if is_trained(node):
                yield _array_axes(node)
            continue
        if isinstance(node, eqx.nn.WeightNorm):
            yield from _wrapped(node)
            continue
        for path, leaf in jax.tree_util.tree_flatten_with_path(node)[0]:
            if is_trained(leaf):
                if len(path) > 1:  # not the layer's own array, such as a low-rank weight
                    yield _array_axes(leaf)
                else:
                    yield _stack(_layer_axes(node, _leaf_name(path), leaf.ndim), leaf.ndim)


def _wrapped(node: Any) -> Iterable[Axes]:
    """Those of the layer within a weight normalisation, and of the gains, which are a vector of
    the outputs in the form of the weight."""
    inside = iter(list(_decide(jax.tree.leaves(node.layer, is_leaf=_is_layer))))
    for path, leaf in jax.tree_util.tree_flatten_with_path(node)[0]:
        if is_trained(leaf) and path[0].name == "layer":
            yield next(inside)
        elif is_trained(leaf):
            out = () if node.axis is None else (node.axis,)
            weight = getattr(node.layer, "num_spatial_dims", 0) + 2  # axes of the weight
            rest = tuple(axis for axis in range(weight) if axis not in out)
            yield _stack(Axes(out, spatial=rest), leaf.ndim) if leaf.ndim else Axes()


def axes(tree: PyTree, rules: AxesRules = ()) -> PyTree:
    """The `Axes` of each float array of `tree`, in its structure, with `None` elsewhere.

    Equinox's `Linear` is (out, in), `Conv` and `ConvTranspose` (out, in, spatial...),
    `Embedding` (in, out), the weights of `GRUCell` and `LSTMCell` (out, in); the gains of
    `WeightNorm` are no matrix. Leading axes beyond those are stacked layers. Outside these layers
    an array of two axes is (out, in), one of one axis (out,), any other has no axes.

    - `rules`: pairs of a selector and the axes of the leaves that it selects; they come first.
    """
    nodes = jax.tree.leaves(tree, is_leaf=_is_layer)
    decided = list(_decide(nodes))
    for where, given in reversed(rules):
        hits = jax.tree.leaves(where(tree))
        _check_fit(given, tree, hits)
        decided = [given if hit else old for hit, old in zip(hits, decided, strict=True)]
    found, treedef = jax.tree.flatten(tree)
    answers = iter(decided)
    return jax.tree.unflatten(treedef, [next(answers) if is_trained(x) else None for x in found])


def _check_fit(given: Axes, tree: PyTree, hits: list[bool]) -> None:
    """The axes that a rule gives are axes of the leaves that it selects, each named once."""
    named = (*given.out, *given.in_, *given.spatial, *given.stacked)
    trained = [(path, leaf) for path, leaf in paths_and_leaves(tree) if is_trained(leaf)]
    for (path, leaf), hit in zip(trained, hits, strict=True):
        wrong = [a for a in named if not 0 <= a < len(leaf.shape) or named.count(a) > 1]
        if hit and wrong:
            raise ValueError(
                f"`rules` must name axes of the leaves that they select, from 0 and each once; got "
                f"{given} for `{path}` of shape {tuple(leaf.shape)}."
            )


def leaf_axes(rules: AxesRules, like: PyTree, tree: PyTree) -> list[Axes]:
    """The `Axes` of each leaf of `tree`, in order.

    - `like`: the tree whose layer types are looked at; it has at least the leaves of `tree`.
    """
    return aligned(jax.tree.leaves(axes(like, rules)), like, tree)
