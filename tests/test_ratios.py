"""What trajectories don't show of trust ratios, block norms and Polyak's steps: the acceptance
cases, zeros, low precision, and the ranges of numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import eqopt
from eqopt import projections, select


def updated(optim, updates, params=None, **extras):
    """The first updates."""
    return optim(updates, optim.init(updates if params is None else params), params, **extras)[0]


# ---- acceptance cases

A7 = {
    "zero parameters": ([0.0, 0.0, 0.0], [1.0, 2.0, 2.0], [1.0, 2.0, 2.0]),
    "zero updates": ([3.0, 4.0], [0.0, 0.0], [0.0, 0.0]),
    "neither": ([3.0, 4.0], [0.6, 0.8], [3.0, 4.0]),
}


@pytest.mark.parametrize("params, updates, right", A7.values(), ids=A7.keys())
def test_case_A7_trust_ratio_at_zero_norms(params, updates, right):
    """The ratio is 1 where a norm is 0, with finite derivatives."""
    optim = eqopt.ScaleByTrustRatio()
    params, updates = jnp.asarray(params), jnp.asarray(updates)
    np.testing.assert_allclose(updated(optim, updates, params), right, rtol=1e-6)
    slopes = jax.grad(lambda u, p: jnp.sum(updated(optim, u, p)), argnums=(0, 1))(updates, params)
    assert all(np.all(np.isfinite(slope)) for slope in slopes)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_case_A3_norms_of_leaves_in_float16(dtype):
    """[300, 400] has norm 500, though 300^2 is beyond float16."""
    big = jnp.asarray([300.0, 400.0], dtype)
    small = jnp.asarray([0.6, 0.8], dtype)
    rms = 500 / np.sqrt(2)
    for found, right in [
        (updated(eqopt.ScaleByTrustRatio(), big, small), [0.6, 0.8]),
        (updated(eqopt.ScaleByParamBlockNorm(), small / 500, big), [0.6, 0.8]),
        (updated(eqopt.ScaleByParamBlockRMS(), small / 500, big), small * rms / 500),
        (updated(eqopt.ClipByBlockRMS(0.5**0.5), big), [0.6, 0.8]),
        (updated(eqopt.ScaleByPolyak(max_learning_rate=1e3), big, value=500.0), [0.6, 0.8]),
        (eqopt.per_example_global_norm_clip(big[None], 1.0)[0], [0.6, 0.8]),
        (eqopt.per_example_layer_norm_clip([big[None]], 1.0)[0][0], [0.6, 0.8]),
    ]:
        assert found.dtype == dtype
        tolerance = 1e-3 if dtype == jnp.float16 else 1e-2
        np.testing.assert_allclose(np.asarray(found, np.float32), right, rtol=tolerance)


@pytest.mark.parametrize("value", [1.5, np.float64(1.5), jnp.float32(1.5)])
def test_case_F14_polyak_takes_a_python_loss(value):
    """A loss of 1.5 is the same as a number and as an array, also under `jax.jit`."""
    optim = eqopt.ScaleByPolyak()
    grads = jnp.asarray([2.0, 1.0])
    state = optim.init(grads)
    for call in (optim, jax.jit(lambda g, s, value: optim(g, s, value=value))):
        updates, _ = call(grads, state, value=value)
        np.testing.assert_allclose(updates, [0.6, 0.3], rtol=1e-6)
        assert updates.dtype == jnp.float32


def test_case_I6_layer_wise_distance_keeps_scalars():
    """A 0-d parameter and its state stay 0-d, where optax gives shape (1,)."""
    optim = eqopt.ScaleByDistanceOverGradients(0.1)
    params = jnp.asarray(2.0)
    state = optim.init(params)
    updates, state = optim(jnp.asarray(3.0), state, params)
    assert all(x.shape == () for x in jax.tree.leaves((updates, state)))
    np.testing.assert_allclose(updates, 0.1 * (1 + 2), rtol=1e-6)  # r / |g| times g


def test_case_I8_distance_over_gradients_is_donated():
    """Parameters and state can be donated: the state has its own copy of the start."""
    optim = eqopt.ScaleByDistanceOverGradients(global_scale=-1.0)
    params = {"w": jnp.ones(3)}
    state = optim.init(params)
    buffers = [x.unsafe_buffer_pointer() for x in jax.tree.leaves((params, state))]
    assert len(set(buffers)) == len(buffers)
    step = jax.jit(lambda g, s, p: optim.step(g, s, p), donate_argnums=(1, 2))
    for _ in range(3):
        params, state = step({"w": jnp.ones(3)}, state, params)
    np.testing.assert_array_equal(state.inner.init_params["w"], np.ones(3))


@pytest.mark.parametrize(
    "call",
    [
        lambda g: updated(eqopt.ClipByBlockRMS(1.0), g),
        lambda g: updated(eqopt.ScaleByTrustRatio(), g, jnp.ones(2)),
        lambda g: updated(eqopt.ScaleByTrustRatio(), jnp.ones(2), g),
        lambda g: updated(eqopt.ScaleByParamBlockNorm(0.0), jnp.ones(2), g),
        lambda g: updated(eqopt.ScaleByParamBlockRMS(0.0), jnp.ones(2), g),
        lambda g: updated(eqopt.ScaleByPolyak(), g, value=1.0),
        lambda g: updated(eqopt.ScaleByPolyak(2.0), g, value=1.0),
        lambda g: updated(eqopt.ScaleByDistanceOverGradients(eps=0.0), g, jnp.ones(2)),
        lambda g: updated(eqopt.ScaleByDistanceOverGradients(), jnp.ones(2), g),
        lambda g: eqopt.per_example_global_norm_clip(g[None], 1.0)[0],
    ],
)
def test_case_L1_derivatives_at_zero_are_finite(call):
    """Derivatives at an exactly zero leaf, forwards and backwards."""
    zero = jnp.zeros(2)
    for derivative in (jax.jacfwd, jax.jacrev):
        assert np.all(np.isfinite(derivative(call)(zero)))
    assert np.all(np.isfinite(call(zero)))


# ---- trust ratios, Polyak's steps


def test_floor_of_the_trust_ratio():
    """Zero parameters get an update of the size of the floor, as in optax; zero updates stay."""
    ours, theirs = eqopt.ScaleByTrustRatio(0.5), optax.scale_by_trust_ratio(0.5)
    u, p = jnp.asarray([3.0, 4.0]), jnp.zeros(2)
    np.testing.assert_allclose(updated(ours, u, p), [0.3, 0.4], rtol=1e-6)
    np.testing.assert_allclose(updated(ours, u, p), theirs.update(u, theirs.init(p), p)[0])
    np.testing.assert_array_equal(updated(ours, p, u), [0.0, 0.0])


def test_polyak_with_small_gradients():
    """A small gradient has its own step: only zero is zero. optax takes 1e-8 for zero."""
    optim = eqopt.ScaleByPolyak(max_learning_rate=1e9)
    grads = jnp.asarray([1e-9])
    np.testing.assert_allclose(updated(optim, grads, value=1e-10), [1e-10 / 1e-9], rtol=1e-6)
    theirs = optax.scale_by_polyak(max_learning_rate=1e9)
    assert theirs.update(grads, theirs.init(grads), value=1e-10)[0][0] == 0
    np.testing.assert_array_equal(updated(optim, jnp.zeros(2), value=1.0), [0.0, 0.0])
    np.testing.assert_array_equal(updated(optim, jnp.zeros(2), value=-1.0), [0.0, 0.0])


def test_polyak_passes_nan_on():
    """A loss that is NaN is seen in the updates."""
    assert np.all(np.isnan(updated(eqopt.ScaleByPolyak(), jnp.ones(2), value=jnp.nan)))


# ---- names and ranges


def test_parameters_kept_non_negative():
    """optax's name for a projection, of some leaves too; it is exact in `step`."""
    assert eqopt.KeepParamsNonNegative() == eqopt.Project(projections.NonNegative())
    optim = eqopt.SGD(1.0) >> eqopt.KeepParamsNonNegative(select.Path("w"))
    params = {"b": jnp.asarray(0.1), "w": jnp.asarray([0.1, 0.7])}
    params, _ = optim.step(jax.tree.map(lambda x: 0 * x + 0.4, params), optim.init(params), params)
    assert params["w"][0] == 0 and params["b"] < 0
    np.testing.assert_allclose(params["w"][1], 0.3, rtol=1e-6)


@pytest.mark.parametrize(
    "build, words",
    [
        (lambda: eqopt.ScaleByTrustRatio(min_norm=-1.0), r"ScaleByTrustRatio\(min_norm"),
        (lambda: eqopt.ScaleByTrustRatio(eps=-1.0), r"ScaleByTrustRatio\(eps"),
        (lambda: eqopt.ScaleByParamBlockNorm(-1.0), r"ScaleByParamBlockNorm\(min_scale"),
        (lambda: eqopt.ScaleByParamBlockRMS(-1.0), r"ScaleByParamBlockRMS\(min_scale"),
        (lambda: eqopt.ScaleByPolyak(variant="sps++"), r"ScaleByPolyak\(variant"),
        (lambda: eqopt.ScaleByPolyak(max_learning_rate=-1.0), r"ScaleByPolyak\(max_learning_rate"),
        (lambda: eqopt.ScaleByDistanceOverGradients(-1.0), r"OverGradients\(reps_rel"),
        (lambda: eqopt.ClipByBlockRMS(-1.0), r"ClipByBlockRMS\(threshold"),
        (lambda: eqopt.AddNoise(-1.0, 0.5, 0), r"AddNoise\(eta"),
        (lambda: eqopt.EMA(1.0), r"EMA\(decay"),
        (lambda: eqopt.ApplyEvery(0), r"ApplyEvery\(k"),
        (lambda: eqopt.Monitor({}, 1.0), r"Monitor\(decay"),
    ],
)
def test_numbers_out_of_range(build, words):
    """The error names the class and the argument."""
    with pytest.raises(ValueError, match=words):
        build()


def test_polyak_needs_a_loss():
    """The error names the class and the keyword."""
    with pytest.raises(TypeError, match="`ScaleByPolyak` needs `value`"):
        updated(eqopt.ScaleByPolyak(), jnp.ones(2))
