"""Reported cases about wrappers."""

import jax.numpy as jnp
import numpy as np

import eqopt


def test_case_E7_lookahead_numbers():
    """From 1 with the gradient 1, rate 0.1, period 2 and slow step 0.5: fast and slow weights."""
    optim = eqopt.Lookahead(eqopt.SGD(0.1), sync_period=2, slow_step_size=0.5)
    params = called = jnp.ones(())
    state = optim.init(params)
    found = []
    for _ in range(4):
        updates, _ = optim(jnp.ones(()), state, params)
        called = eqopt.apply_updates(called, updates)
        params, state = optim.step(jnp.ones(()), state, params)
        found.append((params, optim.eval_params(state, params), called))
    wanted = [(0.9, 1, 0.9), (0.9, 0.9, 0.9), (0.8, 0.9, 0.8), (0.8, 0.8, 0.8)]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_case_E7_weight_decay_sees_the_fast_weights():
    """Without gradients, rate 0.1 and decay 1 take a tenth of the fast weights each time: 0.9,
    0.81, half way back 0.905; of the slow weights it would be 0.9, 0.8, 0.9."""
    optim = eqopt.Lookahead(eqopt.AdamW(0.1, weight_decay=1.0), sync_period=2, slow_step_size=0.5)
    params, zero = jnp.ones(()), jnp.zeros(())
    state = optim.init(params)
    found = []
    for _ in range(3):
        params, state = optim.step(zero, state, params)
        found.append((params, optim.eval_params(state, params)))
    wanted = [(0.9, 1), (0.905, 0.905), (0.8145, 0.905)]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
