"""States of vectors joined from leaves know which leaves: as many numbers are not enough."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
from jaxtyping import PyTree

from .leaves import paths_and_leaves

Layout: TypeAlias = tuple[tuple[str, str, tuple[int, ...]], ...]
"""For each leaf, in order: the name of the vector that it is in, its path and its shape."""


class AbstractJoined(eqx.Module):
    """A state whose arrays are like vectors joined from leaves."""

    @abstractmethod
    def _holds(self) -> Layout:
        """What is in the vectors; the same in all states of one training."""


def layout_of(names: Sequence[str], tree: PyTree) -> Layout:
    """The layout of the leaves of a tree.

    - `names`: for each leaf, in order, the name of its vector.
    """
    pairs = zip(names, paths_and_leaves(tree), strict=True)
    return tuple((name, path, tuple(leaf.shape)) for name, (path, leaf) in pairs)


def check_layouts(label: str, state: Any, wanted: Any) -> None:
    """Raises `ValueError` if vectors of a state hold other leaves than those of another one of the
    same structure."""
    for found, right in zip(_joined(state), _joined(wanted), strict=True):
        if reason := other_layout(found._holds(), right._holds()):
            raise ValueError(f"{label}: `state` must be of the leaves of `updates`; {reason}")


def _joined(state: Any) -> list[AbstractJoined]:
    nodes = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, AbstractJoined))
    return [node for node in nodes if isinstance(node, AbstractJoined)]


def other_layout(old: Layout, new: Layout) -> str | None:
    """What differs first between two layouts."""
    # Inside `jax.shard_map` leaves are parts of those at `init`, and only their paths are the same.
    in_parts = _size(old) != _size(new)
    for (name, path, shape), (_, other, other_shape) in zip(old, new, strict=False):
        if path != other or (shape != other_shape and not in_parts):
            return (
                f"its vector {name!r} holds a leaf at `{path}` of shape {shape} in place of one at "
                f"`{other}` of shape {other_shape}."
            )
    return None


def _size(layout: Layout) -> int:
    return sum(math.prod(shape) for _, _, shape in layout)
