"""Norms of leaves and of whole trees: accumulated in at least float32, with derivatives at zero."""

from collections.abc import Sequence
from functools import reduce
from operator import add, and_
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, DTypeLike, Float, Inexact, PyTree

from .arithmetic import abs_sq, safe_sqrt
from .leaves import widen
from .loop import while_loop


@jax.jit
def squared_norm(x: Inexact[Array, "..."]) -> Float[Array, ""]:
    """The sum of `|x|^2` over one array, in at least float32."""
    return jnp.sum(abs_sq(widen(x)))


def leaf_norm(x: Inexact[Array, "..."]) -> Float[Array, ""]:
    """The Euclidean norm of one array; 0, with derivative 0, at zero."""
    return safe_sqrt(squared_norm(x))


def leaf_rms(x: Inexact[Array, "..."]) -> Float[Array, ""]:
    """The root of the mean of `|x|^2` over one array; 0, with derivative 0, at zero."""
    return safe_sqrt(squared_norm(x) / max(x.size, 1))


def scalars_like(tree: PyTree, dtype: DTypeLike | None = None) -> PyTree:
    """A zero for each leaf, made from its norm: real, in at least float32, or in `dtype`."""
    return jax.tree.map(lambda x: jnp.zeros_like(squared_norm(x), dtype=dtype), tree)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether no element of any leaf is NaN or infinite."""
    return reduce(and_, map(_all_finite, jax.tree.leaves(tree)), jnp.asarray(True))


@jax.jit
def _all_finite(x: Inexact[Array, "..."]) -> Bool[Array, ""]:
    # A sum of zeros, or NaN. Half the time of `jnp.all(jnp.isfinite(x))` on a CPU, where XLA keeps
    # an array of bools.
    return jnp.sum(x - x) == 0


def zero_of(tree: PyTree, dtype: DTypeLike | None = None) -> Array:
    """A scalar zero made from all leaves, so that it varies over devices as they do: in at least
    float32, or in `dtype`."""
    return jnp.zeros_like(global_squared_norm(tree), dtype=dtype)


def norm_along(x: Inexact[Array, "..."], axes: tuple[int, ...]) -> Float[Array, "..."]:
    """The Euclidean norms of one array along some of its axes, which stay, of length 1; 0, with
    derivative 0, at zero."""
    return safe_sqrt(jnp.sum(abs_sq(widen(x)), axis=axes, keepdims=True))


def factor_within(norm: Float[Array, "..."], bound: Any) -> Float[Array, "..."]:
    """What takes something of a norm down to a bound: exactly 1 at or below it, `bound / norm`
    above; NaN where the norm is."""
    within = norm <= bound
    return jnp.where(within, 1, bound / jnp.where(within, 1, norm))


def global_squared_norm(tree: PyTree) -> Float[Array, ""]:
    """The sum of `|x|^2` over all leaves; 0 for a tree without leaves."""
    return reduce(add, map(squared_norm, jax.tree.leaves(tree)), jnp.zeros((), jnp.float32))


def global_norm(tree: PyTree) -> Float[Array, ""]:
    r"""The Euclidean norm $\sqrt{\sum |x|^2}$ over all leaves of a tree.

    Accumulated in at least float32 (float64 where a leaf is); 0 for a tree without leaves. Its
    derivative at zero is 0. In float32 the squares overflow above about 1e19 and underflow below
    about 1e-19.
    """
    return safe_sqrt(global_squared_norm(tree))


@jax.custom_jvp
def scaled_norm(
    parts: Sequence[Inexact[Array, "..."]],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""$\lVert c x \rVert$ and $c$, for a vector $x$ given in parts of one real dtype.

    $c$ is 1 unless the squares of $x$ overflow or underflow. Then it is the power of 2 that brings
    the largest element near 1, a constant to derivatives. The derivative at zero is 0.
    """
    squared = _joint_squared_norm(1, parts)
    info = jnp.finfo(squared.dtype)
    usual = (squared > info.tiny / info.eps**2) & (squared < jnp.inf)

    def scale(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        # Else the compiler takes this out of the loop.
        xs, _ = jax.lax.optimization_barrier((list(parts), carry))
        factor = power_below(largest_magnitude(xs))
        return _joint_squared_norm(factor, xs), factor, jnp.zeros_like(usual)

    # A loop of one round at most. Mapped over vectors it is left out where none needs it, which a
    # conditional is not.
    carry = (squared, jnp.ones_like(squared), ~usual)
    squared, factor, _ = while_loop(lambda carry: carry[2], scale, carry)
    return jnp.sqrt(squared), factor


@scaled_norm.defjvp
def _scaled_norm_jvp(primals: Any, tangents: Any) -> Any:
    (parts,), (tangents,) = primals, tangents
    norm, factor = scaled_norm(parts)
    inverse = 1 / jnp.where(norm > 0, norm, 1)
    along = [
        jnp.sum(jnp.real(jnp.conj(factor * x * inverse) * (factor * dx)))
        for x, dx in zip(parts, tangents, strict=True)
    ]
    return (norm, factor), (reduce(add, along), jnp.zeros_like(factor))


def _joint_squared_norm(factor: Any, parts: Sequence[Array]) -> Float[Array, ""]:
    return reduce(add, [squared_norm(factor * part) for part in parts])


def largest_magnitude(tree: PyTree) -> Float[Array, ""]:
    """The largest `|x|` over all leaves of a tree with leaves; 0 if they are empty."""
    return reduce(jnp.maximum, [jnp.max(jnp.abs(x), initial=0) for x in jax.tree.leaves(tree)])


def power_below(largest: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The power of 2 that brings a magnitude to [1/2, 1), or as near as leaves numbers for what is
    computed with it; a constant to derivatives. 1 for 0, infinity and NaN."""
    largest = jax.lax.stop_gradient(largest)
    bound = float(jnp.finfo(largest.dtype).tiny) ** -0.8
    bounded = jnp.maximum(jnp.minimum(largest, bound), 1 / bound)
    factor = jnp.frexp(bounded)[0] / bounded  # mantissa by number: exact
    return jnp.where((largest > 0) & (largest < jnp.inf), factor, 1)
