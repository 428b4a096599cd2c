"""The orthogonal factor of matrices: by Newton-Schulz iteration, and exactly."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from .._core.arithmetic import abs_sq, safe_divide, safe_sqrt
from .._core.axes import Axes
from .._core.matrices import on_matrices

PRECONDITIONINGS = ("frobenius", "spectral", "aol", "schatten")

# Jordan et al. 2024: the largest slope at 0; singular values end in about (0.7, 1.2).
STANDARD = ((3.4445, -4.7750, 2.0315),)
# Ahn et al. 2025 (Dion): one row a step, which ends near 1.
DION = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)


@partial(jax.jit, static_argnames=("axes", "steps", "preconditioning", "adaptive"))
def orthogonalized(
    leaves: Sequence[Array],
    coefficients: Any,
    eps: Any,
    *,
    axes: Sequence[Axes],
    steps: int,
    preconditioning: str,
    adaptive: bool = False,
) -> list[Array]:
    """The leaves with each matrix X replaced by its orthogonal factor O.

    - `coefficients`: one row for all steps or one for each; exact if `None`.
    - `eps`: added to the norm, or to the singular values, that are divided by.
    - `axes`: those of each leaf.
    - `adaptive`: whether O is multiplied by the inner product of X and O.
    """

    def factor(x: Inexact[Array, "n rows columns"]) -> Inexact[Array, "n rows columns"]:
        real = jnp.finfo(x.dtype).dtype
        small = jnp.asarray(eps, real)
        if coefficients is None:
            o = polar_factor(x, small)
        else:
            rows = [jnp.stack([jnp.asarray(c, real) for c in row]) for row in coefficients]
            each = jnp.broadcast_to(jnp.stack(rows), (steps, 3))
            o = newton_schulz(x, each, small, preconditioning)
        if adaptive:
            o = o * jnp.sum((x.conj() * o).real, axis=(1, 2), keepdims=True)
        return o

    return on_matrices(factor, leaves, axes)


def newton_schulz(
    x: Inexact[Array, "n rows columns"],
    coefficients: Float[Array, "steps 3"],
    eps: Float[Array, ""],
    preconditioning: str,
) -> Inexact[Array, "n rows columns"]:
    r"""$X \leftarrow a X + (b A + c A^2) X$ with $A = X X^H$, from $X$ over a norm."""

    def step(x: Array, row: Array) -> tuple[Array, None]:
        a, b, c = row
        gram = _gram(x)
        return a * x + (b * gram + c * (gram @ gram)) @ x, None

    x = safe_divide(x, _norms(x, preconditioning) + eps)
    return jax.lax.scan(step, x, coefficients)[0]


def _gram(x: Array) -> Array:
    return x @ _adjoint(x)


def _adjoint(x: Array) -> Array:
    return jnp.swapaxes(x, -1, -2).conj()


def _norms(x: Array, preconditioning: str) -> Float[Array, "n #rows 1"]:
    """What bounds the singular values of a matrix, or of its rows divided one by one, by 1."""
    if preconditioning == "frobenius":
        return safe_sqrt(jnp.sum(abs_sq(x), axis=(1, 2), keepdims=True))
    if preconditioning == "spectral":
        return jnp.linalg.svd(x, compute_uv=False)[:, :1, None]
    gram = _gram(x)
    if preconditioning == "aol":
        return safe_sqrt(jnp.sum(jnp.abs(gram), axis=2, keepdims=True))
    return safe_sqrt(safe_sqrt(jnp.sum(abs_sq(gram), axis=(1, 2), keepdims=True)))


@jax.custom_jvp
def polar_factor(
    x: Inexact[Array, "n rows columns"], eps: Float[Array, ""]
) -> Inexact[Array, "n rows columns"]:
    r"""$U\, \mathrm{diag}(\sigma / (\sigma + \epsilon))\, V^H$ of the singular value decomposition
    $U\, \mathrm{diag}(\sigma)\, V^H$; a singular value of 0 stays 0."""
    u, s, vh = jnp.linalg.svd(x, full_matrices=False)
    return (u * safe_divide(s, s + eps)[:, None, :]) @ vh


@polar_factor.defjvp
def _polar_factor_jvp(primals, tangents):
    # By divided differences (Daleckii and Krein), finite also where singular values are equal.
    (x, eps), (dx, d_eps) = primals, tangents
    u, s, vh = jnp.linalg.svd(x, full_matrices=False)
    weights = safe_divide(s, s + eps)
    over = safe_divide(1, s + eps)  # weights / s
    inside = _adjoint(u) @ dx @ _adjoint(vh)
    outside = _adjoint(u) @ dx - inside @ vh
    products = over[:, :, None] * over[:, None, :]
    means = safe_divide(2 * s[:, :, None] * s[:, None, :], s[:, :, None] + s[:, None, :])
    even = (inside + _adjoint(inside)) / 2 * products * eps
    odd = (inside - _adjoint(inside)) / 2 * products * (means + eps)
    d_weights = -weights * over * d_eps
    tangent = u @ ((even + odd) @ vh + over[:, :, None] * outside)
    return (u * weights[:, None, :]) @ vh, tangent + (u * d_weights[:, None, :]) @ vh
