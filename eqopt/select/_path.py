"""Leaves by where they are in the model."""

import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from .._core.hyperparam import is_function
from .._core.leaves import paths_and_leaves
from .._core.selector import AbstractSelector


class Path(AbstractSelector):
    r"""The leaves whose path matches a regular expression, anywhere in it.

    A path is what one writes in Python to reach the leaf: `.layers[0].weight` in a model,
    `['w']` in a dict. `Path(r"norm|bias")`, `Path(r"^\.layers\[0\]")`.

    - `pattern`: the regular expression, static.

    **Raises** `ValueError` if it is none, and at `init` if no leaf matches.
    """

    pattern: str = eqx.field(static=True)

    def __check_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except (re.error, TypeError) as error:
            raise ValueError(
                f"`Path(pattern=...)` must be a regular expression; got {self.pattern!r}: {error}."
            ) from None

    def _select(self, tree: PyTree) -> list[bool]:
        return [bool(re.search(self.pattern, path)) for path, _ in paths_and_leaves(tree)]

    def _unmatched(self, tree: PyTree) -> str | None:
        if any(self._select(tree)):
            return None
        return f"must match a leaf; {self!r} matches none of {_first_paths(tree)}"


class Layer(AbstractSelector):
    """The leaves inside modules of some types, at any depth: `Layer(eqx.nn.Linear)`.

    A module inside another counts with it: in `Layer(eqx.nn.MultiheadAttention)` are the `Linear`
    layers of the attention. Subclasses count too.

    - `types`: a class or a tuple of classes, static.

    **Raises** `TypeError` if it is none, and `ValueError` at `init` if nothing matches.
    """

    types: type | tuple[type, ...] = eqx.field(static=True)

    def __check_init__(self) -> None:
        types = self.types if isinstance(self.types, tuple) else (self.types,)
        if not types or not all(isinstance(t, type) for t in types):
            raise TypeError(
                f"`Layer(types=...)` must be a class or a tuple of classes; got {self.types!r}."
            )

    def _select(self, tree: PyTree) -> list[bool]:
        nodes = jax.tree.leaves(tree, is_leaf=self._is_inside)
        return [self._is_inside(node) for node in nodes for _ in jax.tree.leaves(node)]

    def _is_inside(self, node: Any) -> bool:
        return isinstance(node, self.types)

    def _unmatched(self, tree: PyTree) -> str | None:
        if any(self._select(tree)):
            return None
        return f"must match a leaf; {self!r} matches none of {_first_paths(tree)}"


class _Place:
    """Stands in for the leaf of a number, so that a function can point to it."""

    def __init__(self, number: int):
        self.number = number


class At(AbstractSelector):
    """The leaves that a function points to, as in `eqx.tree_at`: `At(lambda m: m.head.weight)`.

    The function is given the model, with a placeholder for each parameter, and returns one of its
    nodes or leaves, or a tuple or list of them. What is below a node is selected.

    A lambda is equal only to itself and can't be pickled; a function defined at module level can.

    - `where`: the function, static.

    **Raises** `TypeError` if it is none, and `ValueError` if it reaches no parameter or something
    else than parameters.
    """

    where: Callable[[Any], Any] = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not is_function(self.where):
            raise TypeError(f"`At(where=...)` must be a function; got {self.where!r}.")

    def _select(self, tree: PyTree) -> list[bool]:
        treedef = jax.tree.structure(tree)
        places = [_Place(i) for i in range(treedef.num_leaves)]
        try:
            found = jax.tree.leaves(self.where(jax.tree.unflatten(treedef, places)))
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ValueError(
                f"`At(where=...)` must point to parameters of {_first_paths(tree)}; "
                f"{type(error).__name__}: {error}."
            ) from error
        for x in found:
            if not isinstance(x, _Place):
                raise ValueError(f"`At(where=...)` must point to parameters; got {x!r}.")
        chosen = {x.number for x in found}
        return [i in chosen for i in range(len(places))]

    def _unmatched(self, tree: PyTree) -> str | None:
        try:
            found = any(self._select(tree))
        except ValueError as error:
            return f"must point to parameters. {error}"
        return None if found else f"must point to one of {_first_paths(tree)}; {self!r} does not"


def _first_paths(tree: PyTree) -> str:
    """Some of the paths of a tree, for errors."""
    paths = [f"`{path}`" for path, _ in paths_and_leaves(tree)]
    return ", ".join(paths[:3]) + (" ..." if len(paths) > 3 else "")
