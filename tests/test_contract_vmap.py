"""The contract vmap: over parameters and over hyperparameters it equals a loop, and one bad lane
leaves the others alone."""

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import eqopt

STEPS = 3
LANES = 3
WITH_NUMBERS = [name for name, case in cases.TRANSFORMS.items() if jax.tree.leaves(case.optim)]


def lane(tree, i):
    """One lane of a stacked tree."""
    return jax.tree.map(lambda x: x[i], tree)


def lanes_of_params(tree=trees.params):
    """The parameters of each lane: of different sizes and signs."""
    return [jax.tree.map(lambda x, c=c: c * x, tree()) for c in (1.0, -0.3, 2.0)]


def sweep(component):
    """The component with three values for each number: itself, more and less."""

    def values(x):
        x = jnp.asarray(x)
        lanes = jnp.arange(3).reshape((3,) + (1,) * x.ndim)
        factors = jnp.array([1.0, 1.05, 0.9])[lanes]
        return (x * factors if eqx.is_inexact_array(x) else x + lanes).astype(x.dtype)

    return jax.tree.map(values, component)


def run(init, step, grads):
    """Three steps: the parameters after each, and the state at the end. `init` gives the
    parameters and the state."""
    params, state = init()
    trajectory = []
    for g in grads:
        params, state = step(g, state, params)
        trajectory.append(params)
    return trajectory, state


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_over_parameters(name):
    """Parameters and states in lanes equal a loop over the lanes; NaN in the gradients of one lane
    changes no bit of the others."""
    case = cases.TRANSFORMS[name]
    starts = lanes_of_params()
    grads = [[trees.grads(p, 7 * i + t) for i, p in enumerate(starts)] for t in range(STEPS)]

    def step(grads, state, params):
        return case.optim.step(grads, state, params, **case.extras(params, grads))

    loop = [
        run(lambda p=p: (p, case.optim.init(p)), step, [g[i] for g in grads])
        for i, p in enumerate(starts)
    ]
    vmapped = trees.quick_jit(jax.vmap(step))
    params = trees.stack(starts)
    state = jax.vmap(case.optim.init)(params)
    out = run(lambda: (params, state), vmapped, [trees.stack(g) for g in grads])
    trees.assert_close(out, trees.stack(loop), rtol=1e-6, atol=1e-6)

    bad = jax.tree.map(lambda x: x.at[1].set(jnp.nan), trees.stack(grads[0]))
    spoilt = run(lambda: (params, state), vmapped, [bad, *map(trees.stack, grads[1:])])
    for i in (0, 2):
        trees.assert_equal(lane(spoilt, i), lane(out, i))


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_over_hyperparameters(name):
    """Every number in lanes, under `eqx.filter_vmap`, equals a loop over the optimizers; each lane
    but the first differs from it."""
    case = cases.TRANSFORMS[name]
    optims = sweep(case.optim)
    start = trees.params()
    grads = [trees.grads(start, t) for t in range(STEPS)]

    def step(optim, grads, state, params):
        return optim.step(grads, state, params, **case.extras(params, grads))

    def one(i):
        optim = lane(optims, i)
        return run(lambda: (start, optim.init(start)), lambda *args: step(optim, *args), grads)

    params = trees.stack([start] * LANES)
    state = eqx.filter_vmap(lambda optim: optim.init(start))(optims)
    vmapped = eqx.filter_vmap(step, in_axes=(eqx.if_array(0), None, 0, 0))
    jitted = trees.quick_jit(lambda *args: vmapped(*args))
    out = run(lambda: (params, state), lambda *args: jitted(optims, *args), grads)
    trees.assert_close(out, trees.stack([one(i) for i in range(LANES)]), rtol=1e-6, atol=1e-6)
    for i in (1, 2):
        seen = out if case.observes else out[0]
        differs = jax.tree.map(lambda x, i=i: jnp.any(x[i] != x[0]), seen)
        assert any(jax.tree.leaves(differs))


@pytest.mark.parametrize("name", cases.SCHEDULES)
def test_schedules(name):
    """A schedule with every number in lanes equals a loop over the schedules, and so does a
    schedule over a lane of counts."""
    schedule = cases.SCHEDULES[name].schedule
    counts = jnp.arange(8)
    trees.assert_close(jax.vmap(schedule)(counts), schedule(counts))
    if jax.tree.leaves(schedule):
        schedules = sweep(schedule)
        out = eqx.filter_vmap(lambda schedule: schedule(counts))(schedules)
        loop = jnp.stack([lane(schedules, i)(counts) for i in range(LANES)])
        trees.assert_close(out, loop)
        assert np.any(out[1] != out[0]) and np.any(out[2] != out[0])


@pytest.mark.parametrize("name", cases.PROJECTIONS)
def test_projections(name):
    """A projection of trees in lanes, and with every number in lanes, equals a loop; a lane of NaN
    leaves the others alone."""
    case = cases.PROJECTIONS[name]
    projection, starts = case.projection, lanes_of_params(case.tree)
    stacked = trees.stack(starts)
    out = jax.vmap(projection)(stacked)
    trees.assert_close(out, trees.stack([projection(p) for p in starts]))
    spoilt = jax.vmap(projection)(jax.tree.map(lambda x: x.at[1].set(jnp.nan), stacked))
    for i in (0, 2):
        trees.assert_equal(lane(spoilt, i), lane(out, i))
    if jax.tree.leaves(projection):
        swept = sweep(projection)
        out = eqx.filter_vmap(lambda projection: projection(starts[0]))(swept)
        loop = [lane(swept, i)(starts[0]) for i in range(LANES)]
        trees.assert_close(out, trees.stack(loop))


def test_batched_optimizers_outside_vmap_raise():
    """Numbers in lanes are refused where they would broadcast, with the class and the field."""
    optims = eqx.filter_vmap(eqopt.Adam)(jnp.array([0.1, 0.2]))
    params = jnp.ones(2)
    state = eqopt.Adam(0.1).init(params)
    for call in (lambda: optims.init(params), lambda: optims.step(params, state, params)):
        with pytest.raises(ValueError, match=r"`Adam\(learning_rate=.*filter_vmap"):
            call()


def test_case_C2_vmap_over_learning_rates():
    """SGD built inside `vmap` and by `eqx.filter_vmap` give each learning rate's result."""
    rates = jnp.array([0.1, 0.2, 0.3])

    def step(optim):
        params = jnp.ones(())
        return optim.step(jnp.ones(()), optim.init(params), params)[0]

    expected = [0.9, 0.8, 0.7]
    np.testing.assert_allclose(jax.vmap(lambda rate: step(eqopt.SGD(rate)))(rates), expected)
    np.testing.assert_allclose(eqx.filter_vmap(step)(eqx.filter_vmap(eqopt.SGD)(rates)), expected)
