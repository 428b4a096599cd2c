"""Schedules at large counts, within their bounds, and in batches."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import SCHEDULES
from hypothesis import given, settings, strategies as st

import eqopt
from eqopt.schedules import (
    SGDR,
    WSD,
    Constant,
    CosineDecay,
    CosineOneCycle,
    ExponentialDecay,
    InverseSqrt,
    Join,
    Linear,
    LinearOneCycle,
    PiecewiseConstant,
    PiecewiseInterpolate,
    Polynomial,
    Sequential,
    WarmupConstant,
    WarmupCosineDecay,
    WarmupExponentialDecay,
)

LINE = Linear(0.2, 1.0, steps=4)
INT32_MAX = 2**31 - 1

# ---- large counts


@pytest.mark.parametrize(
    "schedule", [case.schedule for case in SCHEDULES.values()], ids=SCHEDULES.keys()
)
def test_largest_count(schedule):
    """At the largest int32 the values are finite and those of long after the end."""
    late = schedule(jnp.asarray([INT32_MAX - 1, INT32_MAX], jnp.int32))
    assert np.all(np.isfinite(late))
    np.testing.assert_allclose(late[0], late[1], rtol=1e-6)
    if schedule.steps is not None:
        np.testing.assert_allclose(late[1], schedule(schedule.steps), rtol=1e-6)


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_steps_beyond_int32(jit):
    """Ten thousand million steps."""
    billion, steps = jnp.asarray(10**9, jnp.int32), 10**10
    value = jit(Linear(0.0, 1.0, steps))(billion)
    np.testing.assert_allclose(value, 0.1, rtol=1e-6)
    value = jit(CosineDecay(1000.0, steps))(billion)
    np.testing.assert_allclose(value, 975.52826, rtol=1e-6)
    value = jit(Linear(0.0, 1.0, steps) >> Constant(7.0))(billion)
    np.testing.assert_allclose(value, 0.1, rtol=1e-6)
    value = jit(Join([Linear(0.0, 1.0, steps), Constant(7.0)], [steps]))(billion)
    np.testing.assert_allclose(value, 0.1, rtol=1e-6)
    value = jit(Constant(1.0, steps=5) >> Linear(0.0, 1.0, steps))(billion)
    np.testing.assert_allclose(value, 0.1, rtol=1e-6)


LONG = 10**10
# Schedules of ten thousand million steps, and their values at a tenth of that.
LONG_ONES = [
    (Polynomial(1.0, 0.0, 2.0, LONG), 0.81),
    (ExponentialDecay(1.0, LONG, 0.5), 0.5**0.1),
    (ExponentialDecay(1.0, LONG, 0.5, staircase=True), 1.0),
    (InverseSqrt(1.0, LONG), 1.1**-0.5),
    (PiecewiseConstant([1.0, 2.0, 3.0], [10**9, LONG]), 2.0),
    (PiecewiseInterpolate([0.0, 1.0, 0.0], [LONG, 2 * LONG]), 0.1),
    (WarmupConstant(0.0, 1.0, LONG), 0.1),
    (WarmupCosineDecay(0.0, 1000.0, 0, LONG), 975.52826),
    (WarmupExponentialDecay(0.0, 1.0, 10**9 - 1, LONG, 0.5), 1.0),
    (LinearOneCycle(LONG, 1.0, 0.2, div_factor=4.0), 0.625),
    (CosineOneCycle(LONG, 1.0, 0.2, div_factor=4.0), 0.625),
    (SGDR(1000.0, LONG, 3, 2), 975.52826),
    (WSD(0.0, 1.0, 1000, LONG, 9.5 * 10**9), 1 - 0.5 / 9.5),
]


def test_long_schedules():
    """Every kind keeps its digits."""
    found = jax.jit(lambda t: [schedule(t) for schedule, _ in LONG_ONES])(10**9)
    np.testing.assert_allclose(found, [wanted for _, wanted in LONG_ONES], rtol=1e-6)


def test_growth_stops_at_large_numbers():
    """It goes on as the formula says, then stays finite, and so do its derivatives."""
    found = jax.vmap(lambda t: ExponentialDecay(3.0, 1, 2.0)(t))(jnp.asarray([60, 2000, 10**9]))
    assert np.all(np.isfinite(found)) and found[1] == found[2] > 1e19
    np.testing.assert_allclose(found[0], 3 * 2.0**60, rtol=1e-5)
    slopes = jax.grad(lambda x: ExponentialDecay(x[0], x[1], x[2])(10**9))(
        jnp.asarray([1e-9, 1.0, 2.0])
    )
    assert np.all(np.isfinite(slopes))


def test_lengths_whose_sum_is_beyond_int32():
    """Each fits, the boundary does not."""
    long = Constant(1.0, steps=2 * 10**9) >> Constant(2.0, steps=2 * 10**9) >> Constant(3.0)
    counts = jnp.asarray([0, 10**9, INT32_MAX])
    np.testing.assert_array_equal(long(counts), [1.0, 1.0, 2.0])
    arrays = eqopt.dynamic(eqopt.Scale(long)).step_size
    np.testing.assert_array_equal(arrays(counts), [1.0, 1.0, 2.0])


# ---- between the named values

numbers = st.floats(-1e3, 1e3, width=32)
lengths = st.one_of(st.integers(1, 20), st.floats(0.5, 20.0, width=32))
counts = st.lists(st.integers(0, 50), min_size=4, max_size=4)
by_examples = settings(max_examples=40, deadline=None, derandomize=True, database=None)


@by_examples
@given(start=numbers, end=numbers, steps=lengths, exponent=st.floats(0.25, 4.0), counts=counts)
def test_values_stay_between_the_named_ones(start, end, steps, exponent, counts):
    """Not by a rounding error beyond them; exact at both ends."""
    counts = jnp.asarray([0, *counts, 1000])
    low, high = np.float32(min(start, end)), np.float32(max(start, end))
    for schedule in (Linear(start, end, steps), CosineDecay(start, steps, end, exponent)):
        found = schedule(counts)
        assert np.all((found >= low) & (found <= high))
        assert (found[0], found[-1]) == (np.float32(start), np.float32(end))


# Each kind from three numbers and two lengths of which the second is at most the first, with the
# values that it names. Finite ones first.
FINITE = {
    "Constant": lambda a, b, c, m, n: (Constant(a, n), [a]),
    "Linear": lambda a, b, c, m, n: (Linear(a, b, m), [a, b]),
    "Polynomial": lambda a, b, c, m, n: (Polynomial(a, b, n / 4, m), [a, b]),
    "CosineDecay": lambda a, b, c, m, n: (CosineDecay(a, m, b, n / 4), [a, b]),
    "PiecewiseConstant": lambda a, b, c, m, n: (
        PiecewiseConstant([a, b, c], [n, m + 1], steps=m + 3),
        [a, b, c],
    ),
    "PiecewiseInterpolate": lambda a, b, c, m, n: (
        PiecewiseInterpolate([a, b, c], [n, m + 1]),
        [a, b, c],
    ),
    "PiecewiseInterpolate[cosine]": lambda a, b, c, m, n: (
        PiecewiseInterpolate([a, b, c], [n, m + 1], "cosine"),
        [a, b, c],
    ),
    "WarmupCosineDecay": lambda a, b, c, m, n: (WarmupCosineDecay(a, b, n - 1, m, c), [a, b, c]),
    "LinearOneCycle": lambda a, b, c, m, n: (
        LinearOneCycle(m, a, n / m / 2, 0.5, 4.0, n),
        [a, a / 4, a / 4 / n],
    ),
    "CosineOneCycle": lambda a, b, c, m, n: (
        CosineOneCycle(m, a, n / m, 4.0, n),
        [a, a / 4, a / 4 / n],
    ),
    "SGDR": lambda a, b, c, m, n: (
        SGDR(a, m, 2, 1.5, 0.5, n - 1, b, c),
        [a, a / 2, c] + [b] * (n > 1),
    ),
    "WSD": lambda a, b, c, m, n: (WSD(a, b, n - 1, m + n, 1, c), [a, b, c]),
    "WSD[sqrt]": lambda a, b, c, m, n: (WSD(a, b, n - 1, m + n, m, c, "sqrt"), [a, b, c]),
}
ENDLESS = {
    "ExponentialDecay": lambda a, b, c, m, n: (ExponentialDecay(a, m, n / 21), [a, 0.0]),
    "InverseSqrt": lambda a, b, c, m, n: (InverseSqrt(a, m), [a, 0.0]),
    "WarmupConstant": lambda a, b, c, m, n: (WarmupConstant(a, b, n - 1), [a, b]),
    "WarmupExponentialDecay": lambda a, b, c, m, n: (
        WarmupExponentialDecay(a, b, n - 1, m, 1.5, True, 2 * b),
        [a, b, 2 * b],
    ),
}
# Half precision: nothing underflows, and sums and products of few are exact in single precision.
coarse = st.floats(-1e3, 1e3, width=16)
lengths_of_two = st.tuples(st.integers(1, 20), st.integers(1, 20)).map(lambda x: (max(x), min(x)))
inputs = st.tuples(st.tuples(coarse, coarse, coarse), lengths_of_two)


def phases_of(kinds):
    """Of one of some kinds a schedule and the values that it names."""
    return st.tuples(st.sampled_from(sorted(kinds)), inputs).map(
        lambda drawn: (FINITE | ENDLESS)[drawn[0]](*drawn[1][0], *drawn[1][1])
    )


@by_examples
@given(
    finite=st.lists(phases_of(FINITE), max_size=2),
    last=phases_of(FINITE | ENDLESS),
    counts=counts,
)
def test_any_sequence_stays_between_its_named_values(finite, last, counts):
    """Any phases one after the other: finite, and nowhere beyond what any of them names."""
    phases = [schedule for schedule, _ in (*finite, last)]
    named = np.float32([value for _, values in (*finite, last) for value in values])
    schedule = phases[0] if len(phases) == 1 else Sequential(*phases)
    found = np.asarray(schedule(jnp.asarray([*counts, 10**6])))
    assert np.all((found >= named.min()) & (found <= named.max()))


def test_each_kind_as_a_phase():
    """`a >> b` has the values of a alone, then those of b alone, for each kind on either side."""
    numbers, line = (0.5, 0.25, 0.75, 4, 2), Linear(2.0, 1.0, steps=4)
    counts = jnp.arange(16)
    firsts = [build(*numbers)[0] for build in FINITE.values()]
    lasts = [build(*numbers)[0] for build in (FINITE | ENDLESS).values()]
    for first, last in [(first, line) for first in firsts] + [(line, last) for last in lasts]:
        length = int(first.steps)
        wanted = np.concatenate([first(counts)[:length], last(counts)])[:16]
        np.testing.assert_allclose((first >> last)(counts), wanted, rtol=1e-6, atol=1e-7)


# ---- batches


@pytest.mark.parametrize(
    "build",
    [
        lambda x: Constant(x),
        lambda x: Linear(x, 0.5, steps=4),
        lambda x: Linear(0.5, x, steps=4 * x),
        lambda x: CosineDecay(x, 4 * x, 0.1 * x, exponent=x),
        lambda x: Join([Constant(x), Linear(x, 0.5, steps=4)], [2 * x]),
        lambda x: Constant(1.0, steps=2 * x) >> Linear(x, 0.5, steps=4),
        lambda x: x * LINE + x,
        lambda x: x - LINE,
        lambda x: PiecewiseConstant([x, 2 * x], [2 * x]) * PiecewiseInterpolate([x, 1.0], [4 * x]),
        lambda x: WSD(0.0, x, 2 * x, 8 * x, 4 * x, 0.1 * x, "sqrt"),
        lambda x: SGDR(x, 4 * x, 2, 1 + x, x, x),
    ],
    ids=[
        "Constant",
        "start",
        "end",
        "CosineDecay",
        "Join",
        "Sequential",
        "Product",
        "Sum",
        "Piecewise",
        "WSD",
        "SGDR",
    ],
)
def test_batched_fields(build):
    """Built and used under `filter_vmap`, equal to a loop."""
    xs = jnp.asarray([0.5, 1.0, 2.0])
    batched = eqx.filter_vmap(build)(xs)
    evaluate = eqx.filter_vmap(lambda s, t: s(t), in_axes=(eqx.if_array(0), None))
    found = evaluate(batched, jnp.arange(6))
    wanted = jnp.stack([build(float(x))(jnp.arange(6)) for x in xs])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def test_sweep_of_warm_ups():
    """Peak, warm-up and length of each lane; a warm-up of 0 is skipped, and so is a decay for which
    nothing is left."""
    peaks, warmups, steps = jnp.asarray([1.0, 2.0, 4.0]), [0, 2, 4], [4, 6, 4]
    build = eqx.filter_vmap(lambda p, w, n: WarmupCosineDecay(0.0, p, w, n, 0.5))
    batched = build(peaks, jnp.asarray(warmups), jnp.asarray(steps))
    evaluate = eqx.filter_vmap(lambda s, t: s(t), in_axes=(eqx.if_array(0), None))
    found = eqx.filter_jit(evaluate)(batched, jnp.arange(7))
    for i in (0, 1):
        alone = WarmupCosineDecay(0.0, float(peaks[i]), warmups[i], steps[i], 0.5)
        np.testing.assert_allclose(found[i], alone(jnp.arange(7)), rtol=1e-6)
    np.testing.assert_allclose(found[2], [0, 1, 2, 3, 0.5, 0.5, 0.5], rtol=1e-6)


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda n: PiecewiseConstant([1.0, 2.0], [n]), 1.0),
        (lambda n: Linear(0.0, 1.0, n) >> Constant(5.0), INT32_MAX / 10**10),
        (lambda n: ExponentialDecay(1.0, n, 0.5, staircase=True), 1.0),
        (lambda n: LinearOneCycle(n, 1.0), 0.04 + 0.96 * INT32_MAX / (0.3 * 10**10)),
    ],
    ids=["PiecewiseConstant", "phases", "staircase", "LinearOneCycle"],
)
def test_counts_never_reach_a_length_beyond_int32(build, wanted):
    """At the largest count a phase of ten thousand million steps has not ended; as an array it is
    as long as it is as a number."""
    for schedule in (build(10**10), eqopt.dynamic(build(10**10))):
        np.testing.assert_allclose(schedule(jnp.int32(INT32_MAX)), wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int16, jnp.uint32])
def test_narrow_and_unsigned_counts(dtype):
    """Lengths that a count's dtype cannot hold are as long as they are."""
    count = jnp.asarray(100, dtype)
    for steps in (1000, jnp.asarray(1000)):
        np.testing.assert_allclose((Linear(0.0, 1.0, steps) >> Constant(5.0))(count), 0.1)
        np.testing.assert_array_equal(PiecewiseConstant([1.0, 2.0], [steps])(count), 1)
    largest = jnp.asarray(jnp.iinfo(jnp.uint32).max, jnp.uint32)
    assert (Linear(0.0, 1.0, 1000) >> Constant(5.0))(largest) == 5
