"""Each ordered pair of two wrappers around AdamW works: under compilation, over several steps,
with bad gradients among them."""

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from test_contract_jit import compilations

import eqopt
from eqopt import select

VALUE, TEMPERATURE = 1.5, 0.25
GOOD = np.array([True, False, True, True, False, True, True, True, True])


class SeenState(eqx.Module):
    """What the last update was given."""

    value: jax.Array
    temperature: jax.Array


class Seen(eqopt.AbstractTransform):
    """Remembers keywords, of which one is its own."""

    _needs = frozenset({"value", "temperature"})
    _takes = frozenset({"temperature"})

    def _init(self, params):
        return SeenState(jnp.zeros(()), jnp.zeros(()))

    def _update(self, updates, state, params, count, **extras):
        given = (jnp.asarray(extras[name], jnp.float32) for name in ("value", "temperature"))
        return updates, SeenState(*given)


def but_every_second_of_three(count):
    return count % 3 != 1


def is_bad(updates, params, **extras):
    return ~jnp.isfinite(eqopt.global_norm(updates))


class Wrapper(NamedTuple):
    """A wrapper around a given transformation.

    - `wrap`: puts it around.
    - `guards`: whether it lets no update pass that is not finite.
    - `averages`: whether `eval_params` is something else than the parameters.
    - `forgets`: whether the state inside may begin anew.
    - `alternates`: whether not every step does the same.
    """

    wrap: Callable[[Any], Any]
    guards: bool = False
    averages: bool = False
    forgets: bool = False
    alternates: bool = False


NOT_SCALARS = ~select.Ndim(0)

WRAPPERS = {
    "ApplyIfFinite": Wrapper(lambda inner: eqopt.ApplyIfFinite(inner, 2), guards=True),
    "SkipIf": Wrapper(lambda inner: eqopt.SkipIf(inner, is_bad), guards=True),
    "SkipNotFinite": Wrapper(eqopt.SkipNotFinite, guards=True),
    "SkipLargeUpdates": Wrapper(lambda inner: eqopt.SkipLargeUpdates(inner, 1e3), guards=True),
    "SkipLossSpikes": Wrapper(eqopt.SkipLossSpikes),
    "MultiSteps": Wrapper(lambda inner: eqopt.MultiSteps(inner, 2), alternates=True),
    "Lookahead": Wrapper(lambda inner: eqopt.Lookahead(inner, 3, 0.5), averages=True),
    "Lookahead[reset]": Wrapper(
        lambda inner: eqopt.Lookahead(inner, 3, 0.5, reset_state=True), averages=True, forgets=True
    ),
    "EMAParams": Wrapper(lambda inner: eqopt.EMAParams(inner, 0.9), averages=True),
    "PolyakAverage": Wrapper(eqopt.PolyakAverage, averages=True),
    "BestSoFar": Wrapper(eqopt.BestSoFar, averages=True),
    "ConditionallyTransform": Wrapper(
        lambda inner: eqopt.ConditionallyTransform(inner, but_every_second_of_three),
        alternates=True,
    ),
    "ConditionallyMask": Wrapper(
        lambda inner: eqopt.ConditionallyMask(inner, but_every_second_of_three),
        alternates=True,
    ),
    "Every": Wrapper(lambda inner: eqopt.Every(inner, 2), alternates=True),
    "Masked": Wrapper(lambda inner: eqopt.Masked(inner, NOT_SCALARS)),
    "Freeze": Wrapper(lambda inner: eqopt.Freeze(inner, select.Ndim(0))),
    "SelectiveTransform": Wrapper(lambda inner: eqopt.SelectiveTransform(inner, select.Ndim(0))),
    "Partition": Wrapper(
        lambda inner: eqopt.Partition({"arrays": (NOT_SCALARS, inner)}, default=eqopt.SGD(0.1))
    ),
    "Flatten": Wrapper(eqopt.Flatten),
    "SplitRealAndImaginary": Wrapper(eqopt.SplitRealAndImaginary),
}

PARAMS = {"s": jnp.asarray(0.5, jnp.float32), "w": jnp.asarray([1.0, -2.0])}
EXTRAS = {"value": VALUE, "temperature": TEMPERATURE}


def gradients():
    """Gradients, some of them with a NaN in a scalar or an infinity in a vector."""
    grads = trees.stack([trees.grads(PARAMS, t) for t in range(len(GOOD))])
    first, second = np.flatnonzero(~GOOD)
    return {"s": grads["s"].at[first].set(jnp.nan), "w": grads["w"].at[second, 0].set(jnp.inf)}


def run(optim, grads):
    """The parameters and the state after all gradients, those after each, what to evaluate with at
    the end, and the numbers in force then."""

    def body(carry, g):
        params, state = carry
        carry = optim.step(g, state, params, **EXTRAS)
        return carry, carry

    last, each = jax.lax.scan(body, (PARAMS, optim.init(PARAMS)), grads)
    return last, each, optim.eval_params(last[1], last[0]), eqopt.hyperparameters(optim, last[1])


@pytest.mark.parametrize("outer", WRAPPERS)
def test_pairs(outer):
    """Each wrapper around each other one around AdamW: nothing raises, the types of the state stay
    fixed (a `scan` demands it), what is inside gets the keywords that it needs, `find`,
    `hyperparameters` and `eval_params` reach it, and a guard outside lets nothing bad through."""
    for inner in WRAPPERS:
        try:
            check(WRAPPERS[outer], WRAPPERS[inner])
        except Exception as error:
            error.add_note(f"{outer} around {inner}")
            raise


def check(outer, inner):
    optim = outer.wrap(inner.wrap(Seen() >> eqopt.AdamW(0.1)))
    fn, grads = partial(run, optim), gradients()
    # Types need no compiled program.
    out = trees.quick_jit(fn)(grads) if outer.guards else jax.eval_shape(fn, grads)
    (params, state), each, evaluated, numbers = out
    trees.assert_same_type((params, state), (PARAMS, optim.init(PARAMS)))
    trees.assert_same_type(evaluated, PARAMS)
    assert eqopt.find(state, eqopt.ScaleByAdamState) and eqopt.find(state, SeenState)
    (rate,) = [value for path, value in numbers.items() if path.endswith("adamw.learning_rate")]
    if outer.guards:
        np.testing.assert_allclose(rate, 0.1, rtol=1e-6)
        check_values(inner, params, state, evaluated)
        check_guard(*each)


def check_values(inner, params, state, evaluated):
    assert state.count == len(GOOD)
    if not inner.forgets:
        seen = eqopt.find(state, SeenState)
        assert (seen.value, seen.temperature) == (VALUE, TEMPERATURE)
    if not inner.averages:
        trees.assert_equal(evaluated, params)


def check_guard(params, states):
    moved = [np.diff(x, axis=0, prepend=PARAMS[name][None]) for name, x in params.items()]
    for x in moved:
        assert np.all(np.isfinite(x)) and np.all(x[~GOOD] == 0)
    assert any(np.any(x[GOOD] != 0) for x in moved)
    for x in jax.tree.leaves(states.inner.inner_state):
        assert not np.any(np.isnan(x))
        np.testing.assert_array_equal(x[~GOOD], x[np.flatnonzero(~GOOD) - 1])


def test_guards_are_tested():
    """Without a guard the bad gradients do reach the parameters, so the check above can fail."""
    _, (params, _), *_ = trees.quick_jit(partial(run, Seen() >> eqopt.AdamW(0.1)))(gradients())
    assert np.isnan(params["s"][-1]) and np.isnan(params["w"][-1, 0])


NAMES = list(WRAPPERS)
PAIRS = list(zip(NAMES, NAMES[7:] + NAMES[:7], strict=True))


def _adamw(optim):
    (found,) = [x for x in jax.tree.leaves(optim, is_leaf=_is_adamw) if _is_adamw(x)]
    return found


def _is_adamw(x):
    return isinstance(x, eqopt.AdamW)


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_edits_and_pickles(outer, inner):
    """A number deep inside is set by `eqx.tree_at`, as if it had been given at once; optimizer and
    state come back equal from a pickle."""

    def build(rate):
        return WRAPPERS[outer].wrap(WRAPPERS[inner].wrap(eqopt.AdamW(rate)))

    optim = eqx.tree_at(lambda o: _adamw(o).learning_rate, build(0.1), 0.2)
    assert optim == build(0.2) != build(0.1)
    again = pickle.loads(pickle.dumps(optim))
    assert again == optim and hash(again) == hash(optim) and repr(again) == repr(optim)
    state = optim.init(PARAMS)
    assert eqx.tree_equal(pickle.loads(pickle.dumps(state)), state, typematch=True)
    scale = eqx.tree_at(lambda o: _adamw(o), build(0.1), eqopt.Scale(2.0))
    assert scale == WRAPPERS[outer].wrap(WRAPPERS[inner].wrap(eqopt.Scale(2.0)))


@pytest.mark.parametrize(
    ("outer", "inner"),
    [(name, None) for name in NAMES] + PAIRS,
)
def test_eager_steps_compile_nothing_anew(outer, inner):
    """A second eager step compiles nothing, around AdamW and around another wrapper; nor, where
    steps alternate, does a second round of all kinds."""
    wrappers = [WRAPPERS[name] for name in (inner, outer) if name]
    optim = eqopt.AdamW(0.1)
    for wrapper in wrappers:
        optim = wrapper.wrap(optim)
    params = {"s": jnp.ones(()), "w": jnp.ones(5)}
    grads = [trees.grads(params, t) for t in range(12)]
    state = optim.init(params)
    kinds = 6 if any(wrapper.alternates for wrapper in wrappers) else 1
    for t in range(2 * kinds):
        if t == kinds:
            before = len(compilations)
        params, state = optim.step(grads[t], state, params, value=1.0)
    assert len(compilations) == before
