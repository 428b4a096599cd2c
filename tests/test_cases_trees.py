"""Reported cases about trees: whole models, scalars, integers, donation, abstract init."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FREE_PROJECTIONS, REPORTED

import eqopt

each_transform = pytest.mark.parametrize("case", REPORTED.values(), ids=REPORTED.keys())


def mlp():
    """A small network; its activation and sizes are no arrays."""
    return eqx.nn.MLP(2, 2, 2, 1, activation=jax.nn.relu, key=jax.random.key(0))


def loss(model, x):
    """Something to differentiate."""
    return jnp.sum(jax.vmap(model)(x) ** 2)


def not_arrays(tree):
    """The leaves that are no arrays."""
    return [x for x in jax.tree.leaves(tree) if not eqx.is_array(x)]


@each_transform
def test_case_I1_whole_module(case):
    """A model goes in as a whole and comes out as a whole."""
    model, optim = mlp(), case.optim
    grads = eqx.filter_grad(loss)(model, jnp.asarray([[1.0, -2.0], [0.5, 1.0]]))
    extras = case.extras(model, grads)
    state = optim.init(model)
    updates, new_state = optim(grads, state, model, **extras)
    new_model, _ = optim.step(grads, state, model, **extras)

    assert not not_arrays((state, new_state))
    assert jax.tree.structure(updates) == jax.tree.structure(grads)
    assert jax.tree.structure(new_model) == jax.tree.structure(model)
    assert not_arrays(new_model) == not_arrays(model)
    old, new = (jax.tree.map(jnp.shape, eqx.filter(m, eqx.is_array)) for m in (model, new_model))
    assert old == new
    assert jax.tree.structure(optim.eval_params(new_state, model)) == jax.tree.structure(model)


@pytest.mark.parametrize("case", FREE_PROJECTIONS.values(), ids=FREE_PROJECTIONS.keys())
def test_case_I1_whole_module_projected(case):
    """So it does through a projection."""
    model = mlp()
    projected = case.projection(model)
    assert jax.tree.structure(projected) == jax.tree.structure(model)
    assert not_arrays(projected) == not_arrays(model)


@each_transform
def test_case_I6_scalars_stay_scalars(case):
    """A 0-d parameter, alone and in a tree."""
    for params in (jnp.asarray(0.5), {"s": jnp.asarray(0.5)}):
        grads = jax.tree.map(jnp.ones_like, params)
        extras = case.extras(params, grads)
        state = case.optim.init(params)
        updates, state = case.optim(grads, state, params, **extras)
        stepped, _ = case.optim.step(grads, state, params, **extras)
        averaged = case.optim.eval_params(state, params)
        states = () if isinstance(case.optim, eqopt.Flatten) else (state,)  # vectors by design
        for tree in (updates, stepped, averaged, *states):
            kept = [x for x in jax.tree.leaves(tree) if x.dtype != jnp.uint32]  # no key
            assert kept and all(x.shape == () for x in kept)
        for tree in (updates, stepped, averaged):
            assert jax.tree.structure(tree) == jax.tree.structure(params)


class Mixed(eqx.Module):
    """Floats to train beside integers to keep."""

    weight: jax.Array | None
    table: jax.Array | None
    size: int = 3


@each_transform
def test_case_I7_integers_are_left_alone(case):
    """Integer leaves come back as they are, and have no state."""
    model = Mixed(jnp.asarray([1.0, -2.0]), jnp.arange(3))
    grads = Mixed(jnp.asarray([0.1, 0.2]), None, None)
    extras = case.extras(model, grads)
    state = case.optim.init(model)
    alone = case.optim.init(Mixed(model.weight, None))
    assert len(jax.tree.leaves(state)) == len(jax.tree.leaves(alone))
    new, state = case.optim.step(grads, state, model, **extras)
    assert new.table is model.table
    assert new.size == 3
    assert new.weight.dtype == jnp.float32
    averaged = case.optim.eval_params(state, new)
    assert averaged.table is model.table


def buffers(tree):
    """Where the arrays of a tree are stored."""
    return [x.unsafe_buffer_pointer() for x in jax.tree.leaves(tree) if eqx.is_array(x)]


@each_transform
def test_case_I8_donation(case):
    """Parameters and state are donated, and share no buffer to begin with."""
    params = {"w": jnp.asarray([[1.0, -2.0]]), "b": jnp.asarray([0.5])}
    grads = jax.tree.map(lambda x: 0.1 * x, params)

    def step(params, state):
        return case.optim.step(grads, state, params, **case.extras(params, grads))

    donating = jax.jit(step, donate_argnums=(0, 1))
    state = case.optim.init(params)
    found = buffers((params, state, case.optim))
    assert len(set(found)) == len(found)
    wanted, wanted_state = jax.tree.map(jnp.array, (params, state))  # copies
    for _ in range(2):
        wanted, wanted_state = step(wanted, wanted_state)
    for _ in range(2):
        old, (params, state) = params, donating(params, state)
        assert all(x.is_deleted() for x in jax.tree.leaves(old))
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6),
        (params, state),
        (wanted, wanted_state),
    )


def described(tree):
    """Structure, shapes and dtypes."""
    return jax.tree.structure(tree), [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]


@each_transform
def test_case_I9_abstract_init(case):
    """`eval_shape`, and init on structs, give what a concrete init gives."""
    params = {
        "w": jnp.ones((2, 3)),
        "b": jnp.ones(3, jnp.bfloat16),
        "table": jnp.arange(2),
        "none": None,
    }
    wanted = described(case.optim.init(params))
    structs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params)
    for abstract in (jax.eval_shape(case.optim.init, params), case.optim.init(structs)):
        assert described(abstract) == wanted
        assert all(isinstance(x, jax.ShapeDtypeStruct) for x in jax.tree.leaves(abstract))


@each_transform
def test_case_I9_abstract_init_of_a_module(case):
    """The same for a model made with `filter_eval_shape`."""
    wanted = described(case.optim.init(mlp()))
    assert described(case.optim.init(eqx.filter_eval_shape(mlp))) == wanted
