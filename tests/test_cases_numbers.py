"""Reported cases about numbers: zero and huge gradients, dtypes, derivatives at zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import REPORTED

import eqopt
from eqopt import projections, schedules

ADAPTIVE = {
    "ScaleByAdam": eqopt.ScaleByAdam(),
    "ScaleByAdam[nesterov]": eqopt.ScaleByAdam(nesterov=True),
    "Adam": eqopt.Adam(0.1),
    "AdamW": eqopt.AdamW(0.1, weight_decay=0.0),
    "NAdam": eqopt.NAdam(0.1),
    "NAdamW": eqopt.NAdamW(0.1, weight_decay=0.0),
    "ScaleByAMSGrad": eqopt.ScaleByAMSGrad(),
    "ScaleByAdaMax": eqopt.ScaleByAdaMax(),
    "ScaleByBelief": eqopt.ScaleByBelief(),
    "ScaleByYogi": eqopt.ScaleByYogi(),
    "ScaleByRAdam": eqopt.ScaleByRAdam(),
    "ScaleByAdan": eqopt.ScaleByAdan(),
    "ScaleByNovoGrad": eqopt.ScaleByNovoGrad(),
    "ScaleByLion": eqopt.ScaleByLion(),
    "ScaleByRMS": eqopt.ScaleByRMS(),
    "ScaleByRMS[outside]": eqopt.ScaleByRMS(eps_in_sqrt=False),
    "ScaleByStdDev": eqopt.ScaleByStdDev(),
    "ScaleByStdDev[outside]": eqopt.ScaleByStdDev(eps_in_sqrt=False),
    "ScaleByRSS": eqopt.ScaleByRSS(),
    "ScaleByAdaDelta": eqopt.ScaleByAdaDelta(),
    "ScaleByAdaDelta[1e-8]": eqopt.ScaleByAdaDelta(eps=1e-8),
    "ScaleByFactoredRMS": eqopt.ScaleByFactoredRMS(),
    "ScaleBySM3": eqopt.ScaleBySM3(),
    "ScaleByRProp": eqopt.ScaleByRProp(0.1),
}

adaptive = pytest.mark.parametrize("optim", ADAPTIVE.values(), ids=ADAPTIVE.keys())
each_transform = pytest.mark.parametrize("case", REPORTED.values(), ids=REPORTED.keys())


def updated(transform, updates, params=None):
    """The first updates of a transform."""
    return transform(updates, transform.init(updates if params is None else params), params)[0]


@pytest.mark.parametrize(
    "bound",
    [eqopt.ClipByGlobalNorm(0.0), eqopt.Clip(0.0)],
    ids=["ClipByGlobalNorm", "Clip"],
)
def test_case_A1_clip_to_zero(bound):
    """Clipping to 0 gives zeros, of zeros too."""
    np.testing.assert_array_equal(updated(bound, jnp.zeros(3)), np.zeros(3))
    np.testing.assert_array_equal(updated(bound, jnp.asarray([3.0, 4.0])), np.zeros(2))


def test_case_A1_ball_of_radius_zero():
    """The projection onto a ball of radius 0 is 0, of zeros too."""
    ball = projections.L2Ball(0.0)
    np.testing.assert_array_equal(ball(jnp.zeros(3)), np.zeros(3))
    np.testing.assert_array_equal(ball(jnp.asarray([3.0, 4.0])), np.zeros(2))


def test_case_A1_identity_at_the_bound():
    """At exactly the norm nothing changes."""
    leaf = jnp.asarray([3.0, 4.0])
    np.testing.assert_array_equal(updated(eqopt.ClipByGlobalNorm(5.0), leaf), leaf)
    np.testing.assert_array_equal(updated(eqopt.Clip(4.0), leaf), leaf)
    np.testing.assert_array_equal(projections.L2Ball(5.0)(leaf), leaf)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: updated(eqopt.ClipByGlobalNorm(1.0), x),
        lambda x: updated(eqopt.NormalizeByGlobalNorm(), x),
        projections.L2Ball(1.0),
        projections.L2Sphere(1.0),
    ],
    ids=["ClipByGlobalNorm", "NormalizeByGlobalNorm", "L2Ball", "L2Sphere"],
)
def test_case_A3_norm_in_float16(function):
    """300^2 is beyond float16; the norm is not."""
    leaf = jnp.asarray([300.0, 400.0], jnp.float16)
    result = function(leaf)
    assert result.dtype == jnp.float16
    np.testing.assert_allclose(result.astype(float), [0.6, 0.8], rtol=1e-3)
    np.testing.assert_allclose(eqopt.global_norm(leaf), 500.0, rtol=1e-6)


@adaptive
def test_case_A5_zero_gradient_in_float16(optim):
    """A zero gradient moves nothing, though 1e-8 is 0 in float16."""
    params = jnp.asarray([1.0, -2.0, 0.5], jnp.float16)
    state = optim.init(params)
    for _ in range(3):
        updates, state = optim(jnp.zeros_like(params), state, params)
        assert updates.dtype == jnp.float16
        np.testing.assert_array_equal(updates, np.zeros(3))
        params = eqopt.apply_updates(params, updates)
    np.testing.assert_array_equal(params, [1.0, -2.0, 0.5])


def test_case_A8_normalise_at_zero():
    """Zeros stay zeros, and [3, 4] gets norm 1."""
    normalise = eqopt.NormalizeByGlobalNorm()
    np.testing.assert_array_equal(updated(normalise, jnp.zeros(2)), np.zeros(2))
    result = updated(normalise, jnp.asarray([3.0, 4.0]))
    np.testing.assert_allclose(result, [0.6, 0.8], rtol=1e-6)


RATES = {
    "number": lambda: 0.1,
    "jax bfloat16": lambda: jnp.asarray(0.1, jnp.bfloat16),
    "numpy bfloat16": lambda: jnp.bfloat16(0.1),
    "numpy bfloat16 scalar": lambda: np.asarray(0.1, jnp.bfloat16)[()],
    "jax float32": lambda: jnp.asarray(0.1, jnp.float32),
    "schedule": lambda: schedules.Constant(0.1),
}


@pytest.mark.parametrize("rate", RATES.values(), ids=RATES.keys())
@pytest.mark.parametrize(
    "kind",
    [
        eqopt.Adam,
        eqopt.AdamW,
        eqopt.NAdam,
        eqopt.NAdamW,
        eqopt.SGD,
        eqopt.ScaleByLearningRate,
        eqopt.Scale,
    ],
)
def test_case_B1_dtype_of_the_learning_rate(kind, rate):
    """The update is bfloat16 and the same, however the learning rate was written."""
    ones = jnp.ones(8, jnp.bfloat16)
    wanted = updated(kind(0.1), ones, ones)
    result = updated(kind(rate()), ones, ones)
    assert result.dtype == wanted.dtype == jnp.bfloat16
    ulp = np.abs(wanted.astype(np.float32)) * 2.0**-7
    assert np.all(np.abs(result.astype(np.float32) - wanted.astype(np.float32)) <= ulp)


@pytest.mark.parametrize("scheduled", [True, False], ids=["schedule", "dynamic"])
@pytest.mark.parametrize("kind", [eqopt.Adam, eqopt.AdamW])
def test_case_B2_betas_in_float32(kind, scheduled):
    """Decay rates that would round to 1 in bfloat16 keep their float32 values."""
    if scheduled:
        optim = kind(0.1, schedules.Constant(0.9), schedules.Constant(0.999))
    else:
        optim = eqopt.dynamic(kind(0.1, 0.9, 0.999))
    ones = jnp.ones(4, jnp.bfloat16)
    state = optim.init(ones)
    values = eqopt.hyperparameters(optim, state)
    name = kind.__name__.lower()
    assert values[f"{name}.b1"] == np.float32(0.9)
    assert values[f"{name}.b2"] == np.float32(0.999)
    updates, state = optim(ones, state, jnp.zeros_like(ones))
    np.testing.assert_allclose(updates.astype(float), np.full(4, -0.1), rtol=1e-2)
    nu = eqopt.find(state, eqopt.ScaleByAdamState).nu
    np.testing.assert_allclose(nu.astype(float), np.full(4, 1e-3), rtol=1e-2)


def test_case_B4_apply_rounds_once():
    """The exact sum 257.0039 rounds to 258 in bfloat16; rounding the update first gives 256."""
    p = jnp.asarray(256.0, jnp.bfloat16)
    u = jnp.asarray(1.00390625, jnp.float32)
    result = eqopt.apply_updates(p, u)
    assert result.dtype == jnp.bfloat16
    assert float(result) == 258.0


@pytest.mark.parametrize(
    "optim",
    [
        eqopt.SGD(1.0),
        eqopt.ScaleByLearningRate(1.0),
        eqopt.SGD(1.0) >> projections.NonNegative(),
        eqopt.Identity() >> eqopt.Scale(-1.0),
    ],
    ids=["SGD", "ScaleByLearningRate", "Project", "Chain"],
)
def test_case_B4_step_rounds_once(optim):
    """A float32 gradient of a bfloat16 parameter: `step` rounds once too."""
    p = jnp.asarray(256.0, jnp.bfloat16)
    g = jnp.asarray(-1.00390625, jnp.float32)
    result, _ = optim.step(g, optim.init(p), p)
    assert result.dtype == jnp.bfloat16
    assert float(result) == 258.0


def avals(tree):
    """Structure, and shape, dtype and weak type of each leaf."""
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, [(x.shape, x.dtype, x.weak_type) for x in map(jax.typeof, leaves)]


def small(dtype):
    """Parameters and gradients."""
    params = {"w": jnp.asarray([[1.0, -2.0]], dtype), "b": jnp.asarray([0.5], dtype)}
    return params, jax.tree.map(lambda x: 0.1 * x, params)


def stepped(case, grads, state, params):
    """The updates, parameters and state after a step, with a float32 value."""
    extras = {"value": jnp.float32(1.0), **case.extras(params, grads)}
    updates, _ = case.optim(grads, state, params, **extras)
    params, state = case.optim.step(grads, state, params, **extras)
    return updates, params, state


@each_transform
def test_case_B6_one_trace(case):
    """The types never change, and three jitted steps are one trace."""
    params, grads = small(jnp.float32)
    traces = []

    @jax.jit
    def step(state, params):
        traces.append(None)
        return stepped(case, grads, state, params)

    state = case.optim.init(params)
    wanted = avals(grads), avals(params), avals(state)
    for _ in range(3):
        updates, params, state = step(state, params)
        assert (avals(updates), avals(params), avals(state)) == wanted
    assert len(traces) == 1


def check_avals(case, dtype):
    """The types are the same after init, one update and two, found without computing."""

    def types(params, grads):
        state = case.optim.init(params)
        found = [(avals(grads), avals(params), avals(state))]
        for _ in range(2):
            updates, params, state = stepped(case, grads, state, params)
            found.append((avals(updates), avals(params), avals(state)))
        assert found[0] == found[1] == found[2]

    jax.eval_shape(types, *small(dtype))


@each_transform
def test_case_B6_constant_avals_in_bfloat16(case):
    """In bfloat16, with a float32 value."""
    check_avals(case, jnp.bfloat16)


@each_transform
def test_case_B6_constant_avals_in_float64(case, x64):
    """In float64, with a float32 value."""
    check_avals(case, jnp.float64)


@each_transform
def test_case_B7_each_leaf_keeps_its_dtype(case, x64):
    """A float32 and a float64 leaf in one tree."""
    params = {"a": jnp.ones(2, jnp.float32), "b": jnp.ones(2, jnp.float64)}
    grads = jax.tree.map(lambda x: 0.1 * x, params)
    state = case.optim.init(params)
    updates, params, _ = jax.eval_shape(lambda *trees: stepped(case, *trees), grads, state, params)
    for tree in (updates, params):
        assert (tree["a"].dtype, tree["b"].dtype) == (jnp.float32, jnp.float64)


def test_case_B7_learning_rate_is_not_rounded(x64):
    """In the float64 leaf 1 - 0.1 is 0.9 to 1e-15, beside a float32 leaf."""
    optim = eqopt.SGD(0.1)
    params = {"a": jnp.ones((), jnp.float32), "b": jnp.ones((), jnp.float64)}
    params, _ = optim.step(params, optim.init(params), params)
    assert abs(float(params["b"]) - 0.9) <= 1e-15
    assert abs(float(params["a"]) - 0.9) <= 1e-7


@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_case_K4_ball(jacobian):
    """Zero stays zero with the identity as Jacobian; integers are taken."""
    ball = projections.L2Ball(1.0)
    np.testing.assert_array_equal(ball(jnp.zeros(3)), np.zeros(3))
    np.testing.assert_array_equal(jacobian(ball)(jnp.zeros(3)), np.eye(3))
    np.testing.assert_allclose(ball(jnp.asarray([3.0, 4.0])), [0.6, 0.8], rtol=1e-6)
    result = ball(jnp.asarray([3, 4]))
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, [0.6, 0.8], rtol=1e-6)


def test_case_K4_sphere_at_zero():
    """The documented nearest point to zero: all elements radius / sqrt(n)."""
    result = projections.L2Sphere(2.0)(jnp.zeros(4))
    np.testing.assert_allclose(result, np.full(4, 1.0), rtol=1e-6)


# The first step's mean over its value for plain Adam, g: with Nesterov's look-ahead
# b1 mu / (1 - b1^2) + (1 - b1) g / (1 - b1) = g (1 + b1 / (1 + b1)).
SLOPES = {
    "ScaleByAdam": (lambda eps_root: eqopt.ScaleByAdam(eps_root=eps_root), 1.0),
    "Adam": (lambda eps_root: eqopt.Adam(1.0, eps_root=eps_root), -1.0),
    "AdamW": (lambda eps_root: eqopt.AdamW(1.0, eps_root=eps_root), -1.0),
    "ScaleByAMSGrad": (lambda eps_root: eqopt.ScaleByAMSGrad(eps_root=eps_root), 1.0),
    "ScaleByYogi": (
        lambda eps_root: eqopt.ScaleByYogi(
            eps=1e-8, eps_root=eps_root, initial_accumulator_value=0.0
        ),
        1.0,
    ),
    "NAdam": (lambda eps_root: eqopt.NAdam(1.0, eps_root=eps_root), -(1 + 0.9 / 1.9)),
    "NAdamW": (lambda eps_root: eqopt.NAdamW(1.0, eps_root=eps_root), -(1 + 0.9 / 1.9)),
}


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd])
@pytest.mark.parametrize("build, factor", SLOPES.values(), ids=SLOPES.keys())
@pytest.mark.parametrize("eps_root, slope", [(1e-8, 9999.0001), (0.0, 1e8)])
def test_case_L1_derivative_at_a_zero_gradient(build, factor, eps_root, slope, derivative):
    """The slope of the first update at g = 0 is finite, and the true one."""
    optim, zero = build(eps_root), jnp.zeros(())
    found = derivative(lambda g: updated(optim, g, zero))(zero)
    np.testing.assert_allclose(found, factor * slope, rtol=1e-5)
