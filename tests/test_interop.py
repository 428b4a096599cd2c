"""eqopt inside optax, and optax inside eqopt."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import trees
from cases.averaging import AVERAGING
from cases.choosing import CHOOSING
from cases.wrappers import WRAPPERS as SKIPPING

import eqopt
from eqopt import schedules
from eqopt.interop import to_optax

WEIGHTS = {"w": jnp.asarray([[0.5, -1.0]]), "b": jnp.asarray([0.3])}


def grads(step):
    """Gradients that change sign."""
    return jax.tree.map(lambda x: (-1.0) ** step * (x + 0.5), WEIGHTS)


def run_optax(tx, steps=4, **extras):
    """The parameters after some steps in optax's own loop."""
    p, state = WEIGHTS, tx.init(WEIGHTS)
    for step in range(steps):
        updates, state = tx.update(grads(step), state, p, **extras)
        p = optax.apply_updates(p, updates)
    return p


def run(optim, steps=4, **extras):
    """The parameters after some steps."""
    p, state = WEIGHTS, optim.init(WEIGHTS)
    for step in range(steps):
        p, state = optim.step(grads(step), state, p, **extras)
    return p


def assert_close(a, b, rtol=1e-5):
    """Equal up to rounding."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol), a, b)


def test_to_optax_is_a_transformation():
    """An `optax.GradientTransformationExtraArgs` of plain functions."""
    tx = to_optax(eqopt.Adam(0.1))
    assert isinstance(tx, optax.GradientTransformationExtraArgs)
    assert_close(run_optax(tx), run(eqopt.Adam(0.1)))


@pytest.mark.parametrize(
    "chain, wanted",
    [
        (
            lambda: optax.chain(optax.clip(0.7), to_optax(eqopt.Adam(0.1))),
            lambda: optax.chain(optax.clip(0.7), optax.adam(0.1)),
        ),
        (
            lambda: optax.chain(to_optax(eqopt.AddDecayedWeights(0.1)), optax.sgd(0.1)),
            lambda: optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1)),
        ),
        (
            lambda: optax.MultiSteps(to_optax(eqopt.Adam(0.1)), 2),
            lambda: optax.MultiSteps(optax.adam(0.1), 2),
        ),
        (
            lambda: optax.masked(to_optax(eqopt.Trace(0.9)), {"w": True, "b": False}),
            lambda: optax.masked(optax.trace(0.9), {"w": True, "b": False}),
        ),
    ],
    ids=["at the end", "at the head", "MultiSteps", "masked"],
)
def test_to_optax_inside_optax(chain, wanted):
    """It stands wherever optax takes a transformation."""
    assert_close(run_optax(chain(), steps=2), run_optax(wanted(), steps=2))


def test_to_optax_under_jit():
    """Jitted, with the state as an argument: traced once."""
    tx, traces = to_optax(eqopt.Adam(schedules.Linear(0.1, 0.0, steps=4))), []

    @jax.jit
    def step(g, state, p):
        traces.append(None)
        updates, state = tx.update(g, state, p)
        return optax.apply_updates(p, updates), state

    p, state = WEIGHTS, tx.init(WEIGHTS)
    for t in range(3):
        p, state = step(grads(t), state, p)
    assert len(traces) == 1
    assert_close(p, run(eqopt.Adam(schedules.Linear(0.1, 0.0, steps=4)), steps=3))


WRAPPERS = {**AVERAGING, **CHOOSING, **SKIPPING}


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_to_optax(name):
    """Two updates of a wrapper are the same through optax's interface, keywords included."""
    case = WRAPPERS[name]
    params = trees.small_params()
    given = [trees.grads(params, t) for t in range(2)]

    def run(update, init, grads):
        state = init(params)
        for g in grads:
            updates, state = update(g, state, params, **case.extras(params, g))
        return updates, state

    tx = to_optax(case.optim)
    ours, theirs = trees.quick_jit(
        lambda grads: (run(case.optim, case.optim.init, grads), run(tx.update, tx.init, grads))
    )(given)
    trees.assert_equal(theirs, ours)
    assert ours[1].count == 2


def test_to_optax_drops_unknown_keywords():
    """As optax's own transformations do, so that it may stand beside others that need them."""
    tx = optax.chain(to_optax(eqopt.Adam(0.1)), optax.scale_by_polyak())
    wanted = optax.chain(optax.adam(0.1), optax.scale_by_polyak())
    extras = {"value": jnp.asarray(0.5), "loss_scale": 2.0}
    assert_close(run_optax(tx, **extras), run_optax(wanted, **extras))


def test_to_optax_passes_what_is_needed():
    """A keyword that a transformation inside needs goes through both crossings."""
    tx = to_optax(eqopt.Clip(0.7) >> optax.scale_by_polyak())
    wanted = optax.chain(optax.clip(0.7), optax.scale_by_polyak())
    value = jnp.asarray(0.5)
    assert_close(run_optax(tx, value=value), run_optax(wanted, value=value))
    with pytest.raises(TypeError, match="value"):
        run_optax(tx)


@pytest.mark.parametrize(
    "optim, wanted",
    [
        (
            lambda: eqopt.Clip(0.7) >> optax.adam(0.1),
            lambda: optax.chain(optax.clip(0.7), optax.adam(0.1)),
        ),
        (
            lambda: optax.clip(0.7) >> eqopt.Adam(0.1),
            lambda: optax.chain(optax.clip(0.7), optax.adam(0.1)),
        ),
        (
            lambda: optax.clip(0.7) >> eqopt.Trace(0.9) >> optax.scale(-0.1),
            lambda: optax.chain(optax.clip(0.7), optax.trace(0.9), optax.scale(-0.1)),
        ),
        (
            lambda: eqopt.Chain(clip=optax.clip(0.7), adam=optax.adamw(0.1)),
            lambda: optax.chain(optax.clip(0.7), optax.adamw(0.1)),
        ),
        (
            lambda: eqopt.FromOptax(optax.inject_hyperparams(optax.adam)(learning_rate=0.1)),
            lambda: optax.adam(0.1),
        ),
        (
            lambda: eqopt.FromOptax(optax.masked(optax.adam(0.1), {"w": True, "b": False})),
            lambda: optax.masked(optax.adam(0.1), {"w": True, "b": False}),
        ),
        (
            lambda: eqopt.FromOptax(optax.MultiSteps(optax.adam(0.1), 2)),
            lambda: optax.MultiSteps(optax.adam(0.1), 2),
        ),
    ],
    ids=["right", "left", "both", "named", "inject_hyperparams", "masked", "MultiSteps"],
)
def test_optax_inside_eqopt(optim, wanted):
    """On either side of `>>`, and those of optax that hold numbers or others."""
    assert_close(run(optim(), steps=2), run_optax(wanted(), steps=2))


def test_optax_becomes_a_member():
    """`>>` wraps it in `FromOptax`."""
    tx = optax.scale(0.5)
    for chain, types in (
        (eqopt.Clip(1.0) >> tx, [eqopt.Clip, eqopt.FromOptax]),
        (tx >> eqopt.Clip(1.0), [eqopt.FromOptax, eqopt.Clip]),
    ):
        assert [type(member) for member in chain] == types


@pytest.mark.parametrize(
    "tx", [3, "adam", None, {"init": 1}, optax.adam, optax.GradientTransformation]
)
def test_what_is_not_from_optax(tx):
    """Functions, classes and other things have no `init` and `update`."""
    with pytest.raises(TypeError, match=r"`FromOptax\(tx=...\)` must be an optax transformation"):
        eqopt.FromOptax(tx)


@pytest.mark.parametrize(
    "optim",
    [
        lambda: eqopt.FromOptax(optax.scale_by_polyak()),
        lambda: eqopt.Clip(10.0) >> optax.scale_by_polyak(),
        lambda: optax.scale_by_polyak() >> eqopt.Scale(1.0),
        lambda: optax.scale(1.0) >> (eqopt.Identity() >> optax.scale_by_polyak()),
    ],
)
def test_value_reaches_optax(optim):
    """Polyak's step needs the loss: g value / |g|^2, at most 1. A Python float will do."""
    optim = optim()
    g = jnp.asarray([3.0, 4.0])
    for value in (jnp.asarray(5.0), 5.0):
        updates, _ = optim(g, optim.init(g), g, value=value)
        np.testing.assert_allclose(updates, [0.6, 0.8], rtol=1e-6)
    with pytest.raises(TypeError, match="value"):
        optim(g, optim.init(g), g)


def without_extras():
    """An optax transformation whose update takes no keywords."""

    def init(params):
        return optax.EmptyState()

    def update(updates, state, params=None):
        return updates, state

    return optax.GradientTransformation(init, update)


def with_extras(seen):
    """An optax transformation that notes the keywords it is given."""

    def init(params):
        return optax.EmptyState()

    def update(updates, state, params=None, **extras):
        seen.append(dict(extras))
        return updates, state

    return optax.GradientTransformationExtraArgs(init, update)


def test_optax_without_extras_gets_none():
    """What every transformation accepts is not handed to it; what nobody knows is refused."""
    optim = eqopt.Identity() >> without_extras()
    g = jnp.ones(2)
    updates, _ = optim(g, optim.init(g), g, value=1.0, grad=g, value_fn=jnp.sum)
    np.testing.assert_array_equal(updates, g)
    with pytest.raises(TypeError, match="unexpected keyword `loss_scale`"):
        optim(g, optim.init(g), g, loss_scale=1.0)


def test_optax_with_extras_gets_all():
    """Also keywords that eqopt does not know, through a chain and beside one without."""
    seen = []
    optim = without_extras() >> eqopt.Clip(1.0) >> with_extras(seen)
    g = jnp.ones(2)
    optim(g, optim.init(g), g, value=1.0, loss_scale=2.0)
    assert seen[0].keys() == {"value", "loss_scale"}
    optim.step(g, optim.init(g), g, loss_scale=2.0)
    assert seen[1].keys() == {"loss_scale"}


@pytest.mark.parametrize(
    "tx",
    [
        lambda: optax.adam(0.1),
        lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
        lambda: optax.sgd(optax.linear_schedule(0.1, 0.0, 4), 0.9),
        lambda: optax.contrib.schedule_free_adamw(0.1),
        lambda: optax.apply_if_finite(optax.adam(0.1), 2),
    ],
    ids=["adam", "inject_hyperparams", "sgd", "schedule_free", "apply_if_finite"],
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_types_of_optax_states_are_constant(tx, dtype):
    """Shapes, dtypes and weak types of init's state and of the next ones agree."""
    optim = eqopt.FromOptax(tx())
    p = jnp.asarray([1.0, -2.0], dtype)

    def types(state):
        return [(x.shape, x.dtype, x.weak_type) for x in map(jax.typeof, jax.tree.leaves(state))]

    state = optim.init(p)
    wanted = types(state)
    for _ in range(2):
        updates, state = optim(p, state, p)
        assert updates.dtype == dtype
        assert types(state) == wanted


def test_optax_on_a_whole_model():
    """A model with functions and integers among its leaves."""
    model = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    model = (model, jnp.arange(2), 0.5)
    grads = jax.tree.map(jnp.ones_like, eqx.filter(model, eqx.is_inexact_array))
    results = []
    for optim in (eqopt.Clip(0.5) >> optax.sgd(0.1, 0.9), eqopt.Clip(0.5) >> eqopt.SGD(0.1, 0.9)):
        new, _ = optim.step(grads, optim.init(model), model)
        assert new[1] is model[1]
        assert new[2] == 0.5
        results.append(eqx.filter(new, eqx.is_inexact_array))
    assert_close(*results)
