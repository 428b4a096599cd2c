"""What schedules are made of: fractions, values in between, one phase after the other."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Real


def at_least_int32(count: Array) -> Array:
    """Whole counts in a signed dtype that the usual lengths fit into."""
    if jnp.issubdtype(count.dtype, jnp.unsignedinteger):
        count = jnp.minimum(count, min(jnp.iinfo(count.dtype).max, jnp.iinfo(jnp.int32).max))
        return count.astype(jnp.int32)
    return count.astype(jnp.promote_types(count.dtype, jnp.int32))


def alike(count: Array, length: Any) -> tuple[Array, Array]:
    """A count and a length in one dtype: integers as long as both are whole and the length is one
    that counts can reach."""
    whole = jnp.issubdtype(count.dtype, jnp.integer)
    if whole and isinstance(length, int | float) and length == int(length):
        reachable = length <= jnp.iinfo(count.dtype).max
        length = jnp.asarray(int(length) if reachable else float(length))
    length = jnp.asarray(length)
    if jnp.issubdtype(length.dtype, jnp.floating):
        dtype = length.dtype
    else:
        dtype = jnp.promote_types(count.dtype, length.dtype) if whole else count.dtype
    return count.astype(dtype), length.astype(dtype)


def fraction(count: Real[Array, "*counts"], steps: Any) -> Float[Array, "*counts"]:
    """`count / steps` in [0, 1]; 1 where `steps` is a traced 0."""
    steps = jnp.asarray(steps, jnp.result_type(float))
    done = jnp.clip(count.astype(steps.dtype) / jnp.where(steps > 0, steps, 1), 0, 1)
    return jnp.where(steps > 0, done, 1.0)


def interpolate(start: Any, end: Any, weight: Float[Array, "*counts"]) -> Array:
    """From `start` at weight 0 to `end` at weight 1, exact at both and never beyond them."""
    start = jnp.asarray(start, jnp.result_type(float))
    end = jnp.asarray(end, jnp.result_type(float))
    value = start * (1 - weight) + end * weight
    inside = jnp.clip(value, jnp.minimum(start, end), jnp.maximum(start, end))
    return value + jax.lax.stop_gradient(inside - value)


def line(x: Float[Array, "*counts"]) -> Float[Array, "*counts"]:
    """From 0 at 0 to 1 at 1 in a straight line."""
    return x


def half_cosine(x: Float[Array, "*counts"]) -> Float[Array, "*counts"]:
    """From 0 at 0 to 1 at 1 along half a cosine, flat at both ends."""
    return jnp.square(jnp.sin(jnp.pi / 2 * x))


def joined(
    schedules: Sequence[Callable[[Array], Array]], lengths: Sequence[Any], count: Array
) -> Array:
    """The value of the schedule that is active at `count`, each for its length, the last for ever.

    Each begins at its own zero; one of length 0 is skipped. One that is not active is evaluated at
    the nearest end of its own span, so that it never sees a count outside it. No lengths are
    summed, so none overflows.

    - `schedules`: schedules, or functions of the count.
    - `lengths`: those of all schedules but the last.
    """
    value, reached = jnp.zeros(()), jnp.asarray(True)
    for i, schedule in enumerate(schedules):
        if i == len(lengths):
            return jnp.where(reached, schedule(count), value)
        count, length = alike(count, lengths[i])
        value = jnp.where(reached, schedule(jnp.minimum(count, length)), value)
        reached = reached & (count >= length)
        count = jnp.maximum(count - length, 0)
    return value


def through(
    values: Sequence[Any], lengths: Sequence[Any], count: Array, ease: Callable[[Array], Array]
) -> Array:
    """From each value to the next in its length, then the last for ever.

    - `ease`: how far it is between two values, 0 to 1, from the fraction of the length.
    """
    legs = [
        partial(_leg, start, end, length, ease)
        for (start, end), length in zip(pairwise(values), lengths, strict=True)
    ]
    return joined(legs, lengths[:-1], count)


def _leg(start: Any, end: Any, length: Any, ease: Callable[[Array], Array], count: Array) -> Array:
    return interpolate(start, end, ease(fraction(count, length)))


def total(lengths: Sequence[Any]) -> Any:
    """The sum of lengths: a number if all are, else an array; whole ones saturate."""
    if all(isinstance(steps, int | float) for steps in lengths):
        return sum(lengths)
    if any(jnp.issubdtype(jnp.result_type(steps), jnp.floating) for steps in lengths):
        return sum(jnp.asarray(steps, float) for steps in lengths)
    largest = jnp.iinfo(jnp.int32).max
    whole = jnp.zeros((), jnp.int32)
    for steps in lengths:
        steps = jnp.asarray(steps, jnp.int32)
        whole = jnp.where(steps > largest - whole, largest, whole + steps)
    return whole
