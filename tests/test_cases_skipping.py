"""Reported cases about gradients that are gathered or left out."""

import jax
import jax.numpy as jnp
import numpy as np
import trees

import eqopt
from eqopt import schedules


def updates_of(optim, grads, params):
    """The updates of gradients one after the other, without parameters that move."""

    def body(state, g):
        updates, state = optim(g, state, params)
        return state, (updates, state)

    grads = jnp.asarray(grads, params.dtype)
    return jax.jit(lambda x: jax.lax.scan(body, optim.init(params), x)[1])(grads)


def test_case_B5_accumulator_in_float32():
    """Gradients 256, 1, 1, 1 in bfloat16: their mean is 64.75, which rounds to 65."""
    updates, state = updates_of(
        eqopt.MultiSteps(eqopt.SGD(1.0), 4), [256, 1, 1, 1], jnp.asarray(0.0, jnp.bfloat16)
    )
    assert updates.dtype == jnp.bfloat16
    np.testing.assert_array_equal(updates.astype(float), [0, 0, 0, -65])
    assert state.inner.acc_grads.dtype == jnp.float32 and state.inner.acc_grads[-1] == 259


def test_case_E1_accumulation_equals_the_mean():
    updates, _ = updates_of(eqopt.MultiSteps(eqopt.SGD(1.0), 2), [1, 3], jnp.asarray(1.0))
    np.testing.assert_array_equal(updates, [0, -2])
    decays = eqopt.MultiSteps(eqopt.AdamW(0.1, weight_decay=0.1), 2)
    updates, _ = updates_of(decays, [0, 0], jnp.asarray(1.0))
    np.testing.assert_allclose(updates, [0, -0.01], rtol=1e-6)


def two_then_three(count):
    return jnp.where(count < 2, 1, 3)


def test_case_E2_every_k_from_a_schedule():
    """One gradient for each of the first two updates, then three; inside, the clock is that of
    the updates."""
    every = schedules.FromFunction(two_then_three)
    optim = eqopt.MultiSteps(eqopt.SGD(1.0), every)
    updates, state = updates_of(optim, np.ones(8), jnp.asarray(1.0))
    np.testing.assert_array_equal(updates, [-1, -1, 0, 0, -1, 0, 0, -1])
    assert state.inner.inner_state.count[-1] == 4
    rate = schedules.PiecewiseInterpolate([0.0, 10.0], [10])
    updates, _ = updates_of(eqopt.MultiSteps(eqopt.SGD(rate), every), np.ones(8), jnp.asarray(1.0))
    np.testing.assert_allclose(updates, [0, -1, 0, 0, -2, 0, 0, -3], rtol=1e-6)


def test_case_E4_apply_if_finite_counts():
    """Two in a row are left out, the third is let through; the streak grows until it ends."""
    optim = eqopt.ApplyIfFinite(eqopt.Adam(0.1), 2)
    p = jnp.asarray(1.0)
    updates, state = updates_of(optim, [np.nan, np.nan, np.nan, 1], p)
    np.testing.assert_array_equal(updates[:2], 0)
    assert np.isnan(updates[2])
    found = state.inner
    np.testing.assert_array_equal(found.notfinite_count, [1, 2, 3, 0])
    np.testing.assert_array_equal(found.total_notfinite, [1, 2, 3, 3])
    np.testing.assert_array_equal(found.last_finite, [False, False, False, True])
    start = optim.init(p).inner.inner_state
    for i in range(2):
        trees.assert_equal(jax.tree.map(lambda x, i=i: x[i], found.inner_state), start)
    np.testing.assert_array_equal(found.inner_state.count, [0, 0, 1, 2])


def is_two(updates, params):
    return updates == 2


def test_case_E5_skipped_step_keeps_moments():
    """Two Adam steps with one that was skipped in between are two Adam steps."""
    p = jnp.asarray(1.0)
    updates, state = updates_of(eqopt.SkipIf(eqopt.Adam(0.1), is_two), [1, 2, 1], p)
    wanted, plain = updates_of(eqopt.Adam(0.1), [1, 1], p)
    np.testing.assert_array_equal(updates, [wanted[0], 0, wanted[1]])
    last = (jax.tree.map(lambda x: x[-1], s) for s in (state.inner.inner_state, plain))
    trees.assert_equal(*last)
