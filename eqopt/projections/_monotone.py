"""Order between neighbouring elements."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._core.norms import power_below
from ._vectors import AbstractVectorProjection


class Monotone(AbstractVectorProjection):
    r"""The vectors whose elements don't decrease, $x_1 \le x_2 \le \dots$, or don't increase:
    isotonic regression.

    $P(x)$ is constant on blocks, on each of them the mean of $x$; the derivative is the mean over
    the block too. Equal neighbours count as one block. Exact, in $O(n \log n)$.

    - `increasing`: whether elements must not decrease, else not increase; static.
    - `per_leaf`, `axis`: what one vector is, if not the whole tree; see
      [`AbstractPartsProjection`][eqopt.projections.AbstractPartsProjection].

    Sets of monotone vectors: Barlow and Brunk (1972), J. Am. Stat. Assoc. 67(337), 140-147.
    """

    increasing: bool = eqx.field(default=True, static=True)

    def _project_vector(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        return isotonic(x) if self.increasing else -isotonic(-x)


_SHORT = 16


@jax.custom_jvp
def isotonic(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """The nearest vector whose elements don't decrease.

    Short stretches are fitted first, then neighbouring ones together, twice as long at each level.
    Of two fits only the end of the left and the beginning of the right one change, to one value v
    for which the left loses what the right gains: they become min(left, v) and max(right, v). So
    it takes log2(n) levels, each a few operations on the whole vector, wherever the blocks lie.
    """
    size = x.shape[0]
    largest = jnp.max(jnp.abs(x))
    factor = power_below(largest)
    padding = -size % _SHORT if size <= _SHORT else 2 ** (size - 1).bit_length() - size
    # No fit exceeds the padding.
    x = jnp.concatenate([x, jnp.broadcast_to(largest, (padding,))]) * factor
    rows = _fitted(x.reshape(-1, _SHORT))
    while len(rows) > 1:
        rows = _merged(rows[0::2], rows[1::2])
    return rows.reshape(-1)[:size] / factor


@isotonic.defjvp
def _isotonic_jvp(primals, tangents):
    """The mean over each block of equal elements."""
    (x,), (dx,) = primals, tangents
    fitted = isotonic(x)
    starts = jnp.concatenate([jnp.zeros_like(fitted[:1], bool), fitted[1:] != fitted[:-1]])
    block = jnp.cumsum(starts.astype(jnp.int32))
    sums = jnp.zeros_like(dx).at[block].add(dx, indices_are_sorted=True)
    counts = jnp.zeros_like(x).at[block].add(1, indices_are_sorted=True)
    return fitted, (sums / jnp.maximum(counts, 1))[block]


def _fitted(rows: Float[Array, "k h"]) -> Float[Array, "k h"]:
    """The fit of each row: element k is the largest over i <= k of the smallest over j >= k of
    the means from i to j (Robertson, Wright and Dykstra 1988, theorem 1.4.4)."""
    place = jnp.arange(rows.shape[1])
    length = place - place[:, None] + 1
    sums = jnp.cumsum(jnp.where(length > 0, rows[:, None], 0), axis=2)
    means = sums / jnp.maximum(length, 1).astype(rows.dtype)
    smallest = jax.lax.cummin(means, axis=2, reverse=True)
    return jnp.max(jnp.where(length > 0, smallest, -jnp.inf), axis=1)


def _merged(left: Float[Array, "k h"], right: Float[Array, "k h"]) -> Float[Array, "k twice"]:
    """The fits of left and right stretches, row by row, made fits of both together."""
    size = left.shape[1]
    after = jnp.cumsum(left[:, ::-1], axis=1)[:, ::-1]  # sums from the i-th on
    before = jnp.cumsum(right, axis=1)  # and of those before the i-th
    before = jnp.concatenate([jnp.zeros_like(before[:, :1]), before], axis=1)

    def left_stays(count: Int[Array, " k"]) -> Array:
        """Whether so many of the left stay: lowered to the last of them, the others lose at least
        what the right ones gain that are raised to it."""
        level = _take(left, count - 1)
        lost = _take(after, count - 1) - level * (size + 1 - count)
        below = _count(lambda n: _take(right, n - 1) < level, like)
        return lost >= level * below - _take(before, below)

    like = jnp.zeros_like(left, jnp.int32)
    stay = _count(left_stays, like)
    lowered = size - stay
    total = _take(after, jnp.minimum(stay, size - 1))

    def right_rises(count: Int[Array, " k"]) -> Array:
        level = _take(right, count - 1)
        return total - level * lowered > level * (count - 1) - _take(before, count - 1)

    rise = _count(right_rises, like)
    level = (total + _take(before, rise)) / jnp.maximum(lowered + rise, 1)
    level = jnp.where(lowered > 0, level, left[:, -1])[:, None]
    return jnp.concatenate([jnp.minimum(left, level), jnp.maximum(right, level)], axis=1)


def _take(rows: Float[Array, "k h"], index: Int[Array, " k"]) -> Float[Array, " k"]:
    return jnp.take_along_axis(rows, index[:, None], axis=1, mode="clip")[:, 0]


def _count(holds: Callable[[Array], Array], like: Int[Array, "k h"]) -> Int[Array, " k"]:
    """The largest count, of at most h, that `holds` holds for; it holds for all below it."""
    size = like.shape[1]

    def body(i, count):
        more = count + (size >> i)
        return jnp.where((more <= size) & holds(jnp.minimum(more, size)), more, count)

    return jax.lax.fori_loop(0, size.bit_length(), body, like[:, 0])
