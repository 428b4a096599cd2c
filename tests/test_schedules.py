"""Schedules: their values, and how they combine."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import SCHEDULES

from eqopt.schedules import (
    SGDR,
    WSD,
    Constant,
    CosineDecay,
    CosineOneCycle,
    ExponentialDecay,
    FromFunction,
    InverseSqrt,
    Join,
    Linear,
    LinearOneCycle,
    PiecewiseConstant,
    PiecewiseInterpolate,
    Polynomial,
    Product,
    Sum,
    WarmupConstant,
    WarmupCosineDecay,
    WarmupExponentialDecay,
)

LINE = Linear(0.2, 1.0, steps=4)
COSINE = CosineDecay(1.0, steps=4, end_value=0.2, exponent=2.0)
RISING = FromFunction(lambda count: 10.0 + count)

each_schedule = pytest.mark.parametrize(
    "schedule", [case.schedule for case in SCHEDULES.values()], ids=SCHEDULES.keys()
)


def values(schedule, counts):
    """The values one by one."""
    return [float(schedule(count)) for count in counts]


def cosine(start, end, x):
    """Half a cosine from `start` to `end`, as the papers write it."""
    return end + 0.5 * (start - end) * (1 + math.cos(math.pi * x))


# ---- values

# name: schedule, counts, values. At the start, inside, at boundaries, at the end, one after.
VALUES = {
    "Constant": (Constant(0.5), [0, 1, 1000], [0.5, 0.5, 0.5]),
    "Constant[steps]": (Constant(0.5, steps=2), [0, 1, 2, 3], [0.5, 0.5, 0.5, 0.5]),
    "Linear": (LINE, [0, 1, 2, 3, 4, 5], [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]),
    "Linear[down]": (Linear(1.0, -1.0, steps=4), [0, 1, 2, 4, 5], [1, 0.5, 0, -1, -1]),
    # 0.2 + 0.8 c^2 with c = (1 + cos(pi t / 4)) / 2: 1, (2 + sqrt 2) / 4, 1/2, (2 - sqrt 2) / 4, 0
    "CosineDecay": (
        COSINE,
        [0, 1, 2, 3, 4, 5],
        [1.0, 0.2 + 0.8 * 0.7285533905932737, 0.4, 0.2 + 0.8 * 0.02144660940672624, 0.2, 0.2],
    ),
    "Polynomial": (
        Polynomial(1.0, 0.2, power=1.5, steps=4),
        range(6),
        [0.2 + 0.8 * left**1.5 for left in (1, 0.75, 0.5, 0.25, 0, 0)],
    ),
    "Polynomial[root]": (
        Polynomial(-1.0, 1.0, power=0.5, steps=4),
        range(6),
        [1 - 2 * left**0.5 for left in (1, 0.75, 0.5, 0.25, 0, 0)],
    ),
    "ExponentialDecay": (
        ExponentialDecay(2.0, 4, 0.3),
        range(10),
        [2 * 0.3 ** (t / 4) for t in range(10)],
    ),
    "ExponentialDecay[staircase]": (
        ExponentialDecay(2.0, 7, 0.5, staircase=True),
        [0, 6, 7, 13, 14, 20, 21, 48, 49, 90, 91],
        [2 * 0.5 ** (t // 7) for t in (0, 6, 7, 13, 14, 20, 21, 48, 49, 90, 91)],
    ),
    "ExponentialDecay[stairs of halves]": (
        ExponentialDecay(2.0, 2.5, 0.5, staircase=True),
        range(6),
        [2, 2, 2, 1, 1, 0.5],
    ),
    "ExponentialDecay[down to]": (
        ExponentialDecay(2.0, 1, 0.5, end_value=0.3),
        range(5),
        [2, 1, 0.5, 0.3, 0.3],
    ),
    "ExponentialDecay[up to]": (
        ExponentialDecay(0.25, 1, 2.0, end_value=1.5),
        range(5),
        [0.25, 0.5, 1, 1.5, 1.5],
    ),
    "ExponentialDecay[negative]": (
        ExponentialDecay(-2.0, 1, 0.5, end_value=-0.3),
        range(5),
        [-2, -1, -0.5, -0.3, -0.3],
    ),
    "InverseSqrt": (
        InverseSqrt(2.0, 4),
        range(10),
        [2 / math.sqrt(1 + t / 4) for t in range(10)],
    ),
    # Vaswani et al., equation 3, with a model of width 1 / 3^2 and 4 steps of warm-up
    "InverseSqrt[after a warm-up]": (
        Linear(0.0, 1.5, steps=4) >> InverseSqrt(1.5, 4),
        range(1, 12),
        [3 * min(t**-0.5, t * 4**-1.5) for t in range(1, 12)],
    ),
    "PiecewiseConstant": (
        PiecewiseConstant([1.0, -0.5, 0.25], [2, 5]),
        range(7),
        [1, 1, -0.5, -0.5, -0.5, 0.25, 0.25],
    ),
    "PiecewiseConstant[one]": (PiecewiseConstant([3.0], []), [0, 9], [3, 3]),
    "PiecewiseConstant[steps]": (
        PiecewiseConstant([1.0, 2.0], [2], steps=4) >> LINE,
        range(6),
        [1, 1, 2, 2, 0.2, 0.4],
    ),
    "PiecewiseInterpolate": (
        PiecewiseInterpolate([1.0, 0.0, 0.5, 0.5], [2, 6, 7]),
        range(9),
        [1, 0.5, 0, 0.125, 0.25, 0.375, 0.5, 0.5, 0.5],
    ),
    "PiecewiseInterpolate[cosine]": (
        PiecewiseInterpolate([1.0, 0.0, 0.5], [3, 7], "cosine"),
        range(9),
        [cosine(1, 0, t / 3) for t in range(3)]
        + [cosine(0, 0.5, x / 4) for x in (0, 1, 2, 3, 4, 4)],
    ),
    "WarmupConstant": (WarmupConstant(0.2, 1.0, 4), range(6), [0.2, 0.4, 0.6, 0.8, 1, 1]),
    "WarmupCosineDecay": (
        WarmupCosineDecay(0.1, 1.0, 2, 6, end_value=0.2),
        range(8),
        [0.1, 0.55] + [cosine(1, 0.2, x / 4) for x in (0, 1, 2, 3, 4, 4)],
    ),
    "WarmupCosineDecay[exponent]": (
        WarmupCosineDecay(0.1, 1.0, 2, 6, end_value=0.2, exponent=3.0),
        range(8),
        [0.1, 0.55] + [0.2 + 0.8 * cosine(1, 0, x / 4) ** 3 for x in (0, 1, 2, 3, 4, 4)],
    ),
    "WarmupExponentialDecay": (
        WarmupExponentialDecay(0.1, 1.0, 2, 3, 0.5, end_value=0.4),
        range(8),
        [0.1, 0.55] + [max(0.5 ** (x / 3), 0.4) for x in range(6)],
    ),
    "WarmupExponentialDecay[staircase]": (
        WarmupExponentialDecay(0.1, 1.0, 2, 3, 0.5, staircase=True),
        range(9),
        [0.1, 0.55] + [0.5 ** (x // 3) for x in range(7)],
    ),
    "LinearOneCycle": (
        LinearOneCycle(10, 2.0, 0.25, 0.85, 4.0, 10.0),
        range(12),
        np.interp(range(12), [0, 2.5, 8.5, 10], [0.5, 2, 0.5, 0.05]),
    ),
    "LinearOneCycle[no last phase]": (
        LinearOneCycle(4, 2.0, 0.5, 1.0, 4.0, 10.0),
        range(6),
        [0.5, 1.25, 2, 1.25, 0.05, 0.05],
    ),
    "LinearOneCycle[one step]": (LinearOneCycle(1, 1.0), range(3), [0.04, 4e-6, 4e-6]),
    "CosineOneCycle": (
        CosineOneCycle(10, 2.0, 0.4, 4.0, 10.0),
        range(12),
        [cosine(0.5, 2, t / 4) for t in range(4)]
        + [cosine(2, 0.05, min((t - 4) / 6, 1)) for t in range(4, 12)],
    ),
    "CosineOneCycle[no rise]": (
        CosineOneCycle(4, 2.0, 0.0, 4.0, 10.0),
        range(6),
        [cosine(2, 0.05, min(t / 4, 1)) for t in range(6)],
    ),
    "SGDR": (
        SGDR(2.0, 4, 3, length_factor=2, peak_factor=0.5),
        range(30),
        [cosine(2, 0, t / 4) for t in range(4)]
        + [cosine(1, 0, t / 8) for t in range(8)]
        + [cosine(0.5, 0, t / 16) for t in range(16)]
        + [0, 0],
    ),
    # The second cycle begins at 3 and ends at 7.5, so it never is at its end.
    "SGDR[warm-up]": (
        SGDR(2.0, 3, 3, 1.5, 1.0, warmup_steps=1, init_value=0.5, end_value=0.1),
        range(16),
        [0.5]
        + [cosine(2, 0.1, x / 2) for x in range(2)]
        + [0.5]
        + [cosine(2, 0.1, x / 3.5) for x in range(4)]
        + [1.25]
        + [cosine(2, 0.1, min(x + 0.5, 5.75) / 5.75) for x in range(7)],
    ),
    "WSD": (
        WSD(0.0, 1.0, 2, 8, 4, end_value=0.2),
        range(10),
        [0, 0.5, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2],
    ),
    "WSD[cosine]": (
        WSD(0.0, 1.0, 2, 8, 4, 0.2, "cosine"),
        range(10),
        [0, 0.5, 1, 1] + [cosine(1, 0.2, x / 4) for x in (0, 1, 2, 3, 4, 4)],
    ),
    "WSD[sqrt]": (
        WSD(0.0, 1.0, 2, 8, 4, 0.2, "sqrt"),
        range(10),
        [0, 0.5, 1, 1] + [1 - 0.8 * math.sqrt(x / 4) for x in (0, 1, 2, 3, 4, 4)],
    ),
    "WSD[no stable phase]": (
        WSD(0.0, 1.0, 2, 4, 2),
        range(6),
        [0, 0.5, 1, 0.5, 0, 0],
    ),
    "FromFunction": (RISING, [0, 1, 7], [10, 11, 17]),
    "Join": (Join([LINE, RISING, Constant(3.0)], [2, 5]), range(7), [0.2, 0.4, 10, 11, 12, 3, 3]),
    "Join[one]": (Join([LINE], []), [0, 4, 5], [0.2, 1.0, 1.0]),
    "Join[after its end]": (Join([LINE, RISING], [6]), [3, 4, 5, 6], [0.8, 1.0, 1.0, 10.0]),
    "Sequential": (
        LINE >> Linear(2.0, 1.0, steps=2) >> RISING,
        range(8),
        [0.2, 0.4, 0.6, 0.8, 2.0, 1.5, 10.0, 11.0],
    ),
    "Sequential[finite]": (
        LINE >> Linear(2.0, 1.0, steps=2),
        [4, 5, 6, 7],
        [2.0, 1.5, 1.0, 1.0],
    ),
    "Sequential[Constant]": (Constant(0.5, steps=2) >> LINE, [0, 1, 2, 3], [0.5, 0.5, 0.2, 0.4]),
}


@pytest.mark.parametrize("schedule, counts, wanted", VALUES.values(), ids=VALUES.keys())
def test_values(schedule, counts, wanted, x64):
    """In float64: all at once, and compiled one by one."""
    exact = {"rtol": 1e-14, "atol": 1e-15}
    counts = jnp.asarray(list(counts))
    np.testing.assert_allclose(schedule(counts), wanted, **exact)
    np.testing.assert_allclose(jax.lax.map(schedule, counts), wanted, **exact)


@pytest.mark.parametrize(
    "schedule, wanted",
    [
        (LINE + 1, 1.4),
        (1 + LINE, 1.4),
        (LINE - 1, -0.6),
        (1 - LINE, 0.6),
        (-LINE, -0.4),
        (LINE * 2, 0.8),
        (2 * LINE, 0.8),
        (LINE + RISING, 11.4),
        (LINE - RISING, -10.6),
        (LINE * RISING, 4.4),
        (2 * (LINE + 1) - LINE * LINE, 2.64),
        (LINE * jnp.asarray(2.0) + np.float32(0.5), 1.3),
        (Sum(LINE, 1, RISING), 12.4),
        (Product(LINE, 2, RISING), 8.8),
    ],
)
def test_arithmetic(schedule, wanted):
    """With numbers, arrays and schedules, on either side; at count 1 `LINE` is 0.4."""
    np.testing.assert_allclose(schedule(1), wanted, rtol=1e-6)
    np.testing.assert_allclose(schedule(jnp.asarray([1, 1])), [wanted] * 2, rtol=1e-6)


def test_values_and_boundaries_as_arrays():
    """Arrays of one axis stand for their elements."""
    schedule = PiecewiseConstant(jnp.asarray([1.0, 2.0]), np.asarray([3]))
    assert all(x.shape == () for x in (*schedule.values, *schedule.boundaries))
    np.testing.assert_array_equal(schedule(jnp.arange(2, 5)), [1, 2, 2])


def test_a_sum_in_a_sequence():
    """Sums and products last as long as the longest schedule in them."""
    sequence = (LINE + 2 * Linear(0.0, 1.0, steps=6)) >> RISING
    np.testing.assert_allclose(values(sequence, [5, 6]), [1.0 + 2 * 5 / 6, 10.0], rtol=1e-6)


@each_schedule
def test_shape_and_dtype(schedule):
    """The shape of the counts, in the default float dtype, for every way to write a count."""
    for count in (3, 3.0, np.int64(3), jnp.asarray(3, jnp.int32), jnp.asarray(3.0)):
        value = schedule(count)
        assert (value.shape, value.dtype, value.weak_type) == ((), jnp.float32, False)
        np.testing.assert_allclose(value, schedule(3), rtol=1e-6)
    counts = jnp.arange(6).reshape(2, 3)
    found = schedule(counts)
    assert (found.shape, found.dtype) == ((2, 3), jnp.float32)
    wanted = [[float(schedule(int(t))) for t in row] for row in counts]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@each_schedule
def test_counts_below_zero_are_zero(schedule):
    """No schedule is asked for what was before the start."""
    assert float(schedule(-3)) == float(schedule(0))


@each_schedule
def test_schedules_are_arguments(schedule):
    """A schedule, with its numbers as arrays, goes through `jax.jit`."""
    arrays = jax.tree.map(jnp.asarray, schedule)
    found = jax.jit(lambda s, t: s(t))(arrays, jnp.arange(6))
    np.testing.assert_allclose(found, schedule(jnp.arange(6)), rtol=1e-5, atol=1e-7)


def test_grouping_makes_no_difference():
    """`>>` is associative, also in the printed form."""
    a, b, c = Linear(0.0, 1.0, steps=2), Linear(1.0, 2.0, steps=3), Constant(3.0)
    left, right = (a >> b) >> c, a >> (b >> c)
    assert left == right
    assert repr(left) == repr(right)


def test_lengths():
    """The sum in a sequence, the last boundary on in a join, the longest in a sum; no end if
    the last, or any term, has none."""
    assert (LINE >> Linear(0.0, 1.0, steps=3)).steps == 7
    assert (LINE >> Constant(1.0)).steps is None
    assert Join([RISING, LINE], [3]).steps == 7
    assert Join([LINE, RISING], [3]).steps is None
    assert (LINE + Linear(0.0, 1.0, steps=6)).steps == (2 * LINE * Linear(0, 1, steps=6)).steps == 6
    assert (LINE * RISING).steps is None
    assert Constant(1.0).steps is None
    assert PiecewiseInterpolate([0.0, 1.0, 2.0], [3, 8]).steps == 8
    assert SGDR(1.0, 10, 3, length_factor=2).steps == 70
    assert SGDR(1.0, 10**9, 4).steps == 4 * 10**9
