"""Schedules: their values, how they combine, their derivatives, and optimizers that use them."""

import doctest
import importlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import SCHEDULES
from hypothesis import given, settings, strategies as st

import eqopt
from eqopt.schedules import Constant, CosineDecay, FromFunction, Join, Linear, Product, Sum

INT32_MAX = 2**31 - 1
LINE = Linear(0.2, 1.0, steps=4)
COSINE = CosineDecay(1.0, steps=4, end_value=0.2, exponent=2.0)
RISING = FromFunction(lambda count: 10.0 + count)

each_schedule = pytest.mark.parametrize(
    "schedule", [case.schedule for case in SCHEDULES.values()], ids=SCHEDULES.keys()
)


def values(schedule, counts):
    """The values one by one."""
    return [float(schedule(count)) for count in counts]


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
    """In float64: one by one, all at once, and compiled."""
    np.testing.assert_allclose(values(schedule, counts), wanted, rtol=1e-14)
    counts = jnp.asarray(list(counts))
    np.testing.assert_allclose(schedule(counts), wanted, rtol=1e-14)
    np.testing.assert_allclose(jax.jit(schedule)(counts), wanted, rtol=1e-14)


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


# ---- only the active phase sees a count


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
    assert values(schedule, range(8)) == wanted
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


# ---- errors


def test_an_endless_schedule_comes_last():
    """The error says which one has no end."""
    for endless in (Constant(1.0), RISING, LINE + Constant(1.0), LINE >> RISING):
        with pytest.raises(ValueError, match=r"`a >> b` must have an end to `a`.*none"):
            endless >> LINE


@pytest.mark.parametrize(
    "boundaries, message",
    [
        ([], "one boundary fewer.*got 0 boundaries for 2 schedules"),
        ([1, 2], "one boundary fewer.*got 2 boundaries for 2 schedules"),
        ([0], r"`Join\(boundaries=...\)\[0\]` must be positive and finite; got 0"),
        ([-1], r"must be positive and finite; got -1"),
        ([float("nan")], r"must be positive and finite; got nan"),
    ],
)
def test_boundaries_of_join(boundaries, message):
    """Their number and their range."""
    with pytest.raises(ValueError, match=message):
        Join([LINE, RISING], boundaries)


@pytest.mark.parametrize("boundaries", [[3, 3], [3, 2], [2.5, 1]])
def test_boundaries_of_join_increase(boundaries):
    """In strict order."""
    with pytest.raises(ValueError, match="must increase"):
        Join([LINE, RISING, LINE], boundaries)


def test_join_of_nothing():
    """There is no value without a schedule."""
    with pytest.raises(ValueError, match="must have at least one schedule"):
        Join([], [])


def bare(count):
    """A bare function."""
    return 0.1


@pytest.mark.parametrize(
    "build",
    [
        lambda: eqopt.Adam(bare),
        lambda: eqopt.SGD(0.1, bare),
        lambda: eqopt.ClipByGlobalNorm(bare),
        lambda: LINE + bare,
        lambda: bare * LINE,
        lambda: LINE >> bare,
        lambda: bare >> LINE,
        lambda: Join([LINE, bare], [2]),
    ],
    ids=["Adam", "SGD", "ClipByGlobalNorm", "+", "*", ">> right", ">> left", "Join"],
)
def test_bare_functions(build):
    """Where a schedule belongs a function raises, and the error names `FromFunction`."""
    with pytest.raises(TypeError, match="FromFunction"):
        build()


@pytest.mark.parametrize("kind", [lambda n: Linear(0.0, 1.0, n), lambda n: CosineDecay(1.0, n)])
@pytest.mark.parametrize("steps", [0, -1, 0.0, float("nan")])
def test_steps_are_positive(kind, steps):
    """The error names class, argument, rule and value."""
    with pytest.raises(ValueError, match=r"`(Linear|CosineDecay)\(steps=...\)` must be positive"):
        kind(steps)


def test_a_schedule_inside_a_schedule_is_combined_instead():
    """Numbers of schedules are numbers."""
    with pytest.raises(TypeError, match=r"`Linear\(init_value=...\)` must be a number"):
        Linear(LINE, 1.0, steps=2)


# ---- large counts


@each_schedule
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


def test_lengths_whose_sum_is_beyond_int32():
    """Each fits, the boundary does not."""
    long = Constant(1.0, steps=2 * 10**9) >> Constant(2.0, steps=2 * 10**9) >> Constant(3.0)
    assert values(long, [0, 10**9, INT32_MAX]) == [1.0, 1.0, 2.0]
    arrays = eqopt.dynamic(eqopt.Scale(long)).step_size
    assert values(arrays, [0, 10**9, INT32_MAX]) == [1.0, 1.0, 2.0]


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


@by_examples
@given(values=st.lists(numbers, min_size=4, max_size=4), steps=lengths, counts=counts)
def test_sequences_stay_between_the_named_values(values, steps, counts):
    """So does a schedule of two phases."""
    a, b, c, d = values
    schedule = Linear(a, b, steps) >> CosineDecay(c, steps, d)
    found = schedule(jnp.asarray(counts))
    assert np.all((found >= np.float32(min(values))) & (found <= np.float32(max(values))))


# ---- batches and derivatives


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
    ],
    ids=["Constant", "start", "end", "CosineDecay", "Join", "Sequential", "Product", "Sum"],
)
def test_batched_fields(build):
    """Built and used under `filter_vmap`, equal to a loop."""
    xs = jnp.asarray([0.5, 1.0, 2.0])
    batched = eqx.filter_vmap(build)(xs)
    evaluate = eqx.filter_vmap(lambda s, t: s(t), in_axes=(eqx.if_array(0), None))
    found = evaluate(batched, jnp.arange(6))
    wanted = jnp.stack([build(float(x))(jnp.arange(6)) for x in xs])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def as_floats(schedule):
    """The schedule with every number, also a length, as a float64 array: leaves and structure."""
    leaves, treedef = jax.tree.flatten(schedule)
    return jnp.asarray([float(x) for x in leaves]), treedef


DIFFERENTIATED = {name: case.schedule for name, case in SCHEDULES.items()} | {
    "CosineDecay[root]": CosineDecay(1.0, steps=4, end_value=0.2, exponent=0.5),
    "CosineDecay[square]": COSINE,
    "three phases": LINE >> CosineDecay(1.0, steps=3) >> Linear(0.0, 0.5, steps=2) >> RISING,
}
each_differentiated = pytest.mark.parametrize(
    "schedule", DIFFERENTIATED.values(), ids=DIFFERENTIATED.keys()
)


@each_differentiated
def test_derivatives_are_finite(schedule, x64):
    """With respect to each number, at every count, also at kinks and after the end."""
    numbers, treedef = as_floats(schedule)

    def value(numbers, count):
        return jax.tree.unflatten(treedef, list(numbers))(count)

    counts = jnp.arange(12)
    for jacobian in (jax.jacfwd, jax.jacrev):
        slopes = jax.jit(jax.vmap(jacobian(value), in_axes=(None, 0)))(numbers, counts)
        assert np.all(np.isfinite(slopes)), np.argwhere(~np.isfinite(slopes))


@each_differentiated
def test_derivatives_by_finite_differences(schedule, x64):
    """Between kinks, which are at integers, derivatives are those of the values."""
    numbers, treedef = as_floats(schedule)
    counts = jnp.arange(12) + 0.5

    @jax.jit
    def evaluate(numbers):
        return jax.tree.unflatten(treedef, list(numbers))(counts)

    if not numbers.size:
        return
    steps = 1e-6 * jnp.eye(numbers.size)
    wanted = [(evaluate(numbers + h) - evaluate(numbers - h)) / 2e-6 for h in steps]
    found = jax.jacfwd(evaluate)(numbers)
    np.testing.assert_allclose(found, np.stack(wanted, axis=-1), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    "value_at_start",
    [lambda n: Linear(0.2, 1.0, n)(0), lambda n: CosineDecay(0.2, n, 1.0)(0)],
    ids=["Linear", "CosineDecay"],
)
def test_a_traced_length_of_zero(value_at_start):
    """A length that is 0 when it is known: the end at once, and no NaN."""
    value, slope = jax.value_and_grad(value_at_start)(0.0)
    assert value == 1.0
    assert np.isfinite(slope)


# ---- in optimizers

OPTIMIZERS = {
    "SGD": (eqopt.SGD, {"learning_rate": 0.1, "momentum": 0.5}),
    "Adam": (eqopt.Adam, {}),
    "AdamW": (eqopt.AdamW, {"weight_decay": 0.1}),
    "NAdam": (eqopt.NAdam, {}),
    "NAdamW": (eqopt.NAdamW, {"weight_decay": 0.1}),
    "ScaleByAdam": (eqopt.ScaleByAdam, {}),
    "Trace": (eqopt.Trace, {"decay": 0.5}),
    "Scale": (eqopt.Scale, {"step_size": 0.5}),
    "ScaleByLearningRate": (eqopt.ScaleByLearningRate, {"learning_rate": 0.5}),
    "AddDecayedWeights": (eqopt.AddDecayedWeights, {"weight_decay": 0.5}),
    "Clip": (eqopt.Clip, {"max_delta": 0.5}),
    "ClipByGlobalNorm": (eqopt.ClipByGlobalNorm, {"max_norm": 0.5}),
    "NormalizeByGlobalNorm": (eqopt.NormalizeByGlobalNorm, {"scale": 0.5, "eps": 0.1}),
}
ADAM = {"b1": 0.8, "b2": 0.9, "eps": 1e-2, "eps_root": 1e-2}


def scheduled_fields():
    """Each numeric field of each optimizer, with numbers for all of them."""
    for name, (kind, own) in OPTIMIZERS.items():
        given = dict(own)
        if "Adam" in name:
            given = ADAM | given
            if not name.startswith("Scale"):
                given = {"learning_rate": 0.1} | given
        for field in given:
            yield pytest.param(kind, field, given, id=f"{name}.{field}")


@pytest.mark.parametrize("kind, field, given", list(scheduled_fields()))
def test_each_field_takes_a_schedule(kind, field, given):
    """The first update is that of the value at 0, the second that of the value at 1."""
    schedule = Linear(given[field], 0.5 * given[field], steps=2)
    optim = kind(**(given | {field: schedule}))
    p, g = jnp.asarray([1.0, -2.0]), jnp.asarray([0.5, 1.5])
    state = optim.init(p)
    for count in range(2):
        numbers = given | {field: given[field] * (1 - 0.25 * count)}
        wanted, _ = kind(**numbers)(g, state, p)
        found, state = optim(g, state, p)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("module", ["_basic", "_cosine", "_join"])
def test_examples_in_docstrings(module):
    """The examples of each schedule run as they are printed."""
    module = importlib.import_module(f"eqopt.schedules.{module}")
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
