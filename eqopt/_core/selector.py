"""Selectors: which leaves of a model something applies to.

A selector looks at the whole model, with its layer types and paths, and gives a bool for each
parameter. Every argument that picks leaves is named `where` and takes a selector or a PyTree of
bools.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeAlias

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from .component import AbstractConverter, Component
from .leaves import is_trained, paths_and_leaves, select_leaves


class AbstractPlaces(Component):
    """What names places of a tree."""

    @abstractmethod
    def _unmatched(self, tree: PyTree) -> str | None:
        """What, if anything, is wrong because nothing in `tree` matches."""

    def _uncovered(self, seen: PyTree) -> str | None:
        """What, if anything, is wrong because a leaf of `seen` is not decided."""
        return None

    def _goes_by_dtype(self) -> bool:
        """Whether it looks at dtypes, which gradients need not share with their parameters: then
        no update is possible without `params`."""
        return False


class AbstractSelector(AbstractPlaces):
    """Chooses leaves of a tree. Combine selectors with `&`, `|` and `~`."""

    @abstractmethod
    def _select(self, tree: PyTree) -> list[bool]:
        """One bool for each parameter of `tree` (all its leaves are float arrays), in order."""

    def _unmatched(self, tree: PyTree) -> str | None:
        return None

    def __call__(self, tree: PyTree) -> PyTree:
        """The tree with True or False for each parameter and `None` for every other leaf."""
        params = jax.tree.map(lambda x: x if is_trained(x) else None, tree)
        return jax.tree.unflatten(jax.tree.structure(params), self._select(params))

    def __and__(self, other: Any) -> "AbstractSelector":
        return All((self, as_selector(other, "`&`")))

    def __rand__(self, other: Any) -> "AbstractSelector":
        return All((as_selector(other, "`&`"), self))

    def __or__(self, other: Any) -> "AbstractSelector":
        return Any_((self, as_selector(other, "`|`")))

    def __ror__(self, other: Any) -> "AbstractSelector":
        return Any_((as_selector(other, "`|`"), self))

    def __invert__(self) -> "AbstractSelector":
        return Not(self)


class All(AbstractSelector):
    """What every one of `parts` selects; `a & b` builds it."""

    parts: tuple[AbstractSelector, ...]

    def _select(self, tree: PyTree) -> list[bool]:
        return [all(hits) for hits in zip(*(p._select(tree) for p in self.parts), strict=True)]

    def _unmatched(self, tree: PyTree) -> str | None:
        return _first(part._unmatched(tree) for part in self.parts)

    def _uncovered(self, seen: PyTree) -> str | None:
        return _first(part._uncovered(seen) for part in self.parts)

    def _goes_by_dtype(self) -> bool:
        return any(part._goes_by_dtype() for part in self.parts)


class Any_(AbstractSelector):
    """What at least one of `parts` selects; `a | b` builds it."""

    parts: tuple[AbstractSelector, ...]

    def _select(self, tree: PyTree) -> list[bool]:
        return [any(hits) for hits in zip(*(p._select(tree) for p in self.parts), strict=True)]

    def _unmatched(self, tree: PyTree) -> str | None:
        return _first(part._unmatched(tree) for part in self.parts)

    def _uncovered(self, seen: PyTree) -> str | None:
        return _first(part._uncovered(seen) for part in self.parts)

    def _goes_by_dtype(self) -> bool:
        return any(part._goes_by_dtype() for part in self.parts)


class Not(AbstractSelector):
    """What `part` does not select; `~a` builds it."""

    part: AbstractSelector

    def _select(self, tree: PyTree) -> list[bool]:
        return [not hit for hit in self.part._select(tree)]

    def _unmatched(self, tree: PyTree) -> str | None:
        return self.part._unmatched(tree)

    def _uncovered(self, seen: PyTree) -> str | None:
        return self.part._uncovered(seen)

    def _goes_by_dtype(self) -> bool:
        return self.part._goes_by_dtype()


def _first(reasons: Iterable[str | None]) -> str | None:
    return next((why for why in reasons if why is not None), None)


class Bools(AbstractSelector):
    """A PyTree of bools, kept by path: static, hashable, and never called.

    It is like the whole model, or, inside a wrapper that leaves leaves out, like what is left.

    - `entries`: pairs of a path and a bool, static. A path stands for all that is below it.
    """

    entries: tuple[tuple[str, bool], ...] = eqx.field(static=True)

    def _select(self, tree: PyTree) -> list[bool]:
        found = entries_at(self.entries, tree)
        for (path, _), chosen in zip(paths_and_leaves(tree), found, strict=True):
            if chosen is None:
                raise ValueError(
                    f"The tree of bools given as `where` has no entry for the leaf `{path}`."
                )
        return found

    def _unmatched(self, tree: PyTree) -> str | None:
        return first_unknown(self.entries, tree)

    def _uncovered(self, seen: PyTree) -> str | None:
        try:
            self._select(seen)
        except ValueError as error:
            return f"must cover every leaf. {error}"
        return None


def entries_at(entries: Sequence[tuple[str, Any]], tree: PyTree) -> list[Any]:
    """What a PyTree that is kept by path has for each leaf of `tree`, in order: at its path or at
    the first prefix of it, `None` where it has nothing.

    - `entries`: pairs of a path and what is there.
    """
    exact = dict(entries)

    def entry(path: str) -> Any:
        if path in exact:
            return exact[path]
        for prefix, found in entries:
            if _is_at(path, prefix):
                return found
        return None

    return [entry(path) for path, _ in paths_and_leaves(tree)]


def first_unknown(entries: Sequence[tuple[str, Any]], tree: PyTree) -> str | None:
    """What is wrong with a PyTree that is kept by path, if it has an entry where `tree` has
    nothing. What is not trained is there too, as `None`, and so are layers without leaves.

    - `entries`: pairs of a path and what is there.
    """
    found, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_empty)
    there = [(jax.tree_util.keystr(path) or ".", leaf) for path, leaf in found]
    for path, _ in entries:
        known = (_is_at(at, path) or (_is_empty(leaf) and _is_at(path, at)) for at, leaf in there)
        if there and not any(known):
            return f"must be like the model, or a part of it; the model has nothing at `{path}`."
    return None


def _is_empty(node: Any) -> bool:
    return not jax.tree.leaves(node)


def _is_at(path: str, prefix: str) -> bool:
    """Whether a path is another one or is below it."""
    return prefix == "." or (path.startswith(prefix) and path[len(prefix) :][:1] in ("", ".", "["))


class Everything(AbstractSelector):
    """All parameters."""

    def _select(self, tree: PyTree) -> list[bool]:
        return [True] * len(jax.tree.leaves(tree))


class Nothing(AbstractSelector):
    """No parameter."""

    def _select(self, tree: PyTree) -> list[bool]:
        return [False] * len(jax.tree.leaves(tree))


def as_selector(where: Any, label: str) -> AbstractSelector:
    """The selector that a `where` argument stands for: itself, or a PyTree of bools."""
    if isinstance(where, AbstractSelector):
        return where
    entries = []
    for path, leaf in paths_and_leaves(where):
        if not isinstance(leaf, bool | np.bool_):
            raise TypeError(
                f"{label} must be a selector such as `eqopt.select.Matrices()` or a PyTree of "
                f"bools; got {leaf!r} at `{path}`."
            )
        entries.append((path, bool(leaf)))
    return Bools(tuple(entries))


class _AsSelector(AbstractConverter):
    def convert(self, label: str, value: Any) -> AbstractSelector:
        return as_selector(value, label)


Where: TypeAlias = Annotated[AbstractSelector | PyTree, _AsSelector()]
"""A selector, or a PyTree of bools like the model (or a prefix of it); leaves that a wrapper around
leaves out need no bool."""


def chosen(where: AbstractSelector, like: PyTree, tree: PyTree) -> list[bool]:
    """One bool for each leaf of `tree`, in order.

    - `like`: the tree that the selector looks at; it has at least the leaves of `tree`.
    """
    return aligned(jax.tree.leaves(where(like)), like, tree)


def aligned(values: list[Any], like: PyTree, tree: PyTree) -> list[Any]:
    """Of the values, one for each leaf of `like`, those for the leaves of `tree`, in its order.

    - `like`: a tree that has at least the leaves of `tree`.
    """
    if jax.tree.structure(like) == jax.tree.structure(tree):
        return values
    by_path = {path: value for (path, _), value in zip(paths_and_leaves(like), values, strict=True)}
    return [by_path[path] for path, _ in paths_and_leaves(tree)]


def split(where: AbstractSelector | None, like: PyTree, tree: PyTree) -> tuple[PyTree, PyTree]:
    """The selected leaves of `tree`, and the others, each with `None` for the rest.

    - `like`: the tree that the selector looks at; it has the leaves of `tree`.
    """
    if where is None:
        return tree, jax.tree.map(lambda _: None, tree)
    hits = chosen(where, like, tree)
    return select_leaves(tree, hits), select_leaves(tree, [not hit for hit in hits])
