"""Noise: its variance, keys of all kinds, and what is no key."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt


def updated(optim, updates, params=None, **extras):
    """The first updates."""
    return optim(updates, optim.init(updates if params is None else params), params, **extras)[0]


@pytest.mark.parametrize(
    "dtype, part", [(jnp.float32, 1.0), (jnp.bfloat16, 1.0), (jnp.complex64, 0.5)]
)
def test_variance_of_the_noise(dtype, part):
    """At t = 0 and t = 3 the variance is eta / (1 + t)^gamma, split over the parts of a complex
    leaf; two leaves and two updates have different numbers."""
    optim = eqopt.AddNoise(0.3, 0.55, 0)
    zeros = {"a": jnp.zeros(40_000, dtype), "b": jnp.zeros(40_000, dtype)}
    state, seen = optim.init(zeros), []
    for t in range(4):
        updates, state = optim(zeros, state)
        a, b = (np.asarray(updates[k].real, np.float64) for k in ("a", "b"))
        if t in (0, 3):
            np.testing.assert_allclose(np.var(a), part * 0.3 / (1 + t) ** 0.55, rtol=0.03)
        seen += [a / np.std(a), b / np.std(b)]
        if dtype == jnp.complex64:
            imag = np.asarray(updates["a"].imag)
            np.testing.assert_allclose(np.var(imag), np.var(a), rtol=0.05)
            seen.append(imag / np.std(imag))
    correlations = np.corrcoef(seen) - np.eye(len(seen))
    assert np.max(np.abs(correlations)) < 0.03


def test_every_kind_of_key():
    """Typed and old-style keys, NumPy's too, and seeds are the same key; eager and jitted noise
    are the same numbers."""
    grads = {"w": jnp.zeros(5)}
    keys = [
        7,
        np.int32(7),
        jnp.asarray(7),
        jax.random.key(7),
        jax.random.PRNGKey(7),
        np.asarray(jax.random.PRNGKey(7)),
    ]
    found = [updated(eqopt.AddNoise(0.3, 0.55, key), grads)["w"] for key in keys]
    for key in keys:
        optim = eqopt.AddNoise(0.3, 0.55, key)
        found.append(eqx.filter_jit(lambda o, g: updated(o, g))(optim, grads)["w"])
        found.append(jax.jit(lambda o, g: updated(o, g))(optim, grads)["w"])
    for x in found:
        np.testing.assert_allclose(x, found[0], rtol=1e-6)
    assert np.any(updated(eqopt.AddNoise(0.3, 0.55, 8), grads)["w"] != found[0])


def test_other_generators():
    """A key of another implementation keeps it."""
    optim = eqopt.AddNoise(0.3, 0.55, jax.random.key(7, impl="rbg"))
    state = optim.init(jnp.zeros(3))
    assert eqopt.find(state, eqopt.AddNoiseState).key.implementation == "rbg"
    assert np.all(np.isfinite(optim(jnp.zeros(3), state)[0]))


def test_keys_survive_donation_and_files(tmp_path):
    """Donating the state deletes neither the optimizer's key nor the user's; optimizer and state
    are saved and loaded."""
    key = jax.random.key(7)
    optim = eqopt.AddNoise(0.3, 0.55, key)
    params = jnp.ones(3)
    state = optim.init(params)
    step = jax.jit(lambda o, g, s, p: o.step(g, s, p), donate_argnums=(2, 3))
    for _ in range(2):
        params, state = step(optim, jnp.ones(3), state, params)
    jax.random.normal(key)
    eqx.tree_serialise_leaves(tmp_path / "state.eqx", (optim, state))
    like = eqopt.AddNoise(0.1, 0.1, jax.random.key(0))
    loaded = eqx.tree_deserialise_leaves(tmp_path / "state.eqx", (like, like.init(jnp.ones(3))))
    assert jax.tree.structure(loaded) == jax.tree.structure((optim, state))
    for x, y in zip(jax.tree.leaves(loaded), jax.tree.leaves((optim, state)), strict=True):
        np.testing.assert_array_equal(x, y)


def test_keys_in_lanes():
    """Typed keys in lanes, under `eqx.filter_vmap`, give each lane its own noise."""
    keys = jax.random.split(jax.random.key(0), 3)

    def one(key):
        return updated(eqopt.AddNoise(0.3, 0.55, key), jnp.zeros(4))

    np.testing.assert_allclose(jax.vmap(one)(keys), jnp.stack([one(k) for k in keys]), rtol=1e-6)


@pytest.mark.parametrize("key", [None, 1.5, True, -1, 2**31, jnp.ones(2), "seed"])
def test_what_is_no_key(key):
    """The error names the class and the argument."""
    with pytest.raises((TypeError, ValueError), match=r"`AddNoise\(key=\.\.\.\)` must be"):
        eqopt.AddNoise(0.3, 0.55, key)
