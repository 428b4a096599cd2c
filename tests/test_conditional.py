"""Transformations that act at some updates only: by a predicate, and every k-th."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import eqopt
from eqopt import projections, schedules


def is_even(count):
    """A predicate of the count."""
    return count % 2 == 0


def is_low(count, value, **extras):
    """A predicate of the loss."""
    return value < 1


def run(optim, steps, grads=1.0, **extras):
    """The parameters after each update with a constant gradient, from 1, and the last state."""
    params = jnp.ones(())
    state, found = optim.init(params), []
    for _ in range(steps):
        params, state = optim.step(jnp.asarray(grads), state, params, **extras)
        found.append(float(params))
    return found, state


def bits(tree):
    """All bits of a tree."""
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


# ---- by a predicate


@pytest.mark.parametrize("transformed", [lambda fn: fn, jax.jit])
@pytest.mark.parametrize("wrapper", [eqopt.ConditionallyTransform, eqopt.ConditionallyMask])
def test_what_comes_out(wrapper, transformed):
    """Where it does not act, the inner state stays bit-equal; the updates pass through bit-equal,
    or are zero and the parameters bit-equal."""
    optim, inner = wrapper(eqopt.Adam(0.1), is_even), eqopt.Adam(0.1)
    params, grads = trees.params(), trees.grads(trees.params(), 0)
    grads["s"] = jnp.asarray(-0.0)
    step = transformed(lambda s: optim.step(grads, s, params))
    call = transformed(lambda s: optim(grads, s, params))
    state = optim.init(params)
    updates, after = call(state)
    trees.assert_close(updates, inner(grads, inner.init(params), params)[0])
    updates, later = call(after)
    new, stepped = step(after)
    assert bits(later.inner) == bits(stepped.inner) == bits(after.inner)
    assert int(later.count) == int(stepped.count) == 2
    if wrapper is eqopt.ConditionallyTransform:
        assert bits(updates) == bits(grads)
        trees.assert_equal(new, eqopt.apply_updates(params, grads))
    else:
        assert not any(np.any(x) for x in jax.tree.leaves(updates))
        assert bits(new) == bits(params)


def test_schedules_inside():
    """The schedule inside goes by the updates that it saw: rates 0.1, 0.2, 0.3 at counts 0, 2, 4;
    the gradient passes through at 1 and 3."""
    inner = eqopt.ScaleByLearningRate(schedules.Linear(0.1, 0.3, steps=2))
    found, state = run(eqopt.ConditionallyTransform(inner, is_even), 5)
    np.testing.assert_allclose(found, [0.9, 1.9, 1.7, 2.7, 2.4], rtol=1e-6)
    assert int(state.inner.inner_state.count) == 3
    found, _ = run(eqopt.ConditionallyMask(inner, is_even), 5)
    np.testing.assert_allclose(found, [0.9, 0.9, 0.7, 0.7, 0.4], rtol=1e-6)


def test_projections_inside_are_exact():
    """A step that acts projects the parameters themselves."""
    box = projections.Box(0.0, 0.1)
    optim = eqopt.ConditionallyTransform(eqopt.SGD(1.0) >> box, is_even)
    assert run(optim, 1, -7.3)[0] == [float(np.float32(0.1))]


@pytest.mark.parametrize("wrapper", [eqopt.ConditionallyTransform, eqopt.ConditionallyMask])
def test_forwarded_keywords(wrapper):
    """The predicate sees the keywords, in lanes too, where NaN of a lane that does not act stays
    out of the inner state; a keyword that only it knows is accepted."""
    optim = wrapper(eqopt.Trace(0.5), is_low, forward_extras=True)
    params = jnp.ones((3, 2))
    state = jax.vmap(optim.init)(params)
    grads = jnp.array([[1.0, 2.0], [jnp.nan, 1.0], [3.0, 4.0]])

    def call(g, s, p, value):
        return optim(g, s, p, value=value, epoch=3)

    _, state = jax.vmap(call)(grads, state, params, jnp.array([0.5, 1.5, jnp.nan]))
    trace = eqopt.find(state, eqopt.TraceState).trace
    np.testing.assert_array_equal(trace, [[1, 2], [0, 0], [0, 0]])
    np.testing.assert_array_equal(state.inner.inner_state.count, [1, 0, 0])

    without = wrapper(eqopt.Trace(0.5), is_even)
    with pytest.raises(TypeError, match="`epoch`"):
        without(params, without.init(params), params, epoch=3)


def test_keywords_reach_the_inner_transformation():
    """Whether the predicate sees them or not."""
    for wrapper in (eqopt.ConditionallyTransform, eqopt.ConditionallyMask):
        optim = wrapper(eqopt.BestSoFar(eqopt.SGD(0.1)), is_even)
        _, state = run(optim, 2, value=0.25)
        assert float(eqopt.find(state, eqopt.BestSoFarState).best_value) == 0.25


def returns_a_number(count):
    return 1


def returns_numbers(count):
    return jnp.ones(2, bool)


def returns_a_list(count):
    return [True]


def returns_nothing(count):
    return None


def returns_true(count):
    return True


@pytest.mark.parametrize("wrapper", [eqopt.ConditionallyTransform, eqopt.ConditionallyMask])
@pytest.mark.parametrize(
    "predicate", [returns_a_number, returns_numbers, returns_a_list, returns_nothing]
)
def test_wrong_answers(wrapper, predicate):
    """What is no scalar bool is refused and named."""
    optim, x = wrapper(eqopt.Scale(0.5), predicate), jnp.ones(2)
    for call in (optim, jax.jit(optim)):
        with pytest.raises(TypeError, match=rf"`{wrapper.__name__}\(predicate=.*scalar bool; got"):
            call(x, optim.init(x))


def test_what_is_no_function():
    """A predicate that cannot be called is refused; a Python bool as its answer is fine."""
    for wrapper in (eqopt.ConditionallyTransform, eqopt.ConditionallyMask):
        with pytest.raises(TypeError, match="predicate"):
            wrapper(eqopt.Scale(0.5), 3)
        optim, x = wrapper(eqopt.Scale(0.5), returns_true), jnp.ones(2)
        for call in (optim, jax.jit(optim)):
            np.testing.assert_array_equal(call(x, optim.init(x))[0], [0.5, 0.5])
        with pytest.raises(TypeError, match=rf"`{wrapper.__name__}\(inner=...\)` must be"):
            wrapper(3, is_even)


def only_of_the_epoch(count, *, epoch):
    """A predicate that names a keyword and takes no other."""
    return epoch > 1


@pytest.mark.parametrize("wrapper", [eqopt.ConditionallyTransform, eqopt.ConditionallyMask])
def test_predicates_that_name_keywords(wrapper):
    """They get what they name, and need it; one of other arguments is refused."""
    optim, x = wrapper(eqopt.Trace(0.5), only_of_the_epoch, forward_extras=True), jnp.ones(2)
    _, state = optim(x, optim.init(x), x, value=1.0, epoch=2)
    assert state.inner.inner_state.count == 1
    with pytest.raises(TypeError, match=rf"`{wrapper.__name__}` needs `epoch`: pass"):
        optim(x, state, x, value=1.0)
    with pytest.raises(TypeError, match=rf"`{wrapper.__name__}\(predicate=.* function of `count`"):
        wrapper(eqopt.Trace(0.5), lambda: True)


def of_the_loss(count, value):
    return value < 1


def of_the_loss_by_default(count, value=0.5, *rest, limit=1, **extras):
    return value < limit


def of_a_second_count(count, other, /):
    return True


def of_the_parameters(count, *, params):
    return True


@pytest.mark.parametrize("wrapper", [eqopt.ConditionallyTransform, eqopt.ConditionallyMask])
def test_keywords_that_do_not_come(wrapper):
    """What the predicate needs and will not be given is told at construction."""
    inner, label = eqopt.Trace(0.5), rf"`{wrapper.__name__}\(predicate=...\)` must be"
    alone = rf"{label} a function of `count` alone, unless `forward_extras=True`; got .*"
    for predicate, name in [(of_the_loss, "value"), (only_of_the_epoch, "epoch")]:
        with pytest.raises(TypeError, match=rf"{alone}{name}\)`, which needs `{name}`"):
            wrapper(inner, predicate)
        wrapper(inner, predicate, forward_extras=True)
        wrapper(inner, partial(predicate, **{name: 2}))
    for forward in (False, True):
        with pytest.raises(TypeError, match=rf"{label} a function of `count`; got .*other, /\)`"):
            wrapper(inner, of_a_second_count, forward_extras=forward)
        for taken in (of_the_loss_by_default, np.isfinite, lambda *all: True):
            wrapper(inner, taken, forward_extras=forward)
    with pytest.raises(TypeError, match=rf"{label} .*`params` is no such keyword"):
        wrapper(inner, of_the_parameters, forward_extras=True)


# ---- every k-th


def acts(optim, steps=10):
    """At which counts an update by -1 comes out."""
    x = jnp.zeros(())
    body = lambda state, g: optim(g, state, x)[::-1]  # noqa: E731 - state and updates swapped
    return jax.lax.scan(body, optim.init(x), jnp.ones(steps))[1] != 0


def at(*counts):
    """Which of ten counts, from 0, those are."""
    return np.isin(np.arange(10), counts)


@pytest.mark.parametrize(
    ("k", "wanted"),
    [
        (1, at(*range(10))),
        (jnp.asarray(4), at(0, 4, 8)),
        (2.5, at(0, 3, 6, 9)),
        (1e12, at(0)),
        # 1 at the count 0, 2 at 1, 4 at 3.
        (schedules.Linear(1.0, 10.0, steps=9), at(0, 1, 3, 7)),
    ],
)
def test_every(k, wanted):
    """Numbers, arrays and schedules, which are looked up when it acts."""
    np.testing.assert_array_equal(acts(eqopt.Every(eqopt.SGD(1.0), k)), wanted)


def test_every_in_lanes():
    """`k` may be traced, each lane with its own."""
    optims = eqx.filter_vmap(lambda k: eqopt.Every(eqopt.SGD(1.0), k))(jnp.array([2, 3]))
    np.testing.assert_array_equal(
        eqx.filter_vmap(acts)(optims), [at(0, 2, 4, 6, 8), at(0, 3, 6, 9)]
    )


def test_every_leaves_alone():
    """In between the parameters are the very same arrays, and the inner state, with a random key,
    is bit-equal."""
    optim = eqopt.Every(eqopt.AddNoise(0.1, 0.5, key=jax.random.key(0)) >> eqopt.Adam(0.1), 3)
    params = trees.params()
    state = optim.init(params)
    new, state = optim.step(trees.grads(params, 0), state, params)
    assert not np.array_equal(new["s"], params["s"])
    for t in (1, 2):
        same, after = optim.step(trees.grads(params, t), state, new)
        assert all(x is y for x, y in zip(jax.tree.leaves(same), jax.tree.leaves(new), strict=True))
        assert bits(after.inner.inner_state) == bits(state.inner.inner_state)
        state = after
    last, _ = optim.step(trees.grads(params, 3), state, new)
    assert not np.array_equal(last["s"], new["s"])


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: eqopt.ConditionallyTransform(inner, is_even),
        lambda inner: eqopt.ConditionallyMask(inner, is_even),
        lambda inner: eqopt.Every(inner, 2),
    ],
)
def test_no_copies(wrap):
    """A donated step copies no buffer of the size of the parameters."""
    params = {"w": jnp.ones(2**16)}
    optim = wrap(eqopt.AdamW(1e-3))
    step = jax.jit(lambda p, s, g: optim.step(g, s, p), donate_argnums=(0, 1))
    text = step.lower(params, optim.init(params), params).compile().as_text()
    arrays = [line for line in text.splitlines() if f"= f32[{2**16}]" in line]
    assert arrays and "conditional" in text
    assert not [line for line in arrays if " copy(" in line]
