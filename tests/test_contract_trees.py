"""Contract trees: whole Equinox models and every other kind of tree of parameters."""

from collections import namedtuple
from collections.abc import Callable
from functools import cache

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import eqopt

Pair = namedtuple("Pair", ["first", "second"])


def _call(method, case, grads, state, params):
    return method(grads, state, params, **case.extras(params, grads))


def _update(case, grads, state, params):
    return _call(case.optim, case, grads, state, params)


def _step(case, grads, state, params):
    return _call(case.optim.step, case, grads, state, params)


def _two_updates(case, params, grads):
    """The updates of two steps at fixed parameters, and the state after them."""
    first, state = _update(case, grads, case.optim.init(params), params)
    second, state = _update(case, grads, state, params)
    return (first, second), state


# ---- models


class Everything(eqx.Module):
    """A model with every kind of leaf."""

    linear: eqx.nn.Linear
    counts: jax.Array
    mask: np.ndarray
    key: jax.Array
    scale: jax.Array
    offset: None
    rate: float
    size: int
    training: bool
    activation: Callable
    name: str = eqx.field(static=True)


def _everything():
    return Everything(
        linear=eqx.nn.Linear(2, 4, key=jax.random.key(1)),
        counts=jnp.arange(3),
        mask=np.array([True, False]),
        key=jax.random.key(2),
        scale=jnp.asarray(0.5, float),
        offset=None,
        rate=0.1,
        size=3,
        training=True,
        activation=jax.nn.relu,
        name="everything",
    )


def _is_trained(x):
    return eqx.is_inexact_array(x)


def _check_left_alone(new, old):
    """What is no float array is the very same object; what is one has changed its value alone."""
    assert jax.tree.structure(new) == jax.tree.structure(old)
    for x, y in zip(jax.tree.leaves(new), jax.tree.leaves(old), strict=True):
        assert x is y or _is_trained(y)
    trees.assert_same_type(eqx.filter(new, _is_trained), eqx.filter(old, _is_trained))


@pytest.mark.parametrize("model", [trees.model, _everything], ids=["mlp", "everything"])
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_whole_models(name, model):
    """A model goes in whole: the state knows its float arrays alone, the updates have the
    structure of its gradients, and a step changes nothing else of it."""
    case, model = cases.TRANSFORMS[name], model()
    grads, arrays = trees.grads(model, 0), eqx.filter(model, _is_trained)
    state = case.optim.init(model)
    trees.assert_same_type(state, case.optim.init(arrays))
    updates, _ = _update(case, grads, state, model)
    trees.assert_same_type(updates, grads)
    new, after = _step(case, grads, state, model)
    _check_left_alone(new, model)
    trees.assert_same_type(after, state)
    # As with the arrays alone.
    trees.assert_equal(updates, _update(case, grads, state, arrays)[0])
    trees.assert_equal(
        eqx.filter(case.optim.eval_params(state, model), _is_trained),
        case.optim.eval_params(state, arrays),
    )


@cache
def _real_gradients():
    """What `eqx.filter_grad` gives for a model."""
    return eqx.filter_grad(lambda m: jnp.sum(m(jnp.ones(2)) ** 2))(trees.model())


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_gradients_of_a_loss(name):
    """The gradients that `eqx.filter_grad` gives of a model are taken, and so are the model and
    the state that come out."""
    case, model, grads = cases.TRANSFORMS[name], trees.model(), _real_gradients()
    state = case.optim.init(model)
    new, after = _step(case, grads, *_step(case, grads, state, model)[::-1])
    trees.assert_same_type(after, state)
    trees.assert_same_type(new, model)


# ---- a part of a model


def _front(model):
    """The first layer of the MLP, with `None` for the rest."""
    where = jax.tree.map(lambda _: False, model)
    where = eqx.tree_at(lambda m: m.layers[0].weight, where, True)
    return eqx.filter(model, where)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_a_part_with_a_state_of_that_part(name):
    """With gradients for a part and a state of that part, parameters elsewhere stay the very
    same arrays, and the part is trained as if there were nothing else."""
    case, model = cases.TRANSFORMS[name], trees.model()
    part = _front(model)
    grads = trees.grads(part, 0)
    state = case.optim.init(part)
    updates, _ = _update(case, grads, state, model)
    trees.assert_equal(updates, _update(case, grads, state, part)[0])
    new, after = _step(case, grads, state, model)
    trees.assert_same_type(after, state)
    trees.assert_equal(_front(new), _step(case, grads, state, part)[0])
    kept = [x is y for x, y in zip(jax.tree.leaves(new), jax.tree.leaves(model), strict=True)]
    assert kept.count(False) <= 1
    changed = [x for x, same in zip(jax.tree.leaves(model), kept, strict=True) if not same]
    assert all(x is model.layers[0].weight for x in changed)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_a_missing_update_where_the_state_has_an_array(name):
    """`None` for a parameter that the state knows raises and names its path; where there is no
    state, it is left alone."""
    case, model = cases.TRANSFORMS[name], trees.model()
    grads = eqx.tree_at(lambda g: g.layers[1].weight, trees.grads(model, 0), None)
    state = case.optim.init(model)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(state)]
    # By itself, or within the vector of its dtype.
    if any(".layers[1].weight" in path or "['float32']" in path for path in paths):
        for method in (_update, _step):
            with pytest.raises(ValueError, match=r"(?s)`state`.*\.layers\[1\]\.weight"):
                method(case, grads, state, model)
        return
    updates, _ = _update(case, grads, state, model)
    assert updates.layers[1].weight is None
    new, _ = _step(case, grads, state, model)
    assert new.layers[1].weight is model.layers[1].weight


# ---- kinds of trees


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_empty_trees(name):
    """Trees without leaves, or without arrays to train in a tree of `None`, are fine."""
    case = cases.TRANSFORMS[name]
    for empty in ({}, [], None, {"a": None, "b": ()}):
        state = case.optim.init(empty)
        updates, after = _update(case, empty, state, empty)
        assert jax.tree.structure(updates) == jax.tree.structure(empty)
        trees.assert_same_type(after, state)
        assert int(after.count) == 1
        new, after = _step(case, empty, state, empty)
        assert jax.tree.structure(new) == jax.tree.structure(empty)
        assert case.optim.eval_params(after, empty) == empty


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_nothing_to_train(name):
    """A tree with leaves but without a float array raises and names the first leaf."""
    optim = cases.TRANSFORMS[name].optim
    for tree, path in [({"w": 1.0}, "['w']"), (jnp.arange(3), "."), ([{"n": "x"}], "[0]['n']")]:
        with pytest.raises(ValueError) as caught:
            optim.init(tree)
        for words in (type(optim).__name__, "params", f"`{path}`", "array"):
            assert words in str(caught.value)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_empty_arrays(name):
    """Arrays without elements keep their shapes and make no difference to the others."""
    case = cases.TRANSFORMS[name]
    with_empty = {"e": jnp.zeros((0,)), "m": jnp.zeros((0, 3)), "w": trees.params()["b"]}
    grads = {**with_empty, "w": trees.grads(with_empty["w"], 0)}
    updates, state = _two_updates(case, with_empty, grads)
    for found in updates:
        assert (found["e"].shape, found["m"].shape) == ((0,), (0, 3))
    alone, _ = _two_updates(case, {"w": with_empty["w"]}, {"w": grads["w"]})
    if not case.random:
        trees.assert_close([u["w"] for u in updates], [u["w"] for u in alone], rtol=1e-6)
    only = {"e": jnp.zeros((0,))}
    updates, state = _two_updates(case, only, only)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((updates, state)))


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_scalars_keep_their_shape(name):
    """A leaf of shape () stays one: in updates, parameters and averages, and in float arrays of
    a state that are like it."""
    case = cases.TRANSFORMS[name]
    params = jnp.asarray(0.7)
    grads = jnp.asarray(-0.3)
    state = case.optim.init(params)
    updates, state = _update(case, grads, state, params)
    new, state = _step(case, grads, state, params)
    assert updates.shape == new.shape == case.optim.eval_params(state, new).shape == ()


def _containers(leaves):
    """One list of leaves in several containers."""
    a, b, c = leaves
    yield {"a": a, "b": b, "c": c}
    yield [a, (b, {"c": c})]
    yield Pair(a, Pair(b, c))
    yield {"a": {"x": {"y": a}}, "b": None, "c": [b, None, c]}


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_containers_make_no_difference(name):
    """Dicts, lists, tuples, named tuples and nested trees give the same numbers, each in its own
    structure."""
    case = cases.TRANSFORMS[name]
    first = trees.params()
    leaves, grads = jax.tree.leaves(first), jax.tree.leaves(trees.grads(first, 0))
    expected = None
    pairs = zip(_containers(leaves), _containers(grads), strict=True)
    for params, container in pairs:
        state = case.optim.init(params)
        updates, _ = _update(case, container, state, params)
        assert jax.tree.structure(updates) == jax.tree.structure(params)
        expected = expected or jax.tree.leaves(updates)
        trees.assert_equal(jax.tree.leaves(updates), expected)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_shared_arrays(name):
    """One array at two places is two parameters, with a state each."""
    x = trees.params()["b"]
    shared, apart = {"a": x, "b": x}, {"a": x, "b": jnp.array(x)}
    grads = trees.grads(apart, 0)
    case = cases.TRANSFORMS[name]
    state = case.optim.init(shared)
    trees.assert_equal(state, case.optim.init(apart))
    for same in (grads, {"a": grads["a"], "b": grads["a"]}):
        found, expected = _step(case, same, state, shared), _step(case, same, state, apart)
        trees.assert_equal(found, expected)


def test_shared_layers():
    """A model with `eqx.nn.Shared` trains its one copy of the weights, for both uses."""
    linears = [eqx.nn.Linear(3, 3, key=jax.random.key(i)) for i in range(2)]
    weight = lambda pair: pair[0].weight  # noqa: E731 - as in Equinox's own examples
    model = eqx.nn.Shared(linears, lambda pair: pair[1].weight, weight)
    optim = eqopt.SGD(0.1, 0.9)
    state = optim.init(model)
    assert len([x for x in jax.tree.leaves(state) if _is_trained(x)]) == 3

    def loss(model):
        first, second = model()
        return jnp.sum(second(first(jnp.ones(3))))

    grads = eqx.filter_grad(loss)(model)
    new, _ = optim.step(grads, state, model)
    first, second = new()
    trees.assert_equal(first.weight, second.weight)
    assert np.any(first.weight != linears[0].weight)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_numpy_leaves(name):
    """NumPy arrays are parameters too: states and updates are JAX arrays, with the numbers that
    JAX parameters give."""
    case, params = cases.TRANSFORMS[name], trees.params()
    grads = trees.grads(params, 0)
    as_numpy, grads_as_numpy = jax.tree.map(np.asarray, (params, grads))
    state = case.optim.init(as_numpy)
    trees.assert_equal(state, case.optim.init(params))
    updates, after = _update(case, grads_as_numpy, state, as_numpy)
    trees.assert_same_type(after, state)
    trees.assert_same_type(updates, grads)
    trees.assert_equal(updates, _update(case, grads, state, params)[0])
    new, _ = _step(case, grads_as_numpy, state, as_numpy)
    trees.assert_same_type(new, params)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_weakly_typed_leaves(name):
    """Parameters of a weak type, such as `jnp.asarray(1.0)`, have states and updates that are not
    weak, so that types don't change."""
    case = cases.TRANSFORMS[name]
    params, grads = {"w": jnp.asarray(1.0)}, {"w": jnp.asarray(0.5)}
    assert params["w"].weak_type and grads["w"].weak_type
    state = case.optim.init(params)
    updates, after = _update(case, grads, state, params)
    new, _ = _step(case, grads, state, params)
    assert not any(x.weak_type for x in jax.tree.leaves((state, updates, after, new)))
    trees.assert_same_type(after, state)


# ---- projections


@pytest.mark.parametrize("name", cases.FREE_PROJECTIONS)
def test_projections_of_models(name):
    """The float arrays of a model are projected as one tree; the rest is left alone."""
    projection, model = cases.PROJECTIONS[name].projection, _everything()
    projected = projection(model)
    _check_left_alone(projected, model)
    arrays = eqx.filter(model, _is_trained)
    trees.assert_equal(eqx.filter(projected, _is_trained), projection(arrays))
    for empty in ({}, None, {"a": None}):
        assert projection(empty) == empty
    assert projection(jnp.asarray(2.0)).shape == ()
    assert projection({"e": jnp.zeros((0, 3))})["e"].shape == (0, 3)


@pytest.mark.parametrize("name", cases.FREE_PROJECTIONS)
def test_projections_of_other_leaves(name):
    """NumPy leaves give the numbers of JAX leaves; a tree of integers is taken as floats."""
    projection = cases.PROJECTIONS[name].projection
    tree = trees.params()
    trees.assert_equal(projection(jax.tree.map(np.asarray, tree)), projection(tree))
    integers = jnp.array([3, -4])
    trees.assert_equal(projection(integers), projection(jnp.array([3.0, -4.0])))
