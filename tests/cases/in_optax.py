"""The other side of some entries: what optax computes, told or shaped so that it is comparable."""

import jax
import jax.numpy as jnp
import optax
from optax.contrib import _muon


def linear_in_full_precision(count):
    """optax's schedule without the float32 that it computes in from an int32 count."""
    return optax.linear_schedule(0.1, 0.01, 4)(jnp.asarray(count, float))


def power_in_full_precision(count, exponent):
    """Adafactor's decay without the float32 that optax computes it in."""
    return 1 - (jnp.asarray(count, float) + 1) ** -exponent


def clip_rows_in_optax(clipping, eps):
    """optax's adaptive clipping, told that matrices are (out, in)."""
    rows = optax.adaptive_grad_clip(clipping, eps, axis=1)
    return optax.partition(
        {True: rows, False: optax.adaptive_grad_clip(clipping, eps)},
        lambda params: jax.tree.map(lambda x: jnp.ndim(x) == 2, params),
    )


# Equinox's matrices are (out, in); in optax the default is (in, out).
_DIMENSIONS = optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=0)


def on_matrices_in_optax(build):
    """optax's transform of matrices (out, in) and nothing else; `build` is given the function
    that gives each leaf its dimension numbers."""
    tx = build(lambda params: jax.tree.map(lambda _: _DIMENSIONS, params))
    return optax.masked(tx, lambda params: jax.tree.map(lambda x: jnp.ndim(x) == 2, params))


def orthogonalize_in_optax(coefficients, steps, eps, preconditioning):
    """optax's iteration as a transform."""

    def fn(g, _):
        return _muon.orthogonalize_via_newton_schulz(
            g, jnp.asarray(coefficients, g.dtype), steps, preconditioning, eps, _DIMENSIONS
        )

    return on_matrices_in_optax(lambda _: optax.stateless_with_tree_map(fn))


def muon_in_optax(*args, **kwargs):
    """optax's `scale_by_muon` for matrices (out, in)."""
    return on_matrices_in_optax(
        lambda dimensions: optax.contrib.scale_by_muon(
            *args, weight_dimension_numbers=dimensions, **kwargs
        )
    )
