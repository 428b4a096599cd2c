"""Of schedules one after the other, only the active one sees a count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqopt.schedules import FromFunction, Join


def only_within(low, high, seen):
    """A schedule that is NaN outside its span, and notes the counts that it is asked for."""

    def fn(count):
        seen.extend(np.ravel(count).tolist())
        return jnp.where((count >= low) & (count <= high), 1.0 + count, jnp.nan)

    return fn


@pytest.mark.parametrize("kind", ["Join", "Sequential"])
def test_only_the_active_phase_sees_a_count(kind):
    """Never a negative one, never one beyond its span: what would be NaN there stays unseen."""
    seen = [[], [], []]
    spans = [3, 2, 10]
    phases = [
        FromFunction(only_within(0, span, own), steps=span)
        for span, own in zip(spans, seen, strict=True)
    ]
    joined, sequence = Join(phases, [3, 5]), phases[0] >> phases[1] >> phases[2]
    schedule = joined if kind == "Join" else sequence
    wanted = [1, 2, 3, 1, 2, 1, 2, 3]
    assert [float(schedule(count)) for count in range(8)] == wanted
    np.testing.assert_array_equal(schedule(jnp.arange(8)), wanted)
    for own, span in zip(seen, spans, strict=True):
        assert min(own) == 0
        assert max(own) <= span


def test_no_nan_comes_back_from_an_inactive_phase():
    """The derivative with respect to a number of the active phase is finite."""

    def value(factor, count):
        root = FromFunction(lambda t: jnp.sqrt(3.0 - t) * factor, steps=3)
        return (root >> FromFunction(lambda t: factor / (1.0 + t)))(count)

    for count in range(6):
        assert np.isfinite(jax.grad(value)(2.0, count))
