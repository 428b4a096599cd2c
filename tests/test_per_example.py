"""Clipping the gradients of single examples: sums, counts, NaN, low precision, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import eqopt


def updated(optim, updates, params=None, **extras):
    """The first updates."""
    return optim(updates, optim.init(updates if params is None else params), params, **extras)[0]


EXAMPLES = {
    "b": jnp.asarray([[0.0], [3.0], [0.3], [0.0]]),
    "w": jnp.asarray([[0.0, 0.0], [0.0, 4.0], [0.4, 0.0], [6.0, 8.0]]),
}


@pytest.mark.parametrize("bound", [0.0, 1.0, 5.0, jnp.inf])
def test_sum_of_clipped_examples(bound):
    """Abadi et al. 2016: each g is divided by max(1, |g| / c), and the number of those is right;
    it agrees with optax."""
    total, count = eqopt.per_example_global_norm_clip(EXAMPLES, bound)
    norms = [0.0, 5.0, 0.5, 10.0]
    factors = [min(1.0, bound / norm) if norm else 1.0 for norm in norms]
    for name, x in EXAMPLES.items():
        right = sum(f * np.asarray(g) for f, g in zip(factors, x, strict=True))
        np.testing.assert_allclose(total[name], right, rtol=1e-6)
    assert count == sum(norm > bound for norm in norms)
    theirs = optax.per_example_global_norm_clip(EXAMPLES, bound)
    assert count == theirs[1]


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("bound", [0.0, 1.0, 8.0])
def test_sum_of_examples_clipped_by_layer(bound, uniform):
    """McMahan et al. 2018: the bound of a layer is c / sqrt(K), or c sqrt(D_i / D)."""
    totals, counts = eqopt.per_example_layer_norm_clip(EXAMPLES, bound, uniform)
    shares = {"b": 1 / 2, "w": 1 / 2} if uniform else {"b": 1 / 3, "w": 2 / 3}
    for name, x in EXAMPLES.items():
        right, count = np.zeros(x.shape[1:]), 0
        for g in np.asarray(x):
            norm, own = np.sqrt(np.sum(g**2)), bound * np.sqrt(shares[name])
            right += g * (own / norm if norm > own else 1)
            count += norm > own
        np.testing.assert_allclose(totals[name], right, rtol=1e-6)
        assert counts[name] == count
    theirs = optax.per_example_layer_norm_clip(EXAMPLES, bound, uniform)[1]
    assert jax.tree.map(int, counts) == jax.tree.map(int, theirs)


def test_examples_that_are_nan():
    """NaN stays NaN and is not counted; what is not a float array is `None`."""
    grads = {"w": jnp.asarray([[jnp.nan], [3.0]]), "n": jnp.arange(2), "s": "name"}
    total, count = eqopt.per_example_global_norm_clip(grads, 1.0)
    assert np.isnan(total["w"]).all() and count == 1
    assert total["n"] is None and total["s"] is None


@pytest.mark.parametrize(
    "grads, words",
    [
        ({"w": jnp.ones(())}, r"\['w'\]"),
        ({"a": jnp.ones((2, 3)), "w": jnp.ones((3, 3))}, r"\['w'\]"),
        ({"w": jnp.arange(3)}, "float array"),
        ({}, "float array"),
    ],
)
def test_examples_without_their_axis(grads, words):
    """The error names the function, the argument and the leaf."""
    for function in (eqopt.per_example_global_norm_clip, eqopt.per_example_layer_norm_clip):
        with pytest.raises(ValueError, match=rf"`{function.__name__}\(grads=.*{words}"):
            function(grads, 1.0)


def test_examples_in_half_precision():
    """A sum of many is accumulated in float32 and rounded once."""
    grads = jnp.full((1000, 1), 1.0, jnp.bfloat16)
    total, count = jax.jit(eqopt.per_example_global_norm_clip)(grads, 2.0)
    assert total.dtype == jnp.bfloat16 and total == 1000 and count == 0
