"""Norms and safe arithmetic: accuracy, and derivatives where the textbook formula has none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt
from eqopt._core.arithmetic import (
    abs_sq,
    bias_correction,
    debias,
    ema,
    increment,
    safe_divide,
    safe_sqrt,
)
from eqopt._core.norms import global_squared_norm, leaf_norm


def test_global_norm_over_leaves():
    """One vector over all leaves, `None` left out."""
    tree = {"a": jnp.asarray([[3.0]]), "b": jnp.asarray(4.0), "c": None, "d": jnp.asarray([12.0])}
    np.testing.assert_allclose(eqopt.global_norm(tree), 13.0, rtol=1e-6)
    np.testing.assert_allclose(global_squared_norm(tree), 169.0, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_does_not_overflow(dtype):
    """300^2 is beyond float16, and 4096 ones sum to more than bfloat16 can count."""
    norm = eqopt.global_norm(jnp.asarray([300.0, 400.0], dtype))
    assert norm.dtype == jnp.float32
    np.testing.assert_allclose(norm, 500.0, rtol=2.0**-8)
    np.testing.assert_allclose(eqopt.global_norm(jnp.ones(4096, dtype)), 64.0, rtol=1e-6)


def test_complex_norm():
    """The moduli count; the result is real."""
    norm = eqopt.global_norm([jnp.asarray([3.0j]), jnp.asarray(4.0 + 12.0j)])
    assert norm.dtype == jnp.float32
    np.testing.assert_allclose(norm, 13.0, rtol=1e-6)


def test_mixed_dtypes(x64):
    """The widest leaf decides the dtype: the float64 part is not rounded to float32."""
    tree = {"a": jnp.asarray([3.0], jnp.float16), "b": jnp.asarray([4.0], jnp.float32)}
    assert eqopt.global_norm(tree).dtype == jnp.float32
    tree["c"] = jnp.asarray([1e-5], jnp.float64)
    norm = eqopt.global_norm(tree)
    assert norm.dtype == jnp.float64
    np.testing.assert_allclose(norm, np.sqrt(25.0 + 1e-10), rtol=1e-15)


@pytest.mark.parametrize("tree", [{}, None, {"a": None}, {"a": jnp.zeros(0)}, [jnp.zeros((2, 0))]])
def test_empty_trees(tree):
    """No leaf, or no element, is norm 0."""
    norm = eqopt.global_norm(tree)
    assert norm.shape == ()
    assert float(norm) == 0.0


@pytest.mark.parametrize("norm", [eqopt.global_norm, leaf_norm], ids=["global", "leaf"])
def test_derivatives_of_norms_at_zero(norm):
    """0, forwards and backwards, first and second; elsewhere the unit vector."""
    zero = jnp.zeros(3)
    np.testing.assert_array_equal(jax.grad(norm)(zero), np.zeros(3))
    np.testing.assert_array_equal(jax.jacfwd(norm)(zero), np.zeros(3))
    assert np.all(np.isfinite(jax.hessian(norm)(zero)))
    np.testing.assert_allclose(jax.grad(norm)(jnp.asarray([3.0, -4.0])), [0.6, -0.8], rtol=1e-6)


def test_derivative_of_the_norm_with_one_zero_leaf():
    """A zero leaf beside others has derivative 0 too."""
    slopes = jax.grad(eqopt.global_norm)({"a": jnp.zeros(2), "b": jnp.asarray(2.0)})
    np.testing.assert_array_equal(slopes["a"], np.zeros(2))
    assert float(slopes["b"]) == 1.0


def test_derivative_of_the_complex_norm_at_zero():
    """0 at 0 for complex numbers."""
    zero = jnp.zeros(2, jnp.complex64)
    np.testing.assert_array_equal(jax.grad(eqopt.global_norm)(zero), np.zeros(2))


def test_safe_sqrt_values():
    """It is the square root, NaN for a negative number included."""
    x = jnp.asarray([0.0, 1e-30, 4.0, jnp.inf])
    np.testing.assert_array_equal(safe_sqrt(x), np.sqrt(np.asarray(x)))
    assert np.isnan(safe_sqrt(jnp.asarray(-1.0)))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_safe_sqrt_derivatives(order, x64):
    """At 0 all derivatives are 0; elsewhere they are the root's."""
    derivative = safe_sqrt
    for _ in range(order):
        derivative = jax.grad(derivative)
    assert float(derivative(jnp.asarray(0.0))) == 0.0
    # d^n sqrt(x) at 4: 1/2 x^(-1/2), -1/4 x^(-3/2), 3/8 x^(-5/2)
    wanted = {1: 0.25, 2: -1 / 32, 3: 3 / 256}[order]
    np.testing.assert_allclose(derivative(jnp.asarray(4.0)), wanted, rtol=1e-14)


def test_second_derivative_of_a_root_of_a_square():
    """sqrt(x^2) at 0, as in Adam at a zero gradient: nothing is NaN or infinite."""
    function = jax.grad(jax.grad(lambda x: safe_sqrt(x**2) + safe_sqrt(x**2 + 1e-8)))
    assert np.isfinite(function(jnp.asarray(0.0)))
    assert np.isfinite(jax.jacfwd(jax.jacfwd(lambda x: safe_sqrt(x**2)))(jnp.asarray(0.0)))


# Decay rates as float32 has them, and the correction in float64 by the definition that holds
# there: expm1 and log1p of a rate that float64 represents exactly.
RATES = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999]
COUNTS = [1, 2, 3, 10, 1000, 10**6, 2**31 - 1]


def corrected(rate, count):
    """1 - rate**count in float64, without cancellation."""
    return 1.0 if rate == 0 else -np.expm1(count * np.log1p(rate - 1))


@pytest.mark.parametrize("rate", RATES)
def test_bias_correction_in_float32(rate):
    """Right to float32's precision, where `1 - rate**count` would be off by a percent."""
    rate = np.float32(rate)
    found = [bias_correction(jnp.asarray(rate), jnp.asarray(t)) for t in COUNTS]
    assert all(x.dtype == jnp.float32 for x in found)
    wanted = [corrected(np.float64(rate), t) for t in COUNTS]
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6)


def test_bias_correction_of_the_first_step():
    """After one step a running mean is the first value, to float32's precision: the weight
    1 - rate cancels against the correction."""
    for rate in RATES:
        rate = jnp.asarray(rate, jnp.float32)
        mean = debias(ema(jnp.asarray(0.0), jnp.asarray(3.0), rate), rate, jnp.asarray(1))
        np.testing.assert_allclose(mean, 3.0, rtol=1e-6)


def test_first_step_of_adam_with_long_memory():
    """-learning_rate times the sign, also at b2 = 0.999999."""
    optim = eqopt.Adam(0.1, 0.9, 0.999999)
    x = jnp.asarray([1.0, -3.0])
    updates, _ = optim(x, optim.init(x))
    np.testing.assert_allclose(updates, [-0.1, 0.1], rtol=1e-6)


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd])
@pytest.mark.parametrize("rate", RATES)
def test_derivative_of_bias_correction(rate, derivative, x64):
    """-count * rate**(count - 1), finite at rate 0 too."""
    for count in (1, 2, 3, 10, 1000):
        found = derivative(bias_correction)(jnp.asarray(rate), jnp.asarray(count))
        np.testing.assert_allclose(found, -count * rate ** (count - 1), rtol=1e-12)


def test_second_derivative_of_bias_correction(x64):
    """-count (count - 1) rate**(count - 2), finite at rate 0 too."""
    second = jax.grad(jax.grad(bias_correction))
    for rate in (0.0, 0.5, 0.999):
        assert np.isfinite(second(jnp.asarray(rate), jnp.asarray(1)))
        for count in (2, 3, 10):
            wanted = -count * (count - 1) * rate ** (count - 2)
            found = second(jnp.asarray(rate), jnp.asarray(count))
            np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_safe_divide():
    """0, with derivative 0, where the denominator is 0."""
    assert float(safe_divide(jnp.asarray(1.0), jnp.asarray(0.0))) == 0.0
    assert float(safe_divide(jnp.asarray(1.0), jnp.asarray(4.0))) == 0.25
    for argument in (0, 1):
        slope = jax.grad(safe_divide, argument)(jnp.asarray(1.0), jnp.asarray(0.0))
        assert float(slope) == 0.0


def test_abs_sq():
    """Real for complex numbers, with a derivative at 0."""
    result = abs_sq(jnp.asarray(3.0 + 4.0j))
    assert result.dtype == jnp.float32
    assert float(result) == 25.0
    assert complex(jax.grad(abs_sq)(jnp.asarray(0.0j))) == 0.0
    assert float(abs_sq(jnp.asarray(-3.0))) == 9.0


def test_increment_saturates():
    """The largest count stays."""
    largest = jnp.iinfo(jnp.int32).max
    assert int(increment(jnp.asarray(0))) == 1
    assert int(increment(jnp.asarray(largest - 1))) == largest
    assert int(increment(jnp.asarray(largest))) == largest
