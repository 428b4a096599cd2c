"""Averages of the parameters, the best ones so far, and how `eval_params` composes."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import trees
from trajectories import problem, tree

import eqopt
from eqopt import schedules


def iterates(is_complex):
    """The gradients, and the parameters before the first update of SGD with rate 0.1 and after
    each."""
    params, grads = problem(is_complex)
    return grads, [params, *(params - 0.1 * np.cumsum(grads, axis=0))]


def check_averages(optim, wanted, is_complex):
    """After each of ten updates, in both forms, the average is as wanted, and the parameters are
    those of SGD."""
    grads, points = iterates(is_complex)
    params = tree(points[0])
    state = optim.init(params)
    trees.assert_equal(optim.eval_params(state, params), params)
    for t, g in enumerate(grads, start=1):
        updates, called = optim(tree(g), state, params)
        new, state = optim.step(tree(g), state, params)
        trees.assert_equal(updates, jax.tree.map(lambda x: -0.1 * x, tree(g)))
        np.testing.assert_allclose(trees.flat(new), points[t], rtol=1e-12)
        for after in (called, state):
            average = trees.flat(optim.eval_params(after, new))
            np.testing.assert_allclose(average, wanted[t - 1], rtol=1e-12, err_msg=f"step {t}")
        params = new


both_kinds = pytest.mark.parametrize("is_complex", [False, True])


@pytest.mark.usefixtures("x64")
@both_kinds
def test_ema(is_complex):
    """The running mean, with a number and with a schedule: by weights of all iterates."""
    _, points = iterates(is_complex)
    line = schedules.Linear(0.0, 0.9, steps=6)
    for decay, rates in (
        (0.7, np.full(10, 0.7)),
        (line, np.minimum(0.9 * np.arange(10) / 6, 0.9)),
    ):
        wanted = []
        for t in range(1, 11):
            # Kingma and Ba 2015, section 7.2, written out: iterate i is multiplied by 1 - b_i,
            # and by b_j for each later j.
            weights = [1.0, *(1 - rates[:t])]
            weights = [w * math.prod(rates[i:t]) for i, w in enumerate(weights)]
            wanted.append(np.tensordot(weights, np.array(points[: t + 1]), 1))
        check_averages(eqopt.EMAParams(eqopt.SGD(0.1), decay), wanted, is_complex)


@pytest.mark.usefixtures("x64")
@both_kinds
@pytest.mark.parametrize("begin", [0, 3])
def test_polyak_average(begin, is_complex):
    """The mean of the iterates after the beginning, until then the parameters."""
    _, points = iterates(is_complex)
    wanted = [np.mean(points[min(begin + 1, t) : t + 1], axis=0) for t in range(1, 11)]
    check_averages(eqopt.PolyakAverage(eqopt.SGD(0.1), begin), wanted, is_complex)


def evaluated(optim, steps=6):
    """What to evaluate with after some updates by -1 from 0: the iterates are -1, -2, ..."""
    params = jnp.zeros(())
    state = optim.init(params)
    for _ in range(steps):
        params, state = optim.step(jnp.ones(()), state, params)
    return optim.eval_params(state, params)


def test_begin_in_lanes():
    """`begin` may be traced: the mean of -1 to -6, of -5 and -6, and -6 itself."""
    optims = eqx.filter_vmap(lambda begin: eqopt.PolyakAverage(eqopt.SGD(1.0), begin))(
        jnp.array([0, 4, 9])
    )
    np.testing.assert_allclose(eqx.filter_vmap(evaluated)(optims), [-3.5, -5.5, -6], rtol=1e-6)


def test_derivative_by_the_decay():
    """After one update from 0 to -1 the mean is b * 0 - (1 - b), with slope 1."""
    optim = eqopt.dynamic(eqopt.EMAParams(eqopt.SGD(1.0), 0.25))
    slope = eqx.filter_grad(lambda optim: evaluated(optim, 1))(optim)
    np.testing.assert_allclose(slope.decay, 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    "optim", [eqopt.EMAParams(eqopt.SGD(1.0), 0.999), eqopt.PolyakAverage(eqopt.SGD(1.0))]
)
def test_averages_of_half_precision(optim):
    """The mean of bfloat16 parameters is in float32; what is evaluated with is in bfloat16. Where
    nothing moves, the mean stays exact."""
    params = {"still": jnp.asarray(0.3, jnp.bfloat16), "moves": jnp.asarray(4, jnp.bfloat16)}
    grads = {"still": jnp.zeros((), jnp.bfloat16), "moves": jnp.asarray(0.5, jnp.bfloat16)}
    state = optim.init(params)
    new = params
    for _ in range(3):
        new, state = optim.step(grads, state, new)
    average = state.inner.average
    assert average["moves"].dtype == average["still"].dtype == jnp.float32
    assert average["still"] == params["still"].astype(jnp.float32)
    # 4, then 3.5, 3, 2.5: with weights 0.001 * (1, 0.999, 0.998001), or 1 / 3.
    wanted = 4 - 0.5e-3 * (0.998001 + 2 * 0.999 + 3) if hasattr(optim, "decay") else 3.0
    np.testing.assert_allclose(average["moves"], wanted, rtol=1e-6)
    trees.assert_same_type(optim.eval_params(state, new), new)


# ---- the best so far


def best_of(values):
    """The best value, and the parameters to evaluate with, after updates with these values; the
    parameters that the updates were given are 0, -1, -2, ..."""
    optim = eqopt.BestSoFar(eqopt.SGD(1.0))

    def body(carry, value):
        state, params = carry
        params, state = optim.step(jnp.ones(()), state, params, value=value)
        best = eqopt.find(state, eqopt.BestSoFarState).best_value
        return (state, params), (best, optim.eval_params(state, params))

    params = jnp.zeros(())
    return jax.lax.scan(body, (optim.init(params), params), values)[1]


def test_best_so_far():
    """The first of the least values wins, with the parameters before its update; NaN and the
    infinities never do, not even first; each lane has its own."""
    nan, inf = jnp.nan, jnp.inf
    values = jnp.array([[nan, 3.0, 1.0, nan, 1.0, 2.0], [inf, nan, 5.0, 4.0, -inf, 6.0]])
    best, kept = jax.vmap(best_of)(values)
    np.testing.assert_array_equal(best, [[inf, 3, 1, 1, 1, 1], [inf, inf, 5, 4, 4, 4]])
    np.testing.assert_array_equal(kept, [[0, -1, -2, -2, -2, -2], [0, 0, -2, -3, -3, -3]])


def test_best_so_far_called():
    """So it does where the updates are applied later; they are those of the inner optimizer."""
    optim, params = eqopt.BestSoFar(eqopt.SGD(0.1)), trees.params()
    state, points = optim.init(params), []
    for t, value in enumerate([2.0, 0.5, 1.0]):
        points.append(params)
        grads = trees.grads(params, t)
        updates, state = optim(grads, state, params, value=value)
        trees.assert_equal(updates, eqopt.SGD(0.1)(grads, eqopt.SGD(0.1).init(params))[0])
        params = eqopt.apply_updates(params, updates)
    trees.assert_equal(optim.eval_params(state, params), points[1])
    with pytest.raises(TypeError, match="`BestSoFar` needs `value`"):
        optim(grads, state, params)


# ---- composing


def test_the_outer_average_wins():
    """Of two averages, one inside the other, the outer one is evaluated with; of two in a chain,
    or in a wrapper's chain, the last."""
    sgd = eqopt.SGD(1.0)
    ema, polyak = (lambda x: eqopt.EMAParams(x, 0.0)), eqopt.PolyakAverage  # -6, and -3.5
    assert float(evaluated(ema(polyak(sgd)))) == -6
    assert float(evaluated(polyak(ema(sgd)))) == -3.5
    assert float(evaluated(eqopt.Trace(0.0) >> polyak(sgd))) == -3.5
    assert float(evaluated(eqopt.Every(polyak(sgd), 2))) == -2  # of -1, -2, -3
    assert float(evaluated(eqopt.Lookahead(polyak(sgd), 3, 1.0))) == -6


def test_skipped_updates():
    """An average outside a wrapper that skips sees each update, one inside only those let
    through: after updates to -1, -1, -2, -2."""
    every = eqopt.Every(eqopt.SGD(1.0), 2)
    assert float(evaluated(eqopt.PolyakAverage(every), 4)) == -1.5
    ema = eqopt.EMAParams(eqopt.SGD(1.0), 0.5)
    assert float(evaluated(eqopt.EMAParams(every, 0.5), 4)) == -1.6875  # -.5, -.75, -1.375
    assert float(evaluated(eqopt.Every(ema, 2), 4)) == -1.25


WRAPPERS = {
    "EMAParams": lambda inner: eqopt.EMAParams(inner, 0.5),
    "PolyakAverage": lambda inner: eqopt.PolyakAverage(inner, 1),
    "BestSoFar": eqopt.BestSoFar,
    "Lookahead": lambda inner: eqopt.Lookahead(inner, 2, 0.5),
    "Lookahead[reset]": lambda inner: eqopt.Lookahead(inner, 2, 0.5, reset_state=True),
    "ConditionallyTransform": lambda inner: eqopt.ConditionallyTransform(inner, is_even),
    "ConditionallyMask": lambda inner: eqopt.ConditionallyMask(inner, is_even),
    "Every": lambda inner: eqopt.Every(inner, 2),
}


def is_even(count):
    """A predicate."""
    return count % 2 == 0


@pytest.mark.parametrize("outer", WRAPPERS)
def test_nested(outer):
    """Each around each, around a recipe in a chain and around one of optax's: types stay what they
    are, in half precision too, and the parts are found."""
    params = {"w": jnp.ones(2, jnp.bfloat16), "s": jnp.ones(()), "table": None}
    cores = itertools.cycle([optax.adam(0.1), eqopt.Clip(1.0) >> eqopt.Adam(0.1)])
    for inner, core in zip(WRAPPERS.values(), cores, strict=False):
        optim = WRAPPERS[outer](inner(core))

        def step(grads, state, params, optim=optim):
            updates, called = optim(grads, state, params, value=1.0)
            new, after = optim.step(grads, state, params, value=1.0)
            return updates, called, new, after, optim.eval_params(after, params)

        state = jax.eval_shape(optim.init, params)
        found = jax.eval_shape(step, params, state, params)
        for new, old in zip(found, (params, state, params, state, params), strict=True):
            trees.assert_same_type(new, jax.eval_shape(lambda x: x, old))
        kind = getattr(eqopt, f"{outer.partition('[')[0]}State")
        assert len(eqopt.find_all(state, kind)) == 1
    path = next(p for p in eqopt.hyperparameters(optim, optim.init(params)) if "learning_rate" in p)
    assert "adam" in path


def test_a_part_of_a_model():
    """With a state of a part, what is evaluated with is the average of the part and the rest of
    the model as it is."""
    model = trees.model()
    part = eqx.filter(model, eqx.tree_at(lambda m: m.layers[0].bias, no(model), True))
    for wrap in list(WRAPPERS.values())[:4]:
        optim = wrap(eqopt.SGD(1.0))
        state = optim.init(part)
        new, state = optim.step(trees.grads(part, 0), state, model, value=1.0)
        found = optim.eval_params(state, new)
        assert jax.tree.structure(found) == jax.tree.structure(model)
        trees.assert_equal(found.layers[0].bias, optim.eval_params(state, part).layers[0].bias)
        assert found.layers[1].weight is model.layers[1].weight
        assert found.layers[0].weight is model.layers[0].weight


def no(model):
    """A tree of `False`."""
    return jax.tree.map(lambda _: False, model)


def test_other_parameters_are_refused():
    """Parameters that the state does not know are named when they are to be replaced."""
    optim = eqopt.EMAParams(eqopt.SGD(1.0), 0.5)
    state = optim.init({"w": jnp.ones(2)})
    with pytest.raises(ValueError, match=r"the state has a leaf at `\['w'\]`"):
        optim.eval_params(state, {"v": jnp.ones(2)})
    with pytest.raises(ValueError, match=r"at `\['w'\]` the state is"):
        optim.eval_params(state, {"w": jnp.ones(3)})
