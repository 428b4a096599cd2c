"""Loops and conditionals whose carry varies over devices as what is computed from it does."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .leaves import varying

Carry = TypeVar("Carry")


def while_loop(
    going: Callable[[Carry], Bool[Array, ""]], body: Callable[[Carry], Carry], carry: Carry
) -> Carry:
    """`jax.lax.while_loop`, also inside `jax.shard_map` where the carry does not vary over devices
    yet and the body makes it do so. There all that comes out varies alike."""
    if _manual():
        leaves = jax.tree.leaves((carry, jax.eval_shape(body, carry)))
        axes = frozenset().union(*map(varying, leaves))
        return jax.lax.while_loop(going, lambda x: _spread(body(x), axes), _spread(carry, axes))
    return jax.lax.while_loop(going, body, carry)


def varying_alike(
    fn: Callable[[Carry], Carry], carry: Carry
) -> tuple[Callable[[Carry], Carry], Carry]:
    """Each leaf of both with the varying axes of both, so that what `fn` is given and what it gives
    back have one type inside `jax.shard_map`."""
    if not _manual():
        return fn, carry

    def spread_fn(carry: Carry) -> Carry:
        return _spread(fn(carry), jax.tree.map(varying, carry))

    while True:
        axes = jax.tree.map(varying, jax.eval_shape(spread_fn, carry))
        if axes == jax.tree.map(varying, carry):
            return spread_fn, carry
        carry = _spread(carry, axes)


def varying_together(tree: Carry) -> Carry:
    """Each leaf with the varying axes of all, as what solves one system has inside
    `jax.shard_map`."""
    if not _manual():
        return tree
    return _spread(tree, frozenset().union(*map(varying, jax.tree.leaves(tree))))


def _manual() -> bool:
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def _spread(tree: Any, axes: Any) -> Any:
    """The tree with varying axes added to its leaves: the same for all, or a tree of them."""

    def spread(x: Any, axes: frozenset[str]) -> Any:
        missing = tuple(axes - varying(x))
        return jax.lax.pcast(jnp.asarray(x), missing, to="varying") if missing else x

    if isinstance(axes, frozenset):
        return jax.tree.map(lambda x: spread(x, axes), tree)
    return jax.tree.map(spread, tree, axes)
