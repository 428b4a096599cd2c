"""Reported cases about schedules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqopt import schedules


def test_case_D2_end_of_one_cycle():
    """With the defaults and a peak of 1 the end is 1 / 25 / 1e4, as the docstring says."""
    for schedule in (schedules.LinearOneCycle(100, 1.0), schedules.CosineOneCycle(100, 1.0)):
        found = schedule(jnp.asarray([0, 30, 100, 101]))
        np.testing.assert_allclose(found, [0.04, 1, 4e-6, 4e-6], rtol=1e-6)
        assert "4e-6" in type(schedule).__doc__


def test_case_D3_steps_are_the_whole_length(x64):
    """`steps` includes the warm-up: half way between 100 and 1000 is half of the peak."""
    schedule = schedules.WarmupCosineDecay(0.0, 1.0, warmup_steps=100, steps=1000)
    found = schedule(jnp.asarray([0, 50, 100, 550, 1000, 1001]))
    np.testing.assert_allclose(found, [0, 0.5, 1, 0.5, 0, 0], rtol=1e-15)


@pytest.mark.parametrize("warmup", [1000, 1001])
def test_case_D4_warm_up_as_long_as_the_whole(warmup):
    """An error that names both numbers, not a division by zero."""
    for build in (
        lambda: schedules.WarmupCosineDecay(0.0, 1.0, warmup, 1000),
        lambda: schedules.WSD(0.0, 1.0, warmup, 1000, 10),
        lambda: schedules.SGDR(1.0, 1000, 2, warmup_steps=warmup),
    ):
        with pytest.raises(ValueError, match=f"warmup_steps={warmup} and .*=1000"):
            build()


def test_case_D5_no_warm_up():
    """A warm-up of 0 steps is none: the schedule starts at the peak, also where 0 is traced."""

    def check(found, wanted):
        np.testing.assert_allclose(found, wanted, atol=1e-7)

    def values(warmup_steps):
        constant = schedules.WarmupConstant(0.0, 1.0, warmup_steps)
        cosine = schedules.WarmupCosineDecay(0.0, 1.0, warmup_steps, 4)
        wsd = schedules.WSD(0.0, 1.0, warmup_steps, 4, 2)
        decay = schedules.WarmupExponentialDecay(0.0, 1.0, warmup_steps, 1, 0.5)
        return [s(jnp.arange(6)) for s in (constant, cosine, wsd, decay)]

    for constant, cosine, wsd, decay in (values(0), jax.jit(values)(0)):
        check(constant, [1, 1, 1, 1, 1, 1])
        check(cosine, [1, 0.8535534, 0.5, 0.1464466, 0, 0])
        check(wsd, [1, 1, 1, 0.5, 0, 0])
        check(decay, [1, 0.5, 0.25, 0.125, 0.0625, 0.03125])


def test_case_D6_peak_of_zero():
    """All values are 0, and no division by it."""
    schedule = schedules.WarmupCosineDecay(0.0, 0.0, 2, 5, end_value=0.0)
    np.testing.assert_array_equal(schedule(jnp.arange(8)), np.zeros(8))


def test_case_D7_steps_beyond_int32():
    """Ten thousand million steps, compiled."""
    schedule = schedules.CosineDecay(1000.0, 10**10)
    np.testing.assert_allclose(jax.jit(schedule)(10**9), 975.52826, rtol=1e-6)


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
