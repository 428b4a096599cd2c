"""Reported cases about optimizers: which weights decay, and by how much."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt
from eqopt import schedules

each_decaying = pytest.mark.parametrize("kind", [eqopt.AdamW, eqopt.NAdamW])


def update_at_one(optim, steps=1):
    """The last of some updates at p = 1 with g = 0."""
    p, g = jnp.ones(()), jnp.zeros(())
    state = optim.init(p)
    for _ in range(steps):
        update, state = optim(g, state, p)
    return float(update)


@each_decaying
def test_case_F9_decay_is_multiplied_by_the_learning_rate(kind):
    """PyTorch's and optax's convention, the default: -0.1 * 0.1 * 1."""
    np.testing.assert_allclose(update_at_one(kind(0.1, weight_decay=0.1)), -0.01, rtol=1e-5)


@each_decaying
def test_case_F9_independent_decay(kind):
    """The paper's convention: -0.1 whatever the learning rate, times the schedule's ratio."""
    for rate in (0.1, 0.3):
        optim = kind(rate, weight_decay=0.1, independent_decay=True)
        np.testing.assert_allclose(update_at_one(optim), -0.1, rtol=1e-5)
    ratio = schedules.Linear(1.0, 0.0, steps=4)  # 1, 0.75, 0.5
    optim = kind(0.1, weight_decay=0.1 * ratio, independent_decay=True)
    np.testing.assert_allclose(update_at_one(optim, 3), -0.1 * 0.5, rtol=1e-5)


@pytest.mark.parametrize("factor, wanted", [(1.0, 0.1), (0.1, 0.01)])
def test_case_F9_added_weights(factor, wanted):
    """`AddDecayedWeights` alone adds the decay, before any learning rate."""
    optim = eqopt.AddDecayedWeights(0.1) >> eqopt.Scale(factor)
    np.testing.assert_allclose(update_at_one(optim), wanted, rtol=1e-5)


class Called(eqx.Module):
    """A model, and a tree of bools, that must not be called."""

    decayed: object
    spared: object

    def __call__(self, first, second):
        raise AssertionError("a tree of bools was called")


@pytest.mark.parametrize(
    "build, factor",
    [
        (lambda where: eqopt.AdamW(0.1, weight_decay=0.1, decay_where=where), -0.1),
        (lambda where: eqopt.NAdamW(0.1, weight_decay=0.1, decay_where=where), -0.1),
        (
            lambda where: eqopt.AdamW(
                schedules.Constant(0.1), weight_decay=schedules.Constant(0.1), decay_where=where
            ),
            -0.1,
        ),
        (lambda where: eqopt.AddDecayedWeights(0.1, where), 1.0),
    ],
    ids=["AdamW", "NAdamW", "AdamW[schedule]", "AddDecayedWeights"],
)
@pytest.mark.parametrize("dynamic", [True, False])
def test_case_I2_tree_of_bools_that_is_callable(build, factor, dynamic):
    """Only the marked leaf decays, by 0.1 * 0.1, and the tree is never called."""
    optim = build(Called(True, False))
    optim = eqopt.dynamic(optim) if dynamic else optim
    params = Called(jnp.ones(()), jnp.ones(()))
    grads = jax.tree.map(jnp.zeros_like, params)
    updates, _ = eqx.filter_jit(lambda o, g, p: o(g, o.init(p), p))(optim, grads, params)
    np.testing.assert_allclose(updates.decayed, factor * 0.1, rtol=1e-5)
    assert float(updates.spared) == 0.0
