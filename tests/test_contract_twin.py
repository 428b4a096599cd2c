"""Contract twin: on random trees, optax's counterpart gives the same numbers."""

from functools import partial

import cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import trees

STEPS = 10
TRANSFORMS = [name for name, case in cases.TRANSFORMS.items() if case.twin]
SCHEDULES = [name for name, case in cases.SCHEDULES.items() if case.twin]
PROJECTIONS = [name for name, case in cases.PROJECTIONS.items() if case.twin]


def _run(update, state, params):
    """The updates of all steps, and the parameters at the end."""
    found = []
    for step in range(STEPS):
        updates, state = update(trees.grads(params, step), state, params)
        params = optax.apply_updates(params, updates)
        found.append(updates)
    return found, params


def _both(name, dtype):
    """What eqopt gives, and what optax gives."""
    case = cases.TRANSFORMS[name]
    twin = optax.with_extra_args_support(case.twin())
    params = trees.params(dtype)

    @jax.jit
    def ours(grads, state, params):
        return case.optim(grads, state, params, **case.extras(params, grads))

    def theirs(grads, state, params):
        return twin.update(grads, state, params, **case.extras(params, grads))

    return (
        _run(ours, case.optim.init(params), params),
        _run(theirs, twin.init(params), params),
    )


@pytest.mark.parametrize("name", TRANSFORMS)
def test_ten_steps_in_float64(name, x64):
    """The updates of ten steps and the parameters after them agree to 1e-9."""
    ours, theirs = _both(name, jnp.float64)
    trees.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMS)
def test_ten_steps_in_float32(name):
    """In float32 they agree to 1e-5."""
    ours, theirs = _both(name, jnp.float32)
    trees.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


COUNTS = jnp.arange(21)


def _values(schedule, counts):
    """The values at all counts, one by one, as updates see them."""
    return np.asarray(jax.lax.map(schedule, counts))


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_in_float64(name, x64):
    """The values at counts 0 to 20 agree to 1e-9, given one by one or as an array."""
    case = cases.SCHEDULES[name]
    # From an integer count optax computes in float32, whatever the default is.
    expected = _values(case.twin(), COUNTS.astype(float))
    np.testing.assert_allclose(_values(case.schedule, COUNTS), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(case.schedule(COUNTS), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_in_float32(name):
    """In float32 they agree to 1e-5."""
    case = cases.SCHEDULES[name]
    expected = _values(case.twin(), COUNTS)
    np.testing.assert_allclose(_values(case.schedule, COUNTS), expected, rtol=1e-5, atol=1e-7)


def _check_projection(name, dtype, rtol):
    case = cases.PROJECTIONS[name]
    params = case.tree(dtype)
    for scale in (0.1, 0.3, 1.0, 30.0):
        for step in range(3):
            tree = jax.tree.map(partial(jnp.multiply, scale), trees.grads(params, step))
            trees.assert_close(case.projection(tree), case.twin(tree), rtol=rtol, atol=0.01 * rtol)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_projections_in_float64(name, x64):
    """The projections of random trees, small and large, agree to 1e-9."""
    _check_projection(name, jnp.float64, 1e-9)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_projections_in_float32(name):
    """In float32 they agree to 1e-5."""
    _check_projection(name, jnp.float32, 1e-5)
