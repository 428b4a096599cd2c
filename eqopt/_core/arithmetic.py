"""Safe arithmetic: what many formulas share, defined (with its derivatives) where it matters."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact, Int

from .types import Count


def increment(count: Count) -> Count:
    """`count + 1`, which stays at the dtype's largest value instead of overflowing."""
    largest = jnp.iinfo(count.dtype).max
    return jnp.where(count < largest, count + 1, count)


def ema(mean: Array, value: Array, decay: Any) -> Array:
    """One step of a running mean: `decay * mean + (1 - decay) * value`."""
    return decay * mean + (1 - decay) * value


def abs_sq(x: Inexact[Array, "*leaf"]) -> Float[Array, "*leaf"]:
    """`|x|^2`, real also for complex `x`, with a derivative at 0."""
    if jnp.iscomplexobj(x):
        return jnp.square(x.real) + jnp.square(x.imag)
    return jnp.square(x)


def sign(x: Inexact[Array, "*leaf"]) -> Inexact[Array, "*leaf"]:
    """-1, 0 or 1, by comparisons, which cost less than the sign itself; `x / |x|` for complex `x`.
    NaN stays NaN; the derivative is 0."""
    x = jax.lax.stop_gradient(x)
    if jnp.iscomplexobj(x):
        return jnp.sign(x)
    return jnp.where(x > 0, 1, jnp.where(x < 0, -1, x))


@jax.custom_jvp
def safe_sqrt(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The square root, with derivative 0 at 0 (where the true one is infinite)."""
    return jnp.sqrt(x)


@safe_sqrt.defjvp
def _safe_sqrt_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    positive = x > 0
    slope = jnp.where(positive, 0.5 / safe_sqrt(jnp.where(positive, x, 1)), 0)
    return safe_sqrt(x), slope * dx


@jax.custom_jvp
def bias_correction(decay: Any, count: Count) -> Float[Array, ""]:
    """`1 - decay**count`, the weight that a running mean started at 0 has gathered.

    Computed as `-expm1(count * log1p(decay - 1))`, which does not cancel as `decay` nears 1. The
    result has the dtype of `decay`.
    """
    decay = jnp.asarray(decay)
    return -jnp.expm1(count.astype(decay.dtype) * jnp.log1p(decay - 1))


@bias_correction.defjvp
def _bias_correction_jvp(primals, tangents):
    (decay, count), (d_decay, _) = primals, tangents
    # Through the power: finite at decay = 0, where the derivative of the logarithm is not.
    t = count.astype(jnp.result_type(decay))
    first = count == 1  # apart: a power with both numbers 0 has no second derivative
    slope = -t * jnp.where(first, 1, jnp.power(decay, jnp.where(first, 1, t - 1)))
    return bias_correction(decay, count), slope * d_decay


def debias(mean: Array, decay: Any, count: Int[Array, ""]) -> Array:
    """A running mean started at 0, divided by the weight it has gathered after `count` steps."""
    return mean / bias_correction(decay, count)


def safe_divide(numerator: Any, denominator: Any) -> Array:
    """`numerator / denominator`, and 0 (with derivative 0) where the denominator is 0."""
    numerator, denominator = jnp.asarray(numerator), jnp.asarray(denominator)
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(numerator, denominator)
    return _safe_divide(numerator.astype(dtype), denominator.astype(dtype))


@jax.custom_jvp
def _safe_divide(numerator: Array, denominator: Array) -> Array:
    zero = denominator == 0
    return jnp.where(zero, 0, numerator / jnp.where(zero, 1, denominator))


@_safe_divide.defjvp
def _safe_divide_jvp(primals, tangents):
    # One division, where the square of a small denominator would underflow.
    (numerator, denominator), (d_numerator, d_denominator) = primals, tangents
    quotient = _safe_divide(numerator, denominator)
    return quotient, _safe_divide(d_numerator - quotient * d_denominator, denominator)


def safe_power(base: Array, exponent: Any) -> Array:
    """`base**exponent` for a positive exponent, with derivative 0 where the base is 0."""
    positive = base > 0
    return jnp.where(positive, jnp.where(positive, base, 1) ** exponent, 0)
