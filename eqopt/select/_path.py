"""Leaves by where they are in the model."""

import re

import equinox as eqx
from jaxtyping import PyTree

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
        found = ", ".join(f"`{path}`" for path, _ in paths_and_leaves(tree)[:3])
        return f"must match a leaf; {self!r} matches none of {found} ..."
