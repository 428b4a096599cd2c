"""The contracts jit and one trace: how a function is called, and how a number is given, makes no
difference, and nothing is traced or compiled twice."""

import dataclasses
import pickle
from functools import cache

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import eqopt
from eqopt import schedules
from eqopt._core.component import converter_of
from eqopt._core.wrapper import AbstractOwnClock

STEPS = 3
# One rounding more or less, of numbers about 1: XLA contracts products and sums, folds constants.
CLOSE = {"rtol": 2e-7, "atol": 2e-7}
COUNTS = np.arange(8)
WITH_NUMBERS = [name for name, case in cases.TRANSFORMS.items() if jax.tree.leaves(case.optim)]

compilations = []


def _listen(event, _duration, **_kwargs):
    if event == "/jax/core/compile/backend_compile_duration":
        compilations.append(event)


jax.monitoring.register_event_duration_secs_listener(_listen)


class Counted:
    """A function that counts how often Python runs it: under `jit`, its traces."""

    def __init__(self, fn):
        self.fn = fn
        self.calls = 0

    def __call__(self, *args):
        self.calls += 1
        return self.fn(*args)


def step_of(name):
    """One step of a case, `(optim, grads, state, params) -> (None, params, state)`."""
    case = cases.TRANSFORMS[name]

    def step(optim, grads, state, params):
        return None, *optim.step(grads, state, params, **case.extras(params, grads))

    return step


def both_of(name):
    """One step of a case and, in the first place, what the update alone gives."""
    return lambda *args: trees.step_both_ways(cases.TRANSFORMS[name], *args)


def run(step, optim):
    """The updates of a few steps, and the parameters and the state after them. No type
    changes on the way."""
    params = trees.params()
    state = optim.init(params)
    updates = []
    for t in range(STEPS):
        new, new_params, new_state = step(optim, trees.grads(params, t), state, params)
        if new is not None:
            trees.assert_same_type(new, params)
        trees.assert_same_type(new_params, params)
        trees.assert_same_type(new_state, state)
        updates.append(new)
        params, state = new_params, new_state
    return updates, params, state


@cache
def eager(name):
    """The eager run of a case, which everything else is compared with."""
    return run(both_of(name), cases.TRANSFORMS[name].optim)


def assert_like_eager(name, out):
    """The parameters and the state of a run agree with those of the eager one."""
    trees.assert_close(out[1:], eager(name)[1:], **CLOSE)


def rebuilt(component, pickles):
    """An equal instance that shares nothing with the one given, where it can be pickled."""
    if pickles:
        return pickle.loads(pickle.dumps(component))
    return jax.tree.map(lambda x: x, component)


def dynamic(component):
    """The component with an array for each number."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), component)


def nudged(component):
    """The same component with other values of its arrays."""
    return jax.tree.map(lambda x: (x * 1.01).astype(x.dtype) if eqx.is_array(x) else x, component)


def scheduled(optim):
    """The optimizer with `Constant` for each number that may be a schedule, also of its members."""

    def is_member(x):
        return x is not optim and isinstance(x, eqopt.AbstractTransform)

    optim = jax.tree.map(lambda x: scheduled(x) if is_member(x) else x, optim, is_leaf=is_member)
    for field in dataclasses.fields(optim):
        value = getattr(optim, field.name)
        if eqx.is_array_like(value) and getattr(converter_of(field.type), "schedules", False):
            constant = schedules.Constant(value)
            optim = eqx.tree_at(lambda o, name=field.name: getattr(o, name), optim, constant)
    return optim


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_eager_and_jit_agree(name):
    """Eager and `jax.jit` with the optimizer as an argument agree; three steps are traced once,
    and neither an equal optimizer built anew nor new values trace again."""
    case = cases.TRANSFORMS[name]
    step = Counted(both_of(name))
    jitted = jax.jit(step)
    trees.assert_close(run(jitted, case.optim), eager(name), **CLOSE)
    run(jitted, rebuilt(case.optim, case.pickles))
    if not any(isinstance(x, int) for x in jax.tree.leaves(case.optim)):
        run(jitted, nudged(case.optim))
    assert step.calls == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_filter_jit_agrees(name):
    """Eager and `eqx.filter_jit` agree when all numbers are arrays; three steps are traced once,
    and neither an equal optimizer built anew nor new values trace again."""
    case = cases.TRANSFORMS[name]
    optim = eqopt.dynamic(case.optim)
    step = Counted(step_of(name))
    jitted = eqx.filter_jit(step)
    out = run(jitted, optim)
    assert_like_eager(name, out)
    run(jitted, rebuilt(optim, case.pickles))
    changed = run(jitted, nudged(optim))
    assert step.calls == 1
    if jax.tree.leaves(optim):
        different = jax.tree.map(lambda x, y: jnp.any(x != y), changed, out)
        assert any(jax.tree.leaves(different))


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_constants_agree(name):
    """Eager, `jax.jit` with the optimizer as a constant, and `eqx.filter_jit`, where Python
    numbers and those in schedules are constants, agree; three steps are traced once, and an equal
    optimizer built anew does not trace again."""
    case = cases.TRANSFORMS[name]
    step = Counted(step_of(name))
    jitted = jax.jit(lambda *args: step(case.optim, *args))
    assert_like_eager(name, run(lambda _, *args: jitted(*args), case.optim))
    assert step.calls == 1

    step = Counted(step_of(name))
    jitted = eqx.filter_jit(step)
    assert_like_eager(name, run(jitted, case.optim))
    run(jitted, rebuilt(case.optim, case.pickles))
    assert step.calls == 1
    if name in WITH_NUMBERS:
        assert_like_eager(name, run(jitted, scheduled(case.optim)))


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_numbers_agree_however_given(name):
    """Python numbers, arrays and schedules give the same to 2e-7: eager steps have no other
    difference, because all are float32 scalars inside."""
    optim = cases.TRANSFORMS[name].optim
    given = eager(name)
    for other in (eqopt.dynamic(optim), scheduled(optim)):
        updates, params, state = run(both_of(name), other)
        trees.assert_close((updates, params), given[:2], rtol=2e-7, atol=0)
        trees.assert_close(state, given[2], rtol=2e-7, atol=0)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_eager_steps_after_the_first_compile_nothing(name):
    """The first eager step compiles what it needs; the next ones compile nothing. Where not every
    step acts, the first is a round of them."""
    case = cases.TRANSFORMS[name]
    params = trees.params()
    first = 2 * STEPS if isinstance(case.optim, AbstractOwnClock) else 1
    grads = [trees.grads(params, t) for t in range(first + STEPS)]
    state = case.optim.init(params)
    for t in range(first):
        _, params, state = trees.step_both_ways(case, case.optim, grads[t], state, params)
    before = len(compilations)
    for t in range(first, first + STEPS):
        _, params, state = trees.step_both_ways(case, case.optim, grads[t], state, params)
    assert len(compilations) == before


def test_compilations_are_seen():
    """The count of compilations that the test above goes by does count."""
    before = len(compilations)
    jax.jit(lambda x: x + 1)(1.0)
    assert len(compilations) > before


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_case_B6_state_types_are_constant(name, dtype, x64):
    """Shapes, dtypes, weak types and structure of the state stay as `init` made them, the
    parameters' too, with a float32 value passed; three steps are traced once."""
    case = cases.TRANSFORMS[name]

    @Counted
    def step(optim, grads, state, params, value):
        extras = {"value": value, **case.extras(params, grads)}
        updates, _ = optim(grads, state, params, **extras)
        return updates, *optim.step(grads, state, params, **extras)

    jitted = jax.jit(step)
    given = params = trees.params(jnp.dtype(dtype))
    grads = trees.grads(params, 0)
    first = state = jax.eval_shape(case.optim.init, params)
    assert not any(x.weak_type for x in jax.tree.leaves(first))
    for _ in range(STEPS):
        updates, params, state = jax.eval_shape(
            jitted, case.optim, grads, state, params, jnp.float32(1.5)
        )
        trees.assert_same_type(state, first)
        trees.assert_same_type(updates, given)
        trees.assert_same_type(params, given)
    assert step.calls == 1


def test_case_C1_new_learning_rates_do_not_trace_again():
    """A step that takes the optimizer is traced once for newly built ones, and for one edited by
    `eqx.tree_at`; the results differ."""

    @Counted
    def step(optim, grads, state, params):
        return optim.step(grads, state, params)[0]

    jitted = jax.jit(step)
    params, grads = jnp.ones(3), jnp.ones(3)
    optims = [eqopt.Adam(rate) for rate in (1e-1, 1e-2, 1e-3)]
    optims.append(eqx.tree_at(lambda o: o.learning_rate, optims[0], 0.5))
    outs = [float(jitted(o, grads, o.init(params), params)[0]) for o in optims]
    np.testing.assert_allclose(outs, [0.9, 0.99, 0.999, 0.5], rtol=1e-5)
    assert step.calls == 1


@pytest.mark.parametrize("given", [lambda o: o, eqopt.dynamic, scheduled])
@pytest.mark.parametrize("transformed", [lambda fn: fn, jax.jit, eqx.filter_jit])
def test_decay_near_one(given, transformed):
    """However the numbers are given, the first step of Adam is the learning rate, also where
    `1 - b2` has few digits in float32."""
    optim = given(eqopt.Adam(0.1, b2=0.999999, eps=0.0))
    params, grads = jnp.ones(2), jnp.array([2.0, -0.5])
    step = transformed(lambda optim, state: optim(grads, state, params)[0])
    np.testing.assert_allclose(step(optim, optim.init(params)), [-0.1, 0.1], rtol=1e-6)


@pytest.mark.parametrize("name", cases.SCHEDULES)
def test_schedule(name):
    """A schedule gives the same eager and compiled, as an argument and as a constant, at a scalar
    count and at an array of counts, with numbers and with arrays; it is traced once."""
    case = cases.SCHEDULES[name]
    expected = np.array([case.schedule(t) for t in COUNTS])
    assert expected.dtype == np.float32

    def check(values):
        assert values.shape == COUNTS.shape and values.dtype == jnp.float32
        np.testing.assert_allclose(values, expected, rtol=2e-7, atol=1e-7)

    value = Counted(lambda schedule, count: schedule(count))
    as_argument, filtered = jax.jit(value), eqx.filter_jit(value)
    check(case.schedule(COUNTS))
    check(case.schedule(COUNTS.reshape(2, 4)).reshape(-1))
    check(jax.jit(case.schedule)(COUNTS))
    check(as_argument(case.schedule, COUNTS))
    check(np.array([as_argument(case.schedule, t) for t in COUNTS]))
    check(np.array([as_argument(rebuilt(case.schedule, case.pickles), t) for t in COUNTS]))
    assert value.calls == 2  # an array of counts and a scalar
    arrays = dynamic(case.schedule)
    check(arrays(COUNTS))
    check(filtered(arrays, COUNTS))
    filtered(nudged(arrays), COUNTS)
    assert value.calls == 3


@pytest.mark.parametrize("name", cases.PROJECTIONS)
def test_projection(name):
    """A projection gives the same eager and compiled, as an argument and as a constant, with
    numbers and with arrays; it is traced once."""
    projection, params = cases.PROJECTIONS[name].projection, cases.PROJECTIONS[name].tree()
    expected = projection(params)
    trees.assert_same_type(expected, params)

    project = Counted(lambda projection, tree: projection(tree))
    as_argument, filtered = jax.jit(project), eqx.filter_jit(project)
    trees.assert_close(jax.jit(lambda tree: projection(tree))(params), expected)
    for _ in range(2):
        trees.assert_close(as_argument(rebuilt(projection, True), params), expected)
    assert project.calls == 1
    arrays = dynamic(projection)
    trees.assert_close(arrays(params), expected, rtol=2e-7, atol=0)
    trees.assert_close(filtered(arrays, params), expected)
    filtered(nudged(arrays), params)
    assert project.calls == 2


def test_many_leaves_alike():
    """Eager and compiled, many leaves of two shapes each give what they give alone."""
    optim = eqopt.AdamW(0.1, 0.8, 0.9, 1e-2, 1e-2, 0.1)
    params = [trees.grads(jnp.zeros(2 + i % 2), i) for i in range(35)]
    grads = [trees.grads(p, 50 + i) for i, p in enumerate(params)]
    pairs = zip(grads, params, strict=True)
    alone = [optim.step(g, optim.init(p), p)[0] for g, p in pairs]
    state = optim.init(params)
    for step in (optim.step, jax.jit(optim.step)):
        trees.assert_close(step(grads, state, params)[0], alone, **CLOSE)
