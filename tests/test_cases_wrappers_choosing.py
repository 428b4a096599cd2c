"""Reported cases about wrappers that choose leaves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt
from eqopt import schedules, select


class Called(eqx.Module):
    """A model, or a tree of decisions about one, that fails when it is called."""

    first: object
    second: object

    def __call__(self, x, key):
        raise AssertionError("called")


def decaying(rate):
    """SGD with weight decay 0.1."""
    return eqopt.AddDecayedWeights(0.1) >> eqopt.SGD(rate)


@pytest.mark.parametrize("rate", [0.1, schedules.Constant(0.1)], ids=["number", "schedule"])
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize(
    "build",
    [
        lambda rate: eqopt.Masked(decaying(rate), Called(True, False)),
        lambda rate: eqopt.Freeze(decaying(rate), Called(False, True)),
        lambda rate: eqopt.Partition({"a": decaying(rate), "b": eqopt.SGD(rate)}, Called("a", "b")),
        lambda rate: eqopt.Partition(
            [(Called(True, False), decaying(rate))], default=eqopt.SGD(rate)
        ),
    ],
    ids=["Masked", "Freeze", "labels", "rules"],
)
def test_case_I2_callable_trees_of_decisions(build, dynamic, rate):
    """Only the marked leaf decays, by 0.1 * 0.1, and neither tree is called."""
    optim = eqopt.dynamic(build(rate)) if dynamic else build(rate)
    params = Called(jnp.ones(()), jnp.ones(()))
    grads = jax.tree.map(jnp.zeros_like, params)
    new, _ = eqx.filter_jit(lambda o, g, p: o.step(g, o.init(p), p))(optim, grads, params)
    np.testing.assert_allclose(new.first, 0.99, rtol=1e-6)
    assert float(new.second) == 1.0


def test_case_I3_masked_passes_and_freeze_stops():
    """With SGD(0.1), a gradient of 1 and `b` left out: -0.1 for `a`, and for `b` the gradient
    itself where it is masked, 0 where it is frozen."""
    params = {"a": jnp.zeros(()), "b": jnp.zeros(())}
    grads = jax.tree.map(jnp.ones_like, params)
    masked = eqopt.Masked(eqopt.SGD(0.1), {"a": True, "b": False})
    frozen = eqopt.Freeze(eqopt.SGD(0.1), {"a": False, "b": True})
    for optim, b in ((masked, 1.0), (frozen, 0.0)):
        state = optim.init(params)
        updates, _ = optim(grads, state, params)
        new, _ = optim.step(grads, state, params)
        for found in (updates, new):
            np.testing.assert_allclose(found["a"], -0.1, rtol=1e-6)
            assert float(found["b"]) == b


def test_case_I4_frozen_is_bit_equal():
    """AdamW with weight decay 0.1 and momentum from earlier steps leaves a frozen 1.0 exactly as
    it is for 10 steps, and the other leaf goes on with its moments."""
    adamw = eqopt.AdamW(0.1, weight_decay=0.1)
    params = {"a": jnp.ones(()), "b": jnp.ones(())}
    ones, zeros = (jax.tree.map(f, params) for f in (jnp.ones_like, jnp.zeros_like))
    state = adamw.init(params)
    _, state = adamw.step(ones, state, params)
    optim = eqopt.Freeze(adamw, select.Path("b"))
    new, state = params, eqopt.extend_state(optim, state, params)
    assert float(eqopt.find(state, eqopt.ScaleByAdamState).mu["a"]) > 0
    step = jax.jit(lambda s, p: optim.step(zeros, s, p))
    for _ in range(10):
        new, state = step(state, new)
    assert float(new["b"]) == 1.0
    assert float(new["a"]) < 1.0
    eager, _ = optim.step(zeros, state, params)
    assert eager["b"] is params["b"]


@pytest.mark.parametrize("wrapper", [eqopt.Freeze, eqopt.SelectiveTransform])
def test_case_I4_no_state_for_what_is_frozen(wrapper):
    """Frozen from the start, a leaf has no state, and its NaN gradient harms nothing."""
    optim = wrapper(eqopt.ClipByGlobalNorm(1.0) >> eqopt.AdamW(0.1), select.Path("b"))
    params = {"a": jnp.ones(()), "b": jnp.ones(())}
    grads = {"a": jnp.ones(()), "b": jnp.asarray(jnp.nan)}
    state = optim.init(params)
    adam = eqopt.find(state, eqopt.ScaleByAdamState)
    assert adam.mu["b"] is None and adam.nu["b"] is None
    updates, _ = optim(grads, state, params)
    assert float(updates["b"]) == 0.0 and np.isfinite(updates["a"])
