"""What trajectories don't show of trust ratios, block norms, per-example clipping, noise,
accumulation and monitoring: the acceptance cases, zeros, low precision, keys, and bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import eqopt
from eqopt import projections, schedules, select


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


# ---- clipping single examples

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


# ---- noise


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
