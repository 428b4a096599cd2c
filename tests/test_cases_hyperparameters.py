"""Reported cases about hyperparameters as leaves: new values, sweeps, derivatives, schedules."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt
from eqopt import schedules

# Everything that has a learning rate, as a function of it.
ALIASES = {
    "ScaleByLearningRate": eqopt.ScaleByLearningRate,
    "SGD": eqopt.SGD,
    "SGD[momentum]": lambda rate: eqopt.SGD(rate, 0.9),
    "SGD[nesterov]": lambda rate: eqopt.SGD(rate, 0.9, nesterov=True),
    "Adam": eqopt.Adam,
    "AdamW": eqopt.AdamW,
    "AdamW[independent]": lambda rate: eqopt.AdamW(rate, independent_decay=True),
    "NAdam": eqopt.NAdam,
    "NAdamW": eqopt.NAdamW,
}

each_alias = pytest.mark.parametrize("alias", ALIASES.values(), ids=ALIASES.keys())


def traced_step(jit):
    """A jitted step that takes the optimizer as an argument, and the list of its traces."""
    traces = []

    @jit
    def step(optim, params, state):
        traces.append(None)
        return optim.step(jnp.ones(2), state, params)[0]

    return step, traces


@each_alias
def test_case_C1_new_learning_rate_under_jax_jit(alias):
    """Newly built optimizers, and one edited with `tree_at`, run without a new trace."""
    step, traces = traced_step(jax.jit)
    params = jnp.ones(2)
    optims = [alias(rate) for rate in (1e-1, 1e-2, 1e-3)]
    optims.append(eqx.tree_at(lambda o: o.learning_rate, optims[0], 1e-4))
    results = [step(optim, params, optim.init(params)) for optim in optims]
    assert len(traces) == 1
    changes = [float(1.0 - result[0]) for result in results]
    assert changes[0] > 2 * changes[1] > 4 * changes[2] > 8 * changes[3] > 0


@each_alias
def test_case_C1_new_learning_rate_under_filter_jit(alias):
    """With `dynamic` the same holds under `eqx.filter_jit`."""
    step, traces = traced_step(eqx.filter_jit)
    params = jnp.ones(2)
    optims = [eqopt.dynamic(alias(rate)) for rate in (1e-1, 1e-2, 1e-3)]
    optims.append(eqopt.dynamic(eqx.tree_at(lambda o: o.learning_rate, optims[0], 1e-4)))
    results = [step(optim, params, optim.init(params)) for optim in optims]
    assert len(traces) == 1
    assert len({float(result[0]) for result in results}) == 4


RATES = jnp.asarray([0.1, 0.2, 0.3])


def one_step(optim, p, g):
    """The parameters after one step from the start."""
    return optim.step(g, optim.init(p), p)[0]


def test_case_C2_sweep_built_inside_vmap():
    """SGD built under `vmap` from each learning rate."""
    one = jnp.ones(())
    result = jax.vmap(lambda rate: one_step(eqopt.SGD(rate), one, one))(RATES)
    np.testing.assert_allclose(result, [0.9, 0.8, 0.7], rtol=1e-6)


def test_case_C2_sweep_of_a_batched_optimizer():
    """SGD built by `filter_vmap` and used under it."""
    one = jnp.ones(())
    optims = eqx.filter_vmap(eqopt.SGD)(RATES)
    result = eqx.filter_vmap(one_step, in_axes=(eqx.if_array(0), None, None))(optims, one, one)
    np.testing.assert_allclose(result, [0.9, 0.8, 0.7], rtol=1e-6)


@each_alias
def test_case_C2_sweep_equals_a_loop(alias):
    """Each optimizer with a batched learning rate gives what a loop gives."""
    p, g = jnp.asarray([1.0, -2.0]), jnp.asarray([0.5, 1.0])
    optims = eqx.filter_vmap(alias)(RATES)
    result = eqx.filter_vmap(one_step, in_axes=(eqx.if_array(0), None, None))(optims, p, g)
    wanted = [one_step(alias(float(rate)), p, g) for rate in RATES]
    np.testing.assert_allclose(result, jnp.stack(wanted), rtol=1e-6)


def second_iterate(optim):
    """Two steps on x^2 / 2 from 1, whose gradient is x."""
    x = jnp.ones(())
    state = optim.init(x)
    for _ in range(2):
        x, state = optim.step(x, state, x)
    return x


@pytest.mark.parametrize(
    "build",
    [eqopt.SGD, eqopt.ScaleByLearningRate, lambda rate: eqopt.SGD(rate, 0.0)],
    ids=["SGD", "ScaleByLearningRate", "SGD[momentum=0]"],
)
def test_case_C3_derivative_with_respect_to_the_learning_rate(build):
    """x2 = (1 - rate)^2, so d x2 / d rate = -1.8 at 0.1."""
    slope = jax.grad(lambda rate: second_iterate(build(rate)))(0.1)
    np.testing.assert_allclose(slope, -1.8, rtol=1e-6)
    slope = jax.jvp(lambda rate: second_iterate(build(rate)), (0.1,), (1.0,))[1]
    np.testing.assert_allclose(slope, -1.8, rtol=1e-6)


def test_case_C3_derivative_with_filter_grad():
    """The same through `dynamic` and `eqx.filter_grad`, in the structure of the optimizer."""
    slopes = eqx.filter_grad(second_iterate)(eqopt.dynamic(eqopt.SGD(0.1)))
    np.testing.assert_allclose(slopes.learning_rate, -1.8, rtol=1e-6)


@each_alias
def test_case_C5_every_alias_takes_a_schedule(alias):
    """A constant schedule is the same as the number."""
    params = jnp.asarray([1.0, -2.0, 0.5])

    @jax.jit
    def run(params):
        finals = []
        for optim in (alias(0.1), alias(schedules.Constant(0.1))):
            p, state = params, optim.init(params)
            for _ in range(3):
                p, state = optim.step(jnp.sin(p), state, p)
            finals.append(p)
        return finals

    number, schedule = run(params)
    assert not np.allclose(number, params)
    np.testing.assert_allclose(schedule, number, rtol=1e-5)
