"""`Masked`, `Freeze` and `SelectiveTransform`: which leaves they act on, and how."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import trees

import eqopt
from eqopt import select

PARAMS = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([10.0])}
GRADS = {"a": jnp.array([3.0, 4.0]), "b": jnp.array([12.0])}


def one(optim, **extras):
    """The updates and the new parameters of one update of `PARAMS`."""
    state = optim.init(PARAMS)
    updates, _ = optim(GRADS, state, PARAMS, **extras)
    return updates, optim.step(GRADS, state, PARAMS, **extras)[0]


def test_a_norm_inside_is_of_the_selected_leaves():
    """The norm of `a` alone is 5; `b` passes, or stays."""
    clip = eqopt.ClipByGlobalNorm(1.0)
    updates, new = one(eqopt.Masked(clip, select.Path("a")))
    np.testing.assert_allclose(updates["a"], [0.6, 0.8], rtol=1e-6)
    np.testing.assert_allclose(updates["b"], [12.0])
    np.testing.assert_allclose(new["b"], [22.0])
    updates, new = one(eqopt.Freeze(clip, select.Path("b")))
    np.testing.assert_allclose(updates["a"], [0.6, 0.8], rtol=1e-6)
    assert float(updates["b"][0]) == 0.0 and new["b"] is PARAMS["b"]


@pytest.mark.parametrize(
    "inner", [eqopt.ClipByGlobalNorm(1.0) >> eqopt.Trace(0.9), optax.adam(0.1), eqopt.Adam(0.1)]
)
def test_selective_transform_is_freeze(inner):
    """The same updates and the same inner state, around a chain, a recipe and optax's."""
    freeze = eqopt.Freeze(inner, select.Path("b"))
    selective = eqopt.SelectiveTransform(inner, select.Path("b"))
    trees.assert_equal(one(freeze), one(selective))
    trees.assert_equal(freeze.init(PARAMS), selective.init(PARAMS))


def test_everything_frozen():
    """Nothing is left to train, and nothing moves."""
    _, new = one(eqopt.Freeze(eqopt.AdamW(0.1), select.Everything()))
    assert all(new[name] is PARAMS[name] for name in PARAMS)


def test_hyperparameters_and_find_inside():
    """Numbers and states inside are found."""
    optim = eqopt.Chain(
        eqopt.Clip(1.0), eqopt.SelectiveTransform(eqopt.Adam(0.1), {"a": False, "b": True})
    )
    state = optim.init(PARAMS)
    found = eqopt.hyperparameters(optim, state)
    assert found["selective_transform.adam.learning_rate"] == 0.1
    assert eqopt.find(state, eqopt.ScaleByAdamState).mu["b"] is None


def test_extras_go_through_the_view():
    """`grad` and `value_fn` are of the selected leaves; the function is of the whole tree."""
    seen = {}

    class Looks(eqopt.AbstractTransform):
        _needs = frozenset({"value_fn", "grad"})

        def _init(self, params):
            return None

        def _update(self, updates, state, params, count, **extras):
            seen.update(extras)
            halved = jax.tree.map(lambda x: x / 2, params)
            seen["there"] = extras["value_fn"](halved)
            return updates, None

    model = {**PARAMS, "n": 3}

    def loss(model):
        assert model["n"] == 3
        return jnp.sum(model["a"]) + 100 * jnp.sum(model["b"])

    optim = eqopt.Masked(Looks(), select.Path("a"))
    optim(GRADS, optim.init(model), model, value_fn=loss, grad={**GRADS, "n": None})
    assert float(seen["there"]) == 1.5 + 1000.0
    assert seen["grad"]["b"] is None and seen["grad"]["a"] is GRADS["a"]


def test_selectors_that_match_nothing():
    """They raise at `init`, also those of what is inside; a selector inside may name what the
    wrapper leaves out."""
    with pytest.raises(ValueError, match=r"`Freeze\(where=...\)` must match a leaf"):
        eqopt.Freeze(eqopt.Adam(0.1), select.Path("z")).init(PARAMS)
    with pytest.raises(ValueError, match=r"must match a leaf"):
        inner = eqopt.AdamW(0.1, decay_where=select.Path("z"))
        eqopt.Freeze(inner, select.Path("a")).init(PARAMS)
    inner = eqopt.AdamW(0.1, decay_where=select.Path("a"))
    eqopt.Freeze(inner, select.Path("a")).init(PARAMS)


def test_places_that_no_model_has():
    """A path in a tree of bools that exists nowhere is named; what is not trained exists."""
    model = {**PARAMS, "n": 3, "bias": None}
    for optim in (
        eqopt.Freeze(eqopt.Adam(0.1), {"a": True, "b": False, "typo": True}),
        eqopt.Masked(eqopt.Adam(0.1), select.Path("a") & {"a": True, "b": {"typo": False}}),
    ):
        with pytest.raises(ValueError, match=r"`\w+\(where=...\)` must be like the .*typo'\]`"):
            optim.init(model)
    for where in (
        True,
        {"a": True, "b": False, "n": False},
        {"a": True, "b": False, "bias": {"w": True}},
    ):
        eqopt.Freeze(eqopt.Adam(0.1), where).init(model)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: eqopt.Masked(inner, select.Path("a")),
        lambda inner: eqopt.Freeze(inner, {"a": False, "b": True}),
        lambda inner: eqopt.Partition({"x": (select.Path("a"), inner)}, default=eqopt.SGD(0.1)),
        lambda inner: eqopt.Freeze(eqopt.Masked(inner, {"a": True}), select.Path("b")),
    ],
    ids=["Masked", "Freeze", "Partition", "both"],
)
def test_a_tree_of_bools_of_what_is_left(wrap):
    """Inside a wrapper that leaves leaves out a tree of bools is of the whole model or of what is
    left; each leaf that is left has a bool."""
    updates = []
    for where in (
        {"a": True, "b": False},
        {"a": True},
        {"a": True, "b": None},
        ~select.Nothing() & {"a": True},
    ):
        optim = wrap(eqopt.AddDecayedWeights(0.5, where))
        state = optim.init(PARAMS)
        updates.append(optim(GRADS, state, PARAMS)[0])
        trees.assert_equal(optim.step(GRADS, state, PARAMS)[0]["a"], PARAMS["a"] + updates[0]["a"])
    np.testing.assert_array_equal(updates[0]["a"], [4.5, 4.0])
    for found in updates[1:]:
        trees.assert_equal(found, updates[0])
    for where in ({"b": True}, ~select.Nothing() & {"b": True}):
        with pytest.raises(ValueError, match=r"where=...\)` must cover every leaf.*`\['a'\]`"):
            wrap(eqopt.AddDecayedWeights(0.5, where)).init(PARAMS)


def test_places_without_leaves():
    """A layer without parameters is a place of the model: it may have its bool or label."""
    model = [jnp.ones(2), eqx.nn.Identity(), [], jnp.ones(2)]
    optims = [
        eqopt.Freeze(eqopt.SGD(0.5), [True, True, True, False]),
        eqopt.Partition(
            {"a": eqopt.SetToZero(), "b": eqopt.SGD(0.5)}, ["a", {"any": "a"}, "b", "b"]
        ),
    ]
    for optim in optims:
        new, _ = optim.step(model, optim.init(model), model)
        assert new[0][0] == 1.0 and new[3][0] == 0.5


@pytest.mark.parametrize("wrap", [lambda x: x, eqopt.SkipNotFinite, lambda x: eqopt.Every(x, 2)])
def test_gradients_of_frozen_leaves_may_be_none(wrap):
    """Also inside a wrapper that remembers nothing of each leaf."""
    optim = wrap(eqopt.Freeze(eqopt.Adam(0.1), select.Path("b")))
    grads, state = {**GRADS, "b": None}, optim.init(PARAMS)
    new, after = optim.step(grads, state, PARAMS)
    trees.assert_same_type(after, state)
    trees.assert_equal(new, optim.step(GRADS, state, PARAMS)[0])


@pytest.mark.parametrize(
    "wrap", [lambda x: eqopt.MultiSteps(x, 2), lambda x: eqopt.EMAParams(x, 0.9)]
)
def test_what_remembers_each_leaf_says_where_freeze_belongs(wrap):
    """A gradient of None is refused, with the way out."""
    optim = wrap(eqopt.Freeze(eqopt.Adam(0.1), select.Path("b")))
    with pytest.raises(ValueError, match=r"None at `\['b'\]`.*`Freeze.* stands outermost"):
        optim.step({**GRADS, "b": None}, optim.init(PARAMS), PARAMS)


def test_frozen_leaves_that_are_no_plain_arrays():
    """They become plain arrays of JAX with the same values, as trained ones do."""
    params = {"a": PARAMS["a"], "b": np.asarray([1.5], np.float32), "c": jnp.asarray(0.5)}
    assert params["c"].weak_type
    optim = eqopt.Freeze(eqopt.SGD(0.1), select.Path("b|c"))
    new, _ = optim.step(jax.tree.map(jnp.ones_like, params), optim.init(params), params)
    for name in "bc":
        assert isinstance(new[name], jax.Array) and not new[name].weak_type
        assert new[name] == params[name] and new[name].dtype == jnp.float32


def test_what_is_real_only_sees_real_leaves():
    """An algorithm without a complex form may stand beside complex leaves, not among them."""
    params = {"c": jnp.ones(2, complex), "r": jnp.ones(2)}
    optim = eqopt.Masked(eqopt.ScaleByRProp(0.1), select.Path("r"))
    updates, _ = optim(params, optim.init(params), params)
    assert updates["c"] is params["c"]
    with pytest.raises(TypeError, match=r"`ScaleByRProp` must be given real .*\['c'\]"):
        eqopt.Masked(eqopt.ScaleByRProp(0.1), select.Path("c")).init(params)


def test_models_with_keys_and_integers():
    """A model goes in whole, and a key inside the state survives."""
    model = eqx.nn.MLP(2, 2, 2, 1, key=jax.random.key(0))
    where = select.At(lambda m: m.layers[0])
    optim = eqopt.Freeze(eqopt.AddNoise(0.1, 0.5, 0) >> eqopt.Adam(0.1), where)
    grads = trees.grads(model, 0)
    state = optim.init(model)
    new, after = eqx.filter_jit(optim.step)(grads, state, model)
    trees.assert_same_type(after, state)
    trees.assert_equal(new.layers[0], model.layers[0])
    assert np.all(new.layers[1].weight != model.layers[1].weight)
