"""`gate`: do something, or leave everything as it is.

Every wrapper that skips, accumulates or alternates goes through here. What makes it fast: the
carry holds only what came in untouched (the inner state and, in a step, the parameters), which
XLA can update in place; whatever was just computed is closed over by `fn` or stays outside,
because XLA copies fresh values into a conditional.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.core import Tracer
from jaxtyping import Array, Bool

from .leaves import varying

Carry = TypeVar("Carry")


def gate(predicate: bool | Bool[Array, ""], fn: Callable[[Carry], Carry], carry: Carry) -> Carry:
    """`fn(carry)` where the predicate holds, else `carry`, bit for bit.

    - `predicate`: a Python bool, or a scalar bool array. A concrete one decides in Python.
    - `fn`: gives back what it is given: same structure, shapes and dtypes, and never one array
      twice.

    Under `jax.vmap` with a batched predicate both sides are computed and each lane selects its
    own; nothing leaks from the other side.
    """
    if not isinstance(predicate, Tracer):
        return fn(carry) if bool(predicate) else carry
    if jax.sharding.get_abstract_mesh().manual_axes:  # elsewhere nothing varies
        carry = _varying_like(fn, carry)
    return jax.lax.cond(predicate, fn, lambda carry: carry, carry)


def _varying_like(fn: Callable[[Any], Any], carry: Any) -> Any:
    """The carry with the varying axes that `fn` gives it, so that both sides of the conditional
    have one type inside `jax.shard_map`."""
    out = jax.eval_shape(fn, carry)

    def spread(x: Any, y: Any) -> Any:
        missing = tuple(varying(y) - varying(x))
        return jax.lax.pcast(x, missing, to="varying") if missing else x

    return jax.tree.map(spread, carry, out)
