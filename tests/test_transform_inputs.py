"""What updates are given: trees and keywords, and the errors where they don't fit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt

# ---- trees


def test_no_array_to_train():
    """A tree with leaves but no float array is a mistake; an empty one is not."""
    optim = eqopt.Adam(0.1)
    for params in ({"w": 1.0}, {"w": jnp.asarray(1)}, (1.0, "x")):
        with pytest.raises(ValueError, match=r"`Adam.init\(params=...\)` must hold at least one"):
            optim.init(params)
    for params in ({}, (), None, {"w": None}):
        state = optim.init(params)
        updates, state = optim(params, state, params)
        assert updates == params
        assert int(state.count) == 1


LEAVES = {
    "NumPy": np.full(2, 0.5, np.float32),
    "weakly typed": jnp.asarray(0.5),
    "plain": jnp.full(2, 0.5, jnp.float32),
}


@pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES.keys())
@pytest.mark.parametrize("optim", [eqopt.Adam(0.1), eqopt.Identity(), eqopt.Clip(9.0)])
def test_leaves_become_plain_arrays(optim, leaf):
    """NumPy's and weakly typed leaves give the types that JAX's own give."""
    tree = {"w": leaf}
    state = optim.init(tree)
    types = [(x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(state)]
    updates, state = optim(tree, state, tree)
    new, state = optim.step(tree, state, tree)
    assert [(x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(state)] == types
    for x in (updates["w"], new["w"]):
        assert isinstance(x, jax.Array)
        assert (x.shape, x.dtype, x.weak_type) == (leaf.shape, jnp.float32, False)


def linear():
    """A layer with a weight and a bias."""
    return eqx.nn.Linear(2, 3, key=jax.random.key(0))


def test_part_of_a_model():
    """Gradients of a part work with a state of that part and the whole model as parameters."""
    model = linear()
    part = eqx.tree_at(lambda m: m.bias, model, None)
    grads = jax.tree.map(jnp.ones_like, eqx.filter(part, eqx.is_array))
    optim = eqopt.AdamW(0.1, weight_decay=0.1)
    state = optim.init(part)
    new, state = optim.step(grads, state, model)
    assert new.bias is model.bias
    alone, _ = optim.step(grads, optim.init(part), part)
    np.testing.assert_array_equal(new.weight, alone.weight)
    updates, _ = optim(grads, state, model)
    assert updates.bias is None


def test_none_where_the_state_has_an_array():
    """The error names the path and says how a part is trained."""
    model, optim = linear(), eqopt.Adam(0.1)
    grads = eqx.tree_at(lambda m: m.bias, model, None)
    for call in (optim, optim.step):
        with pytest.raises(ValueError, match=r"`Adam`: .*`updates` is None at `\.bias`"):
            call(grads, optim.init(model), model)


def test_updates_of_another_structure():
    """The first path that differs is named."""
    optim, x = eqopt.Adam(0.1), jnp.ones(2)
    state = optim.init({"a": x, "b": x})
    with pytest.raises(ValueError, match=r"`updates` has a leaf at `\['c'\]`"):
        optim({"a": x, "c": x}, state, {"a": x, "b": x})
    with pytest.raises(ValueError, match=r"\['c'\]"):
        optim({"a": x, "b": x, "c": x}, state)


def test_updates_of_another_shape():
    """The path and both types are named."""
    optim, x = eqopt.Adam(0.1), jnp.ones(2)
    with pytest.raises(ValueError, match=r"at `\['a'\]`.*\[3\].*\[2\]"):
        optim({"a": jnp.ones(3)}, optim.init({"a": x}), {"a": x})
    with pytest.raises(ValueError, match=r"shape \(2,\).*need \(3,\)"):
        optim({"a": jnp.ones(3)}, optim.init({"a": x}))


@pytest.mark.parametrize("wrong", [None, (), jnp.ones(2)], ids=["None", "tuple", "params"])
def test_what_is_no_state(wrong):
    """What `init` did not return is refused, with the class that was called."""
    x = jnp.ones(2)
    for call in (eqopt.Adam(0.1), eqopt.Adam(0.1).step):
        with pytest.raises(TypeError, match="`Adam`: `state` must be what its `init` returned"):
            call(x, wrong, x)


def test_state_of_another_transform():
    """Its structure does not fit."""
    x = jnp.ones(2)
    with pytest.raises(ValueError, match="`Adam`: "):
        eqopt.Adam(0.1)(x, eqopt.SGD(0.1).init(x), x)


# ---- keywords


def test_params_are_needed():
    """The error names the class that needs them, inside a recipe and a chain too."""
    x = jnp.ones(2)
    for optim, owner in (
        (eqopt.AddDecayedWeights(0.1), "AddDecayedWeights"),
        (eqopt.Clip(1.0) >> eqopt.AddDecayedWeights(0.1), "AddDecayedWeights"),
        (eqopt.AdamW(0.1), "AddDecayedWeights"),
    ):
        with pytest.raises(TypeError, match=f"`{owner}` needs `params`"):
            optim(x, optim.init(x))


def test_unknown_keyword():
    """The error names the keyword, and those that are taken."""
    optim, x = eqopt.Adam(0.1), jnp.ones(2)
    for call in (optim, optim.step):
        with pytest.raises(TypeError, match=r"`Adam` got an unexpected keyword `loss`.*`value_fn`"):
            call(x, optim.init(x), x, loss=1.0)


def test_keywords_that_nobody_uses():
    """`value`, `grad` and `value_fn` are always accepted, and change nothing."""
    optim, x = eqopt.Clip(0.5) >> eqopt.Adam(0.1), jnp.ones(2)
    state = optim.init(x)
    wanted = optim.step(x, state, x)
    found = optim.step(x, state, x, value=1.0, grad=x, value_fn=jnp.sum)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_errors_under_jit():
    """Mistakes are found while tracing, and named alike."""
    x = jnp.ones(2)
    optim = eqopt.AdamW(0.1)
    with pytest.raises(TypeError, match="needs `params`"):
        jax.jit(optim.update)(x, optim.init(x))


def test_update_is_call():
    """optax's name for the same method."""
    optim, x = eqopt.Adam(0.1), jnp.ones(2)
    state = optim.init(x)
    jax.tree.map(np.testing.assert_array_equal, optim.update(x, state, x), optim(x, state, x))
