"""Contract abstract init: `init` on shapes gives the shapes of the state."""

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
import trees

import eqopt


def _structs(tree):
    """Shapes and dtypes in place of the arrays."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def _assert_like(structs, state):
    """Nothing but shapes and dtypes, and those of a real state."""
    assert all(isinstance(x, jax.ShapeDtypeStruct) for x in jax.tree.leaves(structs))
    trees.assert_same_type(structs, state)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_init_on_shapes(name):
    """`jax.eval_shape(optim.init, params)`, `init` on `ShapeDtypeStruct`s and both together give
    the structure, shapes and dtypes of a real state."""
    optim = cases.TRANSFORMS[name].optim
    for params in (trees.params(), trees.params("bfloat16")):
        state = optim.init(params)
        _assert_like(jax.eval_shape(optim.init, params), state)
        _assert_like(jax.eval_shape(optim.init, _structs(params)), state)
        _assert_like(optim.init(_structs(params)), state)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_init_with_dynamic_numbers(name):
    """The same where the hyperparameters are arrays."""
    optim = eqopt.dynamic(cases.TRANSFORMS[name].optim)
    params = trees.params()
    state = optim.init(params)
    _assert_like(jax.eval_shape(lambda optim, params: optim.init(params), optim, params), state)
    _assert_like(optim.init(_structs(params)), state)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_init_on_an_abstract_model(name):
    """A model of shapes, made by `eqx.filter_eval_shape`, with what else is among its leaves."""
    optim = cases.TRANSFORMS[name].optim
    state = optim.init(trees.model())
    model = eqx.filter_eval_shape(trees.model)
    _assert_like(optim.init(model), state)
    _assert_like(eqx.filter_eval_shape(optim.init, model), state)
    integers = {"model": model, "ids": jax.ShapeDtypeStruct((3,), jnp.int32), "rate": 0.1}
    alone = optim.init({"model": trees.model()})
    assert jax.tree.leaves(optim.init(integers)) == jax.tree.leaves(_structs(alone))


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_updates_on_shapes(name):
    """With a state of shapes an update can be traced; what comes out is like what went in."""
    case = cases.TRANSFORMS[name]
    params = _structs(trees.params())
    state = case.optim.init(params)

    def update(grads, state, params):
        return case.optim(grads, state, params, **case.extras(params, grads))

    updates, after = jax.eval_shape(update, params, state, params)
    _assert_like(updates, params)
    _assert_like(after, state)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_nothing_abstract_to_train(name):
    """Shapes of integers alone are refused as integers are."""
    with pytest.raises(ValueError, match=r"params"):
        cases.TRANSFORMS[name].optim.init({"n": jax.ShapeDtypeStruct((3,), jnp.int32)})
