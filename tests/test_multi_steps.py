"""`MultiSteps`: several small batches give what one large batch does."""

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import eqopt
from eqopt import schedules

EVERY = 3
UPDATES = 3


def of_mean_alone():
    """The optimizers whose update is a function of the mean gradient, without randomness."""
    return {name: case for name, case in cases.REPORTED.items() if not case.random}


@pytest.mark.parametrize("name", of_mean_alone())
def test_equals_the_large_batch(name):
    """Three gradients for each update give the parameters and the inner state that their mean
    gives, by `step` and by the update; in between nothing moves."""
    case = cases.REPORTED[name]
    start = trees.small_params()
    small = trees.stack([trees.grads(start, t) for t in range(EVERY * UPDATES)])
    value = jnp.linspace(0.5, 0.9, EVERY * UPDATES)
    grouped = jax.tree.map(lambda x: x.reshape(UPDATES, EVERY, *x.shape[1:]), (small, value))
    mean = jax.tree.map(lambda x: x.mean(1), grouped)
    keywords = frozenset(case.extras(start, start))

    def train(optim, applies, inputs):
        def body(carry, inputs):
            grads, value = inputs
            params, state = carry
            extras = {"value": value} if "value" in keywords else {}
            if applies:
                carry = optim.step(grads, state, params, **extras)
            else:
                updates, state = optim(grads, state, params, **extras)
                carry = eqopt.apply_updates(params, updates), state
            return carry, carry[0]

        return jax.lax.scan(body, (start, optim.init(start)), inputs)

    def run():
        many = eqopt.MultiSteps(case.optim, EVERY)
        inputs = (small, value)
        return train(many, True, inputs), train(many, False, inputs), train(case.optim, True, mean)

    stepped, updated, (wanted, path) = trees.quick_jit(run)()
    for (params, state), each in (stepped, updated):
        trees.assert_close((params, state.inner.inner_state), wanted, rtol=2e-5, atol=2e-5)
        each = jax.tree.map(lambda x: x.reshape(UPDATES, EVERY, *x.shape[1:]), each)
        trees.assert_close(jax.tree.map(lambda x: x[:, -1], each), path, rtol=2e-5, atol=2e-5)
        before = jax.tree.map(lambda x, s: jnp.concatenate([s[None], x[:-1, -1]]), each, start)
        for i in range(EVERY - 1):
            trees.assert_equal(jax.tree.map(lambda x, i=i: x[:, i], each), before)


def gathered(optim, grads, params, **extras):
    """The updates and the states of scalar gradients, with one entry of each extra for each."""

    def body(state, inputs):
        g, extras = inputs
        updates, state = optim(g, state, params, **extras)
        return state, (updates, state)

    inputs = (jnp.asarray(grads, params.dtype), extras)
    return jax.jit(lambda x: jax.lax.scan(body, optim.init(params), x)[1])(inputs)


def test_sum():
    """The sum of 1, 2 and 6 in place of their mean."""
    p = jnp.asarray(0.0)
    updates, _ = gathered(eqopt.MultiSteps(eqopt.SGD(1.0), 3, use_grad_mean=False), [1, 2, 6], p)
    np.testing.assert_array_equal(updates, [0, 0, -9])


@pytest.mark.parametrize("use_mean", [True, False])
def test_value_is_gathered_like_the_gradients(use_mean):
    """The inner transformation sees the mean, or the sum, of the losses."""
    optim = eqopt.MultiSteps(_Seen(), 2, use_grad_mean=use_mean)
    updates, _ = gathered(optim, [0, 0, 0, 0], jnp.asarray(0.0), value=jnp.array([1.0, 4, 5, 7]))
    wanted = np.array([0, 5, 0, 12]) / (2 if use_mean else 1)
    np.testing.assert_array_equal(updates, wanted)


class _Seen(eqopt.AbstractTransform):
    """Gives the loss as the update."""

    def _init(self, params):
        return None

    def _update(self, updates, state, params, count, **extras):
        return jax.tree.map(lambda x: x + extras["value"].astype(x.dtype), updates), None


def test_accumulator_dtype():
    """In bfloat16 on request: 256 + 1 stays 256."""
    p = jnp.asarray(0.0, jnp.bfloat16)
    optim = eqopt.MultiSteps(eqopt.SGD(1.0), 2, use_grad_mean=False, accumulator_dtype=jnp.bfloat16)
    updates, state = gathered(optim, [256, 1], p)
    assert updates[1] == -256 and state.inner.acc_grads.dtype == jnp.bfloat16


def test_skipped_gradient_does_not_count():
    """Around it, `SkipNotFinite` waits for two finite gradients; nothing is poisoned."""
    optim = eqopt.SkipNotFinite(eqopt.MultiSteps(eqopt.SGD(1.0), 2))
    updates, state = gathered(optim, [1, np.nan, 3, np.inf, 5, 7], jnp.asarray(0.0))
    np.testing.assert_array_equal(updates, [0, 0, -2, 0, 0, -6])
    np.testing.assert_array_equal(state.inner.skip_count, [0, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(state.inner.last_skip, [-1, 1, 1, 3, 3, 3])


def test_inner_schedule_goes_by_its_updates():
    """The learning rate 1, 2, 3 of the updates, not of the gradients."""
    rate = schedules.Linear(1.0, 5.0, 4)
    updates, _ = gathered(eqopt.MultiSteps(eqopt.SGD(rate), 2), [1] * 6, jnp.asarray(0.0))
    np.testing.assert_allclose(updates, [0, -1, 0, -2, 0, -3])


def test_has_updated():
    """True after each second gradient, also from inside a chain; not before the first."""
    p = jnp.asarray(1.0)
    optim = eqopt.MultiSteps(eqopt.SGD(1.0), 2)
    chain = optim >> eqopt.Scale(2.0)
    assert not optim.has_updated(optim.init(p))
    _, state = gathered(chain, [1] * 5, p)
    found = jax.vmap(optim.has_updated)(state)
    np.testing.assert_array_equal(found, [False, True, False, True, False])


def test_has_updated_of_one_inside_another():
    """The outer one answers; the inner one when it is given the outer one's inner state."""
    p = jnp.asarray(1.0)
    inner = eqopt.MultiSteps(eqopt.SGD(1.0), 2)
    outer = eqopt.MultiSteps(inner, 2)
    _, state = gathered(outer, [1] * 4, p)
    for optim in (outer, inner):
        found = jax.vmap(optim.has_updated)(state)
        np.testing.assert_array_equal(found, [False, True, False, True])
    found = jax.vmap(inner.has_updated)(state.inner.inner_state)
    np.testing.assert_array_equal(found, [False, False, False, True])


def test_hyperparameters_go_by_the_clock_of_each():
    """`every_k` by the updates made, the numbers inside too."""
    every = schedules.PiecewiseConstant([1.0, 3.0], [2])
    optim = eqopt.MultiSteps(eqopt.SGD(schedules.Linear(1.0, 5.0, 4)), every)
    _, state = gathered(optim, [1] * 3, jnp.asarray(0.0))
    last = jax.tree.map(lambda x: x[-1], state)
    found = eqopt.hyperparameters(optim, last)
    # Two updates at k = 1, one of the two gradients towards the third.
    assert found["multi_steps.every_k"] == 3
    assert found["multi_steps.sgd.learning_rate"] == 3


def test_lanes_count_alone():
    """Under vmap each lane has its own number of gradients."""
    start = jnp.zeros(2)
    optims = eqx.filter_vmap(lambda k: eqopt.MultiSteps(eqopt.SGD(1.0), k))(jnp.array([1, 2]))

    @eqx.filter_vmap
    def run(optim, p):
        return gathered(optim, [1, 3], p)[0]

    np.testing.assert_array_equal(run(optims, start), [[-1, -3], [0, -2]])


def test_errors():
    with pytest.raises(ValueError, match=r"MultiSteps\(every_k=...\)` must be .*got 0"):
        eqopt.MultiSteps(eqopt.SGD(1.0), 0)
    with pytest.raises(TypeError, match=r"MultiSteps\(inner=...\)` must be .*got 3"):
        eqopt.MultiSteps(3, 2)
    with pytest.raises(TypeError, match=r"MultiSteps\(inner=...\)` must be .*an instance"):
        eqopt.MultiSteps(eqopt.SGD, 2)


def test_losses_of_a_former_round_are_left_behind():
    """Also where the first gradient of a round comes without one: the missing one counts as 0."""
    optim = eqopt.MultiSteps(eqopt.SGD(1.0), 2)
    params = jnp.ones(2)
    state = optim.init(params)
    totals = []
    for losses in ({"value": 5.0}, {"value": 7.0}, {}, {"value": 4.0}, {}, {}):
        _, state = optim.step(params, state, params, **losses)
        totals.append(float(state.inner.acc_value))
    assert totals == [5.0, 12.0, 0.0, 4.0, 0.0, 0.0]


def test_a_loss_for_each_example_is_refused():
    """It would change the shape of the state."""
    optim, params = eqopt.MultiSteps(eqopt.Adam(0.1), 2), jnp.ones(2)
    with pytest.raises(TypeError, match="`MultiSteps`: `value` must be a real scalar"):
        optim.step(params, optim.init(params), params, value=jnp.ones(3))
