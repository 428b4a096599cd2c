"""Accumulation and monitoring, beyond their trajectories."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt
from eqopt import schedules


def updated(optim, updates, params=None, **extras):
    """The first updates."""
    return optim(updates, optim.init(updates if params is None else params), params, **extras)[0]


# ---- accumulation


def test_apply_every_in_lanes():
    """`k` may be traced: each lane emits its own sums."""
    grads = jnp.arange(1.0, 7.0)

    def sums(k):
        optim = eqopt.ApplyEvery(k)
        return jax.lax.scan(lambda s, g: optim(g, s)[::-1], optim.init(grads[0]), grads)[1]

    found = jax.vmap(sums)(jnp.asarray([1, 2, 3]))
    right = [[1, 2, 3, 4, 5, 6], [0, 3, 0, 7, 0, 11], [0, 0, 6, 0, 0, 15]]
    np.testing.assert_array_equal(found, right)


def test_apply_every_drops_no_update():
    """With a schedule for `k` the sums together are all updates."""
    optim = eqopt.ApplyEvery(schedules.Linear(1.0, 3.0, steps=8))
    state, total = optim.init(jnp.zeros(())), 0.0
    for g in range(1, 12):
        updates, state = optim(jnp.asarray(float(g)), state)
        total += updates
    left = eqopt.find(state, eqopt.ApplyEveryState).grad_acc
    assert total > 0 and total + left == sum(range(1, 12))


def test_mean_in_another_dtype():
    """A bfloat16 mean with decay 0.999 gets on in a float32 state."""
    optim = eqopt.EMA(0.999, accumulator_dtype=jnp.float32)
    g = jnp.ones(2, jnp.bfloat16)
    state = optim.init(g)
    for _ in range(3):
        updates, state = optim(g, state)
    assert updates.dtype == jnp.bfloat16 and state.inner.ema.dtype == jnp.float32
    np.testing.assert_allclose(state.inner.ema, 1 - 0.999**3, rtol=1e-4)
    np.testing.assert_array_equal(np.asarray(updates, np.float32), 1)


# ---- monitoring


def both(updates, params):
    """A measure with parameters."""
    return eqopt.global_norm(updates) / eqopt.global_norm(params)


def changing(updates):
    """A measure whose shape is not that of `init`."""
    return updates[:1] if updates.dtype == jnp.float16 else updates


def test_measures_before_the_first_update():
    """Zeros, in the structure that they keep."""
    optim = eqopt.Clip(1.0) >> eqopt.Monitor({"norm": eqopt.global_norm, "both": both}, 0.9)
    params = {"w": jnp.asarray([3.0, 4.0])}
    state = optim.init(params)
    before = eqopt.find(state, eqopt.MonitorState).measurements
    assert before == {"norm": 0.0, "both": 0.0}
    _, after = optim(params, state, params)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    found = eqopt.find(after, eqopt.MonitorState).measurements
    np.testing.assert_allclose(found["norm"], 2**0.5, rtol=1e-6)  # clipped to [1, 1]
    np.testing.assert_allclose(found["both"], 2**0.5 / 5, rtol=1e-6)


@pytest.mark.parametrize("optim", [eqopt.Monitor({"both": both}), eqopt.Snapshot(both)])
def test_measures_that_need_parameters(optim):
    """The error names the class and the keyword."""
    state = optim.init(jnp.ones(2))
    with pytest.raises(TypeError, match=rf"`{type(optim).__name__}` needs `params`"):
        optim(jnp.ones(2), state)


def test_measures_that_change():
    """Another shape than at `init` raises."""
    optim = eqopt.Snapshot(changing)
    state = optim.init(jnp.ones(2))
    with pytest.raises(ValueError, match="`Snapshot`: the measurement must keep its shape"):
        optim(jnp.ones(2, jnp.float16), state, jnp.ones(2))


@pytest.mark.parametrize("measures", [eqopt.global_norm, {"norm": 1.0}, {1: both}, None])
def test_what_are_no_measures(measures):
    """The error names the class and the argument."""
    with pytest.raises(TypeError, match=r"`Monitor\(measures=\.\.\.\)` must be a dict"):
        eqopt.Monitor(measures)
    with pytest.raises(TypeError):
        eqopt.Snapshot(1.0)


def test_nan_becomes_zero():
    """Only NaN, in either part of a complex number; the state says in which leaves."""
    optim = eqopt.ZeroNans()
    params = {"a": jnp.ones(3), "b": jnp.ones(2), "c": jnp.ones(2, complex)}
    state = optim.init(params)
    assert not any(jax.tree.leaves(state.inner.found_nan))
    grads = {
        "a": jnp.asarray([jnp.nan, jnp.inf, -2.0]),
        "b": jnp.asarray([-jnp.inf, 1.0]),
        "c": jnp.asarray([complex(1, np.nan), 2 + 1j]),
    }
    updates, state = optim(grads, state)
    np.testing.assert_array_equal(updates["a"], [0, np.inf, -2])
    np.testing.assert_array_equal(updates["b"], grads["b"])
    np.testing.assert_array_equal(updates["c"], [0, 2 + 1j])
    found = eqopt.find(state, eqopt.ZeroNansState).found_nan
    assert {k: bool(x) for k, x in found.items()} == {"a": True, "b": False, "c": True}
    _, state = optim(params, state)
    assert not any(jax.tree.leaves(state.inner.found_nan))
