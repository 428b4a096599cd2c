"""Reported cases about schedules."""

import jax.numpy as jnp
import numpy as np

from eqopt import schedules


def test_case_D8_cosine_end_point():
    """Zero is reached at t = steps, not one before."""
    schedule = schedules.CosineDecay(1.0, steps=4)
    wanted = [1, 0.8535534, 0.5, 0.1464466, 0, 0]
    np.testing.assert_allclose(schedule(jnp.arange(6)), wanted, atol=1e-7)
    assert float(schedule(4)) == float(schedule(5)) == 0.0
    assert float(schedule(0)) == 1.0


def test_case_D8_linear_end_point():
    """The same for `Linear`: the end is reached at t = steps."""
    schedule = schedules.Linear(1.0, 0.0, steps=4)
    np.testing.assert_array_equal(schedule(jnp.arange(6)), [1, 0.75, 0.5, 0.25, 0, 0])


LATE = schedules.FromFunction(lambda t: 10.0 + t)


def check_boundary(schedule):
    """The second schedule starts at its own 0 exactly at 3."""
    assert [float(schedule(t)) for t in (2, 3, 4)] == [1, 10, 11]
    np.testing.assert_array_equal(schedule(jnp.arange(5)), [1, 1, 1, 10, 11])


def test_case_D10_join_at_the_boundary():
    """With explicit boundaries."""
    check_boundary(schedules.Join([schedules.Constant(1.0), LATE], [3]))


def test_case_D10_sequence_at_the_boundary():
    """`>>` with a constant of three steps is the same."""
    check_boundary(schedules.Constant(1.0, steps=3) >> LATE)
