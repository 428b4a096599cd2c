"""What transforms share: the count, schedules at it, and numbers as hyperparameters."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import TRANSFORMS

import eqopt
from eqopt import schedules
from eqopt._core.hyperparam import Hyperparam

LARGEST = jnp.iinfo(jnp.int32).max
PERIOD = 6  # a multiple of the periods at which wrappers of the table act


def after(optim, count, params):
    """An initial state with another count."""
    return eqopt.replace(optim.init(params), eqopt.State, count=jnp.asarray(count, jnp.int32))


# ---- clocks


def test_the_first_update_sees_the_schedule_at_zero():
    """Then at 1, 2, ..., through a recipe and a chain, for `__call__` and for `step`."""
    x = jnp.ones(())
    rate = schedules.FromFunction(lambda count: 1.0 + count)
    for optim in (
        eqopt.ScaleByLearningRate(rate),
        eqopt.SGD(rate),
        eqopt.Clip(9.0) >> eqopt.SGD(rate),
    ):
        state, seen, p = optim.init(x), [], x
        for _ in range(3):
            updates, _ = optim(x, state, p)
            new, state = optim.step(x, state, p)
            seen.append((float(updates), float(new - p)))
            p = new
        assert seen == [(-1.0, -1.0), (-2.0, -2.0), (-3.0, -3.0)]


def test_the_count_is_an_int32_scalar():
    """It counts updates, however they are made."""
    optim, x = eqopt.Adam(0.1), jnp.ones(2)
    state = optim.init(x)
    assert (state.count.shape, state.count.dtype, int(state.count)) == ((), jnp.int32, 0)
    _, state = optim(x, state)
    _, state = optim.step(x, state, x)
    assert (state.count.dtype, int(state.count)) == (jnp.int32, 2)


@pytest.mark.parametrize("case", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_the_count_saturates(case):
    """At int32's largest value it stays there. Updates go on as they were, where bias corrections
    are 1 already: as at a count before with the same place among those that are acted at."""
    params = {"w": jnp.asarray([[0.5, -1.0]]), "b": jnp.asarray([0.3])}
    grads = jax.tree.map(lambda x: 0.2 - x, params)
    extras = case.extras(params, grads)

    def step(count):
        return case.optim.step(grads, after(case.optim, count, params), params, **extras)

    for count in (LARGEST - 1, LARGEST):
        late, state = step(count)
        assert int(state.count) == LARGEST
        before, state = step(count - PERIOD)
        assert int(state.count) == count - PERIOD + 1
        if not case.random:
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), before, late)


def test_schedules_go_on_at_the_largest_count():
    """A schedule sees the largest count, not a negative one."""
    x = jnp.ones(())
    optim = eqopt.SGD(schedules.Linear(1.0, 0.5, steps=4))
    updates, state = optim(x, after(optim, LARGEST, x))
    assert float(updates) == -0.5
    assert float(optim(x, state)[0]) == -0.5


class Recorder(eqopt.AbstractTransform):
    """Remembers what its hooks saw.

    - `value`: a number.
    """

    value: Hyperparam
    seen: list = eqx.field(static=True)

    def _init(self, params):
        return None

    def _update(self, updates, state, params, count, **extras):
        self.seen.append((float(self.value), int(count), extras))
        return updates, state


def test_hooks_see_values_instead_of_schedules():
    """A number, an array and a schedule look alike inside; the count is the domain's."""
    line, x = schedules.Linear(0.0, 1.0, steps=2), jnp.ones(2)
    for value, wanted in ((0.5, [0.5] * 3), (jnp.asarray(0.5), [0.5] * 3), (line, [0.0, 0.5, 1.0])):
        seen = []
        optim = eqopt.Identity() >> Recorder(value, seen)
        state = optim.init(x)
        for _ in range(3):
            _, state = optim(x, state)
        assert [(v, t) for v, t, _ in seen] == list(zip(wanted, range(3), strict=True))


def test_keywords_reach_the_hooks():
    """The value as an array; the function takes what is trained and sees the whole model."""
    seen = []
    optim = eqopt.Identity() >> Recorder(0.5, seen)
    model = (eqx.nn.Linear(2, 3, key=jax.random.key(0)), "name")
    grads = eqx.filter(model, eqx.is_inexact_array)

    def value_fn(model, factor):
        layer, name = model
        assert name == "name"
        return factor * jnp.sum(layer.weight)

    optim(grads, optim.init(model), model, value=1.5, value_fn=value_fn)
    (_, _, extras) = seen[0]
    assert isinstance(extras["value"], jax.Array)
    assert float(extras["value"]) == 1.5
    trained = eqx.filter(model, eqx.is_inexact_array)
    np.testing.assert_allclose(
        extras["value_fn"](trained, 2.0), 2.0 * np.sum(model[0].weight), rtol=1e-6
    )


# ---- hyperparameters


FIELDS = [
    (eqopt.Adam, "learning_rate", {}),
    (eqopt.Adam, "eps", {"learning_rate": 0.1}),
    (eqopt.AdamW, "weight_decay", {"learning_rate": 0.1}),
    (eqopt.SGD, "learning_rate", {}),
    (eqopt.ClipByGlobalNorm, "max_norm", {}),
    (eqopt.Clip, "max_delta", {}),
    (eqopt.NormalizeByGlobalNorm, "scale", {}),
    (eqopt.AddDecayedWeights, "weight_decay", {}),
]


@pytest.mark.parametrize("kind, field, others", FIELDS)
@pytest.mark.parametrize("value", [-0.1, -1, float("nan"), np.float32(-0.5)])
def test_numbers_below_zero(kind, field, others, value):
    """The error names class, argument, rule and value."""
    rule = rf"`{kind.__name__}\({field}=...\)` must be at least 0; got"
    with pytest.raises(ValueError, match=rule):
        kind(**others, **{field: value})


@pytest.mark.parametrize(
    "build, label",
    [
        (lambda x: eqopt.Adam(0.1, b1=x), r"`Adam\(b1=...\)`"),
        (lambda x: eqopt.AdamW(0.1, b2=x), r"`AdamW\(b2=...\)`"),
        (lambda x: eqopt.ScaleByAdam(x), r"`ScaleByAdam\(b1=...\)`"),
        (lambda x: eqopt.Trace(x), r"`Trace\(decay=...\)`"),
        (lambda x: eqopt.SGD(0.1, x), r"`SGD\(momentum=...\)`"),
    ],
)
@pytest.mark.parametrize("value", [1.0, 1, -0.1, 1.5, float("nan")])
def test_decay_rates_are_in_the_unit_interval(build, label, value):
    """In [0, 1): 1 would never forget."""
    with pytest.raises(ValueError, match=rf"{label} must be in \[0, 1\); got"):
        build(value)
    build(0)
    build(0.999999)


@pytest.mark.parametrize(
    "value, message",
    [
        (
            lambda count: 0.1,
            r"got <function.*Wrap the function: `eqopt.schedules.FromFunction\(fn\)`",
        ),
        (jnp.cos, "got "),
        ("0.1", "got '0.1'"),
        (None, "got None"),
        (True, "got True"),
        (1j, "got 1j"),
        ([0.1], r"got \[0.1\]"),
        (jnp.asarray([0.1, 0.2]), r"shape \(2,\).*`eqx.filter_vmap`"),
        (np.asarray([0.1, 0.2]), r"shape \(2,\).*`eqx.filter_vmap`"),
        (jnp.asarray(True), "dtype bool"),
        (jnp.asarray(1j), "dtype complex64"),
    ],
    ids=[
        "function",
        "jax function",
        "string",
        "None",
        "bool",
        "complex",
        "list",
        "vector",
        "numpy vector",
        "bool array",
        "complex array",
    ],
)
@pytest.mark.parametrize("kind", [eqopt.Adam, eqopt.Scale])
def test_what_is_no_number(kind, value, message):
    """`TypeError`, naming class and argument; a bare function is told about `FromFunction`."""
    field = "learning_rate" if kind is eqopt.Adam else "step_size"
    with pytest.raises(TypeError, match=rf"`{kind.__name__}\({field}=...\)` must be .*{message}"):
        kind(value)


def test_numbers_stay_what_they_were():
    """Python numbers and JAX's arrays are kept; NumPy's become JAX's; building is lazy."""
    array = jnp.asarray(0.1)
    assert eqopt.Adam(array).learning_rate is array
    assert eqopt.Adam(1).learning_rate == 1
    assert isinstance(eqopt.Adam(1).learning_rate, int)
    assert isinstance(eqopt.Adam(0.1).learning_rate, float)
    for number in (np.float32(0.5), np.asarray(0.5), np.float64(0.5), np.int32(2)):
        held = eqopt.Adam(number).learning_rate
        assert isinstance(held, jax.Array)
        assert float(held) == float(number)
    line = schedules.Linear(0.0, 1.0, steps=2)
    assert eqopt.Adam(line).learning_rate is line


def test_integers_beyond_int32_are_kept_as_floats():
    """So that they can go into JAX."""
    optim, x = eqopt.Scale(10**10), jnp.ones(2)
    assert isinstance(optim.step_size, float)
    np.testing.assert_allclose(optim(x, optim.init(x))[0], [1e10, 1e10], rtol=1e-6)
    np.testing.assert_allclose(jax.jit(optim.step)(x, optim.init(x), x)[0], [1e10] * 2, rtol=1e-6)


@pytest.mark.parametrize("kind", [eqopt.Adam, eqopt.SGD, eqopt.ScaleByLearningRate])
def test_batched_numbers_outside_vmap(kind):
    """The error names class, argument and shape, and says what to use."""
    optim, x = eqx.filter_vmap(kind)(jnp.asarray([0.1, 0.2])), jnp.ones(2)
    message = rf"`{kind.__name__}\(learning_rate=...\)` must be a scalar.*shape \(2,\).*filter_vmap"
    with pytest.raises(ValueError, match=message):
        optim(x, kind(0.1).init(x))


def test_repr():
    """Fields that are not their defaults, with their values."""
    assert repr(eqopt.Adam(1e-3)) == "Adam(learning_rate=0.001)"
    assert repr(eqopt.Adam(1e-3, b1=0.9)) == "Adam(learning_rate=0.001)"
    assert repr(eqopt.Adam(1e-3, b1=0.5)) == "Adam(learning_rate=0.001, b1=0.5)"
    assert repr(eqopt.SGD(0.1, 0.9, nesterov=True)) == (
        "SGD(learning_rate=0.1, momentum=0.9, nesterov=True)"
    )
    assert repr(eqopt.Scale(jnp.asarray(0.5))) == "Scale(step_size=Array(0.5))"
    assert repr(eqopt.ScaleByAdam()) == "ScaleByAdam()"
