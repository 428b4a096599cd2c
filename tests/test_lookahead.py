"""Lookahead: its trajectory, its period, what is reset, and its precision."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import trees
from trajectories import check_trajectory, problem, tree

import eqopt
from eqopt import schedules

RATE, MOMENTUM, PERIOD, SLOW = 0.1, 0.8, 3, 0.4


def lookahead(reset, memory):
    """Zhang et al. 2019, algorithm 1, around SGD with momentum; the memory is the caller's."""

    def update(t, g, theta, _):
        if t == 1:
            memory.update(phi=theta, v=0)
        memory["v"] = MOMENTUM * memory["v"] + g
        new = theta - RATE * memory["v"]  # line 6: a step of the inner optimizer
        if t % PERIOD == 0:
            memory["phi"] = memory["phi"] + SLOW * (new - memory["phi"])  # line 8
            new = memory["phi"]  # line 3
            if reset:
                memory["v"] = 0
        return new - theta

    return update


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("is_complex", [False, True])
def test_trajectory(reset, is_complex):
    """Ten updates agree with the paper, in both forms."""
    optim = eqopt.Lookahead(eqopt.SGD(RATE, MOMENTUM), PERIOD, SLOW, reset_state=reset)
    check_trajectory(optim, lookahead(reset, {}), is_complex)


@pytest.mark.usefixtures("x64")
def test_slow_weights():
    """The parameters to evaluate with are the slow weights at each step."""
    memory = {}
    reference = lookahead(False, memory)
    wanted, grads = problem(False)
    params = tree(wanted)
    optim = eqopt.Lookahead(eqopt.SGD(RATE, MOMENTUM), PERIOD, SLOW)
    state = optim.init(params)
    trees.assert_equal(optim.eval_params(state, params), params)
    for t, g in enumerate(grads, start=1):
        wanted = wanted + reference(t, g, wanted, None)
        params, state = optim.step(tree(g), state, params)
        slow = trees.flat(optim.eval_params(state, params))
        np.testing.assert_allclose(slow, memory["phi"], rtol=1e-12)


# ---- the period


def syncs(optim, steps=10):
    """After which updates the slow weights moved."""
    grads = jnp.ones(steps)

    def body(carry, g):
        params, state = optim.step(g, *carry)
        return (state, params), eqopt.find(state, eqopt.LookaheadState).steps_since_sync

    since = jax.lax.scan(body, (optim.init(jnp.zeros(())), jnp.zeros(())), grads)[1]
    return since == 0


def at(*updates):
    """Which of ten updates, counted from 1, those are."""
    return np.isin(np.arange(1, 11), updates)


@pytest.mark.parametrize(
    ("period", "wanted"),
    [
        (1, at(*range(1, 11))),
        (jnp.asarray(4), at(4, 8)),
        (2.5, at(3, 6, 9)),
        # 1 + t / 3 at the counts t = 0, 1, ...: 1, 1.3, 1.7, 2, 2.3, 2.7, 3, 3.3, 3.7, 4.
        (schedules.Linear(1.0, 4.0, steps=9), at(1, 3, 6, 10)),
    ],
)
def test_periods(period, wanted):
    """Numbers, arrays and schedules; a period that is not whole is rounded up."""
    np.testing.assert_array_equal(syncs(eqopt.Lookahead(eqopt.SGD(0.1), period, 0.5)), wanted)


def test_periods_in_lanes():
    """The period may be traced, each lane with its own."""
    optims = eqx.filter_vmap(lambda k: eqopt.Lookahead(eqopt.SGD(0.1), k, 0.5))(jnp.array([2, 5]))
    np.testing.assert_array_equal(eqx.filter_vmap(syncs)(optims), [at(2, 4, 6, 8, 10), at(5, 10)])


@pytest.mark.parametrize(("step_size", "wanted"), [(1.0, 0.6), (0.0, 1.0)])
def test_ends_of_the_step_size(step_size, wanted):
    """With 1 it is the inner optimizer; with 0 it goes back to the start."""
    optim = eqopt.Lookahead(eqopt.SGD(0.1), 2, step_size)
    params = jnp.ones(())
    state = optim.init(params)
    for _ in range(4):
        params, state = optim.step(jnp.ones(()), state, params)
    np.testing.assert_allclose(params, wanted, rtol=1e-6)


# ---- what is inside


def test_reset_state():
    """At a synchronisation the inner state is what `init` gives, its count too, so that a schedule
    inside begins anew; without the flag both go on."""
    inner = eqopt.Adam(schedules.Linear(0.1, 0.0, steps=4))
    params, grads = trees.params(), trees.grads(trees.params(), 0)
    for reset, count in ((True, 0), (False, 2)):
        optim = eqopt.Lookahead(inner, 2, 0.5, reset_state=reset)
        state, p = optim.init(params), params
        for _ in range(2):
            p, state = optim.step(grads, state, p)
        assert int(state.inner.inner_state.count) == count and int(state.count) == 2
        mu = eqopt.find(state, eqopt.ScaleByAdamState).mu
        assert reset == all(bool(jnp.all(x == 0)) for x in jax.tree.leaves(mu))
        rate = eqopt.hyperparameters(optim, state)["lookahead.adam.learning_rate"]
        np.testing.assert_allclose(rate, 0.1 * (1 - count / 4), rtol=1e-6)


def test_reset_of_averages_and_keys():
    """An average inside begins anew at the new parameters, in buffers of its own; typed keys and
    counts in a state of optax's stay what they are."""
    inner = optax.add_noise(0.1, 0.5, key=jax.random.key(3))
    optim = eqopt.Lookahead(eqopt.EMAParams(eqopt.SGD(0.1) >> inner, 0.5), 1, 0.5, reset_state=True)
    params = trees.params()
    state = optim.init(params)
    keys = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    assert len(keys) == 1
    new, after = optim.step(trees.grads(params, 0), state, params)
    for x, y in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
    average = eqopt.find(after, eqopt.EMAParamsState).average
    trees.assert_equal(average, new)
    for x, y in zip(jax.tree.leaves(average), jax.tree.leaves(new), strict=True):
        assert x.unsafe_buffer_pointer() != y.unsafe_buffer_pointer()


# ---- precision and memory


def test_slow_weights_of_half_precision():
    """In bfloat16 the neighbours of 256 are 2 apart. A quarter of the way to 258 moves the slow
    weights, which are kept in float32, and after three times the parameters."""
    optim = eqopt.Lookahead(eqopt.SGD(1.0), 1, 0.25)
    params, g = jnp.asarray(256, jnp.bfloat16), jnp.asarray(-2, jnp.bfloat16)
    state = optim.init(params)
    for slow, fast in ((256.5, 256), (256.875, 256), (257.15625, 258)):
        updates, called = optim(g, state, params)
        assert float(eqopt.apply_updates(params, updates)) == fast
        params, state = optim.step(g, state, params)
        trees.assert_equal(called, state)
        assert float(state.inner.slow_params) == slow and float(params) == fast
        assert optim.eval_params(state, params).dtype == jnp.bfloat16


def test_no_copies():
    """A donated step copies no buffer of the size of the parameters."""
    params = {"w": jnp.ones(2**16), "v": jnp.ones(2**16)}
    optim = eqopt.Lookahead(eqopt.AdamW(1e-3), 5, 0.5)

    def step(params, state, grads):
        return optim.step(grads, state, params)

    step = jax.jit(step, donate_argnums=(0, 1))
    text = step.lower(params, optim.init(params), params).compile().as_text()
    arrays = [line for line in text.splitlines() if f"= f32[{2**16}]" in line]
    assert arrays and not [line for line in arrays if " copy(" in line]
