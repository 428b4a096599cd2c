"""`FromOptax`: an optax transformation as a member of a chain."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .leafwise import like_updates
from .transform import AbstractTransform
from .types import Count, Params, Updates


def is_optax(x: Any) -> bool:
    """Whether something offers optax's interface, functions `init` and `update`."""
    is_class = isinstance(x, type)
    return (
        not is_class
        and callable(getattr(x, "init", None))
        and (callable(getattr(x, "update", None)))
    )


class FromOptax(AbstractTransform):
    """An optax transformation as one of eqopt's.

    It goes by `init` and the signature of `update` and imports nothing. Where `update` takes
    extra arguments, all keywords go through; where it doesn't, none. Updates and states keep
    their dtypes from step to step. Its functions are closures: it is neither pickled nor equal to
    another one built alike.

    - `tx`: the optax transformation, static.

    **Raises** `TypeError` if `tx` has no functions `init` and `update`.
    """

    tx: Any = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not is_optax(self.tx):
            raise TypeError(
                "`FromOptax(tx=...)` must be an optax transformation, with `init` and `update`; "
                f"got {self.tx!r}."
            )

    @property
    def _takes(self) -> frozenset[str] | None:  # pyright: ignore[reportIncompatibleVariableOverride]  # known per instance
        return None if _takes_extras(self.tx.update) else frozenset()

    def _init(self, params: Params) -> Any:
        return jax.tree.map(_plain, self.tx.init(params))

    def _update(
        self, updates: Updates, state: Any, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, Any]:
        extras = extras if self._takes is None else {}
        if params is not None:  # optax compares structures, with their static parts
            params = jax.tree.unflatten(jax.tree.structure(updates), jax.tree.leaves(params))
        new, new_state = self.tx.update(updates, state, params, **extras)
        new = like_updates("FromOptax", new, updates)
        same = jax.tree.structure(new_state) == jax.tree.structure(state)
        return new, jax.tree.map(_like, new_state, state) if same else new_state


def _takes_extras(update: Callable[..., Any]) -> bool:
    kinds = [parameter.kind for parameter in inspect.signature(update).parameters.values()]
    return inspect.Parameter.VAR_KEYWORD in kinds


def _is_inexact(x: Any) -> bool:
    return eqx.is_array(x) and jnp.issubdtype(x.dtype, jnp.inexact)


def _plain(x: Any) -> Any:
    """A number or array as an array of a fixed type, keys and others as they are."""
    if isinstance(x, int | float) or getattr(x, "weak_type", False):
        x = jnp.asarray(x)
        return jax.lax.convert_element_type(x, x.dtype)
    return x


def _like(new: Any, old: Any) -> Any:
    return jnp.asarray(new, old.dtype) if _is_inexact(old) else _plain(new)
