"""Reported cases about single algorithms, with the numbers of the reports."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt


def updates_of(optim, grads, params=None):
    """The updates of one element, as floats, for one gradient after the other."""
    params = jnp.ones(()) if params is None else params
    state, found = optim.init(params), []
    for g in grads:
        update, state = optim(jnp.full(params.shape, g, params.dtype), state, params)
        assert update.shape == params.shape
        found.append(float(update.reshape(())))
    return found


def test_case_F1_rprop():
    """The step of this gradient, not of the one before."""
    found = updates_of(eqopt.ScaleByRProp(0.1, 0.5, 1.2), [1.0, 1.0, 1.0, -1.0, 1.0])
    np.testing.assert_allclose(found, [0.1, 0.12, 0.144, 0.0, 0.072], rtol=1e-5)


def test_case_F1_rprop_on_tiny_gradients():
    """The product of two gradients may underflow; their signs don't."""
    found = updates_of(eqopt.ScaleByRProp(0.1, 0.5, 1.2), [1e-30, 1e-30, -1e-30])
    np.testing.assert_allclose(found, [0.1, 0.12, 0.0], rtol=1e-5)


def test_case_F2_adan():
    """The changes are weighted by b2, and the first is 0."""
    found = updates_of(eqopt.ScaleByAdan(0.98, 0.92, 0.99, 1e-8), [1.0, 2.0, 2.0])
    np.testing.assert_allclose(found, [1.0, 0.9073595, 0.9311263], rtol=1e-5)


def test_case_F3_belief():
    """The error is taken from the new mean."""
    found = updates_of(eqopt.ScaleByBelief(0.9, 0.999, 1e-16, 1e-16), [1.0, 1.0])
    np.testing.assert_allclose(found, [1.1111111, 1.1680047], rtol=1e-5)


def test_case_F6_optimistic_gradient():
    """The first step has no change."""
    found = updates_of(eqopt.ScaleByOptimisticGradient(1.0, 1.0), [1.0, 2.0, 4.0])
    np.testing.assert_allclose(found, [1.0, 3.0, 6.0], rtol=1e-5)


@pytest.mark.parametrize(
    "flags, second",
    [({}, 0.4736842), ({"max_of_corrected": False}, 0.6697231)],
    ids=["optax", "torch"],
)
def test_case_F7_amsgrad(flags, second):
    """The largest corrected moment, which is the default, and the corrected largest moment."""
    found = updates_of(eqopt.ScaleByAMSGrad(0.9, 0.999, **flags), [1.0, 0.0])
    np.testing.assert_allclose(found, [1.0, second], rtol=1e-5)


@pytest.mark.parametrize("offset", [0, 3])
def test_case_F10_offset(offset):
    """An offset ahead of the count changes nothing here, where all gradients are equal."""
    optim = eqopt.ScaleByFactoredRMS(step_offset=offset) >> eqopt.ScaleByParamBlockRMS()
    optim = optim >> eqopt.ScaleByLearningRate(1e-3)
    params, state, found = jnp.ones(()), None, []
    state = optim.init(params)
    for _ in range(5):
        params, state = optim.step(jnp.ones(()), state, params)
        found.append(float(params))
    np.testing.assert_allclose(found, [0.999, 0.998001, 0.997003, 0.996006, 0.995010], rtol=1e-6)


@pytest.mark.parametrize("shape, factored", [((128, 64), False), ((128, 128), True)])
def test_case_F10_what_is_factored(shape, factored):
    """A leaf is factored if its second longest axis reaches the minimum."""
    optim = eqopt.ScaleByFactoredRMS(min_dim_size_to_factor=128)
    state = jax.eval_shape(optim.init, jax.ShapeDtypeStruct(shape, jnp.float32)).inner
    assert state.v.shape == (() if factored else shape)
    assert (state.v_row.shape == (128,)) is factored


@pytest.mark.parametrize("shape", [(), (1,)], ids=["scalar", "vector"])
def test_case_F11_sm3(shape):
    """A scalar is like a vector of length 1."""
    found = updates_of(eqopt.ScaleBySM3(b1=0.0), [2.0, 1.0], jnp.ones(shape))
    np.testing.assert_allclose(found, [1.0, 0.4472136], rtol=1e-5)


def test_yogi_without_gradients_stays():
    """The first moment starts at 0, so nothing moves before the first gradient."""
    assert updates_of(eqopt.ScaleByYogi(), [0.0, 0.0, 0.0]) == [0.0, 0.0, 0.0]


def test_radam_in_float32():
    """The first rectified steps, where the two terms of rho are near 2000 and their difference
    near 5, have the factor that exact arithmetic gives."""
    b2, optim = 0.9990000128746033, eqopt.ScaleByRAdam(b2=0.999)  # 0.999 in float32
    state = optim.init(jnp.ones(()))
    longest = 2 / (1 - b2) - 1
    for t in range(1, 40):
        update, state = optim(jnp.ones(()), state)
        length = longest - 2 * t * b2**t / (1 - b2**t)
        wanted = 1.0
        if length >= 5:
            wanted = (length - 4) * (length - 2) * longest
            wanted = (wanted / ((longest - 4) * (longest - 2) * length)) ** 0.5
        np.testing.assert_allclose(update, wanted, rtol=3e-6, err_msg=f"step {t}")


@pytest.mark.parametrize("mode", ["hard", "refined"])
def test_lion_keeps_nan(mode):
    """Where the gradient is NaN so is the update: a guard behind must see it."""
    optim = eqopt.ScaleByLion(mode=mode)
    update, _ = optim(jnp.array([jnp.nan, 1.0]), optim.init(jnp.ones(2)))
    assert np.isnan(update[0]) and update[1] == (1.0 if mode == "hard" else update[1])


def test_rprop_refuses_complex_parameters():
    """There is no sign that grows or shrinks a complex step."""
    optim = eqopt.Identity() >> eqopt.ScaleByRProp(0.1)
    with pytest.raises(TypeError, match=r"`ScaleByRProp` must be given real .* complex64 at `.*a"):
        optim.init({"a": jnp.ones(2, jnp.complex64)})


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: eqopt.ScaleByLion(mode="soft"), r"`ScaleByLion\(mode=...\)` must be .*'soft'"),
        (lambda: eqopt.ScaleByLion(smooth_beta=1.0), r"`ScaleByLion\(smooth_beta=...\)` belongs"),
        (
            lambda: eqopt.ScaleByFactoredRMS(min_dim_size_to_factor=0),
            r"min_dim_size_to_factor=...\)` must be positive; got 0",
        ),
        (lambda: eqopt.ScaleBySM3(b2=1.1), r"`ScaleBySM3\(b2=...\)` must be in \[0, 1\]; got 1.1"),
        (lambda: eqopt.ScaleByRProp(0.0), r"learning_rate=...\)` must be positive; got 0.0"),
        (lambda: eqopt.ScaleByAdan(b3=1.0), r"`ScaleByAdan\(b3=...\)` must be in \[0, 1\); got 1"),
        (lambda: eqopt.ScaleByYogi(initial_accumulator_value=-1.0), "must be at least 0; got -1.0"),
    ],
)
def test_bad_input(build, message):
    """Errors at construction name class, argument, rule and value."""
    with pytest.raises(ValueError, match=message):
        build()
