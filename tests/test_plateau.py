"""`ReduceOnPlateau` against its rules, followed value by value in plain Python."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt
from eqopt import schedules


def scales(losses, factor, patience, rtol, atol, cooldown, size, least):
    """The scale at each loss."""
    scale, best, bad, wait, seen, found = 1.0, math.inf, 0, 0, [], []
    for loss in losses:
        seen.append(loss)
        if len(seen) == size:
            mean, seen = sum(seen) / size, []
            bound = best - rtol * abs(best) - atol if best < math.inf else best
            better = mean < bound
            best = mean if better else best
            if wait > 0:
                wait, bad = wait - 1, 0
            else:
                bad = 0 if better else bad + 1
                if bad == patience:
                    scale, bad, wait = max(scale * factor, least), 0, cooldown
        found.append(scale)
    return found


def given(optim, losses, g=1.0):
    """The updates of a gradient at each loss."""
    grads = jnp.asarray(g)

    def body(state, loss):
        updates, state = optim(grads, state, value=loss)
        return state, updates

    return jax.jit(lambda x: jax.lax.scan(body, optim.init(grads), x)[1])(jnp.asarray(losses))


STILL = [3.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5]
FALLING = [-1.0, -1.05, -1.2, -1.21, -1.22, -1.0, -3.0, -2.9, -2.8, -2.7, -2.6, -3.4]
ROUGH = [math.nan, 4.0, 1e3, 4.0, 0.0, -1e-3, -1e-3, math.inf, -2.0, -2.0, math.nan, -2.0]


@pytest.mark.parametrize("losses", [STILL, FALLING, ROUGH], ids=["still", "negative", "rough"])
@pytest.mark.parametrize(
    "numbers",
    [
        (0.1, 2, 1e-4, 0.0, 0, 1, 0.0),
        (0.5, 1, 0.1, 0.0, 2, 1, 0.2),
        (0.5, 2, 0.0, 0.1, 1, 2, 0.0),
        (0.3, 3, 0.0, 0.0, 0, 1, 0.5),
    ],
)
def test_follows_the_rules(losses, numbers, x64):
    """Twelve losses that stand still, rise, are negative, infinite or NaN."""
    found = given(eqopt.ReduceOnPlateau(*numbers), losses, 3.0)
    np.testing.assert_allclose(found, 3.0 * np.asarray(scales(losses, *numbers)), rtol=1e-14)


def test_negative_loss_that_stands_still_is_a_plateau():
    """With optax's bound of (1 - rtol) b, above b where b < 0, it would improve for ever."""
    found = given(eqopt.ReduceOnPlateau(0.5, 2), [-1.0] * 5)
    np.testing.assert_array_equal(found, [1.0, 1.0, 0.5, 0.5, 0.25])


def test_patience_by_hand():
    """The second loss in a row without an improvement reduces, in the same update; then one is
    skipped, as `cooldown` says, and two more are needed."""
    found = given(eqopt.ReduceOnPlateau(0.1, 2, cooldown=1), [1.0] * 7)
    np.testing.assert_allclose(found, [1, 1, 0.1, 0.1, 0.1, 0.01, 0.01], rtol=1e-6)


def test_numbers_are_swept_and_scheduled():
    """Lanes of `patience`, and a `factor` that falls with the count."""
    losses = [1.0] * 5
    patience = jnp.asarray([1, 2, 9])
    optims = eqx.filter_vmap(lambda p: eqopt.ReduceOnPlateau(0.5, p))(patience)
    found = eqx.filter_vmap(lambda optim: given(optim, losses))(optims)
    wanted = [scales(losses, 0.5, p, 1e-4, 0.0, 0, 1, 0.0) for p in (1, 2, 9)]
    np.testing.assert_array_equal(found, wanted)
    falling = eqopt.ReduceOnPlateau(schedules.Linear(0.5, 0.25, steps=2), 1)
    found = given(falling, losses)
    np.testing.assert_array_equal(found, [1, *(0.375 * 0.25 ** np.arange(4))])


def test_state():
    """The mean of the values that wait for their comparison is in the state."""
    optim = eqopt.Adam(1e-3) >> eqopt.ReduceOnPlateau(0.5, 1, accumulation_size=3)
    params = jnp.ones(2, jnp.float16)
    state = optim.init(params)
    for loss in (3.0, 1.0):
        _, state = optim(params, state, params, value=loss)
    found = eqopt.find(state, eqopt.ReduceOnPlateauState)
    assert (float(found.avg_value), int(found.count), float(found.scale)) == (2.0, 2, 1.0)
    assert found.best_value == jnp.inf and found.best_value.dtype == jnp.float32


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: eqopt.ReduceOnPlateau(1.0), r"factor=...\)` must be in \(0, 1\); got 1.0"),
        (lambda: eqopt.ReduceOnPlateau(0.0), r"factor=...\)` must be in \(0, 1\); got 0.0"),
        (lambda: eqopt.ReduceOnPlateau(patience=0), r"patience=...\)` must be at least 1; got 0"),
        (lambda: eqopt.ReduceOnPlateau(rtol=-0.1), r"rtol=...\)` must be in \[0, 1\]; got -0.1"),
        (lambda: eqopt.ReduceOnPlateau(cooldown=-1), r"cooldown=...\)` must be at least 0; got -1"),
        (lambda: eqopt.ReduceOnPlateau(min_scale=2.0), r"min_scale=...\)` must be in \[0, 1\]"),
    ],
)
def test_bad_numbers(build, message):
    """The error names class, argument, rule and value."""
    with pytest.raises(ValueError, match=r"`ReduceOnPlateau\(" + message):
        build()


def test_value_is_needed():
    """Without it the error names the class and the keyword."""
    optim = eqopt.ReduceOnPlateau()
    with pytest.raises(TypeError, match="`ReduceOnPlateau` needs `value`"):
        optim(jnp.ones(2), optim.init(jnp.ones(2)))
