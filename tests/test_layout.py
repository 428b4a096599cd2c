"""`Flatten` and `SplitRealAndImaginary`: what is seen inside, and what comes back."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import trees
from jax.sharding import PartitionSpec as P

import eqopt
from eqopt import projections, select


def test_flatten_has_a_vector_for_each_dtype():
    """In the order of the leaves; shapes and dtypes come back, of mixed gradients too."""
    params = {
        "a": jnp.ones((2, 2)),
        "b": jnp.ones(3, jnp.bfloat16),
        "c": jnp.asarray(2.0),
        "d": jnp.zeros((0, 3)),
    }
    optim = eqopt.Flatten(eqopt.Trace(0.5))
    state = optim.init(params)
    trace = eqopt.find(state, eqopt.TraceState).trace
    assert {name: x.shape for name, x in trace.items()} == {"float32": (5,), "bfloat16": (3,)}
    grads = jax.tree.map(lambda x: 2 * x, {**params, "c": jnp.asarray(1.5, jnp.bfloat16)})
    updates, state = optim(grads, state, params)
    trees.assert_same_type(updates, grads)
    trees.assert_equal(updates, grads)
    trace = eqopt.find(state, eqopt.TraceState).trace
    np.testing.assert_array_equal(trace["float32"], [2, 2, 2, 2, 3])


def test_what_goes_by_leaf_goes_by_vector():
    """Normalised leaf by leaf, the two leaves are one of norm 5."""
    params = {"a": jnp.zeros(1), "b": jnp.zeros(1)}
    grads = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    optim = eqopt.Flatten(eqopt.NormalizeByGlobalNorm(axis="leaf"))
    updates, _ = optim(grads, optim.init(params), params)
    trees.assert_close(updates, {"a": jnp.array([0.6]), "b": jnp.array([0.8])})


def test_flatten_inside_and_around():
    """Around a projection of the tree, inside a mask, around optax's."""
    params = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    grads = jax.tree.map(jnp.zeros_like, params)
    optim = eqopt.Flatten(eqopt.SGD(0.1) >> projections.L2Ball(1.0))
    new, _ = optim.step(grads, optim.init(params), params)
    trees.assert_close(new, {"a": jnp.array([0.6]), "b": jnp.array([0.8])})
    optim = eqopt.Freeze(eqopt.Flatten(optax.adam(0.1)), select.Path("a"))
    new, _ = optim.step(params, optim.init(params), params)
    assert new["a"] is params["a"]
    np.testing.assert_allclose(new["b"], [3.9], rtol=1e-6)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"b": jnp.ones(6), "a": jnp.ones((2, 3))}, None),
        ({"a": jnp.ones((3, 2)), "b": jnp.ones(6)}, r"`\['a'\]` of shape \(2, 3\) .* \(3, 2\)"),
        ({"a": jnp.ones(6), "b": jnp.ones((2, 3))}, r"`\['a'\]` of shape \(2, 3\) .* \(6,\)"),
        ({"a": jnp.ones((2, 3)), "c": jnp.ones(6)}, r"`\['b'\]` .* one at `\['c'\]`"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda x: x, eqopt.SkipNotFinite])
def test_vectors_of_other_leaves(wrap, params, words):
    """As many numbers are not enough: a state of other leaves is told, in a step too."""
    optim = wrap(eqopt.Flatten(eqopt.Trace(0.5)))
    state = optim.init({"a": jnp.ones((2, 3)), "b": jnp.ones(6)})
    for call in (optim, optim.step, jax.jit(optim.step)):
        if words is None:
            trees.assert_same_type(call(params, state, params)[1], state)
            continue
        with pytest.raises(ValueError, match=rf"vector 'float32' holds a leaf at {words}"):
            call(params, state, params)


def test_frozen_leaves_around_vectors_of_as_many_numbers():
    """With another leaf frozen the vector is another."""
    params = {"a": jnp.ones(2), "b": jnp.ones(2)}
    first, second = (
        eqopt.Freeze(eqopt.Flatten(eqopt.Adam(0.1)), select.Path(name)) for name in "ab"
    )
    with pytest.raises(ValueError, match=r"holds a leaf at `\['b'\]` .* `\['a'\]`"):
        second.step(params, first.init(params), params)
    with pytest.raises(ValueError, match=r"same leaves inside `Flatten`.*`\['b'\]`"):
        eqopt.extend_state(second, first.init(params), params)


def test_a_selector_by_path_inside_flatten_raises():
    """There are no paths inside."""
    optim = eqopt.Flatten(eqopt.AdamW(0.1, decay_where=select.Path("w")))
    with pytest.raises(ValueError, match=r"must match a leaf.*\['float32'\]"):
        optim.init({"w": jnp.ones(2)})


PARAMS = {"c": jnp.array([1.0 + 2.0j, -1.0j]), "r": jnp.array([1.0])}
GRADS = {"c": jnp.array([3.0 - 4.0j, 0.5j]), "r": jnp.array([-2.0])}


def test_each_part_is_a_leaf():
    """The signs of both parts; as without the wrapper where leaves are real."""
    optim = eqopt.SplitRealAndImaginary(eqopt.ScaleBySign())
    updates, _ = optim(GRADS, optim.init(PARAMS), PARAMS)
    trees.assert_equal(updates, {"c": jnp.array([1 - 1j, 1j]), "r": jnp.array([-1.0])})
    trees.assert_same_type(updates, PARAMS)


def test_adam_by_parts():
    """Ten steps as in optax, with a second moment for each part."""
    ours = eqopt.SplitRealAndImaginary(eqopt.Adam(0.1))
    theirs = optax.contrib.split_real_and_imaginary(optax.adam(0.1))
    step, update = jax.jit(ours.step), jax.jit(theirs.update)
    params, state = PARAMS, ours.init(PARAMS)
    wanted, their_state = PARAMS, theirs.init(PARAMS)
    for t in range(10):
        grads = trees.grads(PARAMS, t)
        params, state = step(grads, state, params)
        updates, their_state = update(grads, their_state, wanted)
        wanted = optax.apply_updates(wanted, updates)
    trees.assert_close(params, wanted, rtol=1e-5, atol=1e-6)
    assert eqopt.find(state, eqopt.ScaleByAdamState).nu["c"].imaginary.dtype == jnp.float32


def test_real_algorithms_take_complex_parameters():
    """What has no complex form works inside, in a chain and behind a mask too, not outside."""
    rprop = eqopt.ScaleByRProp(0.1)
    for optim in (
        eqopt.SplitRealAndImaginary(rprop),
        eqopt.Clip(10.0) >> eqopt.SplitRealAndImaginary(eqopt.Trace(0.5) >> rprop),
        eqopt.Masked(eqopt.SplitRealAndImaginary(rprop), select.Path("c")),
    ):
        updates, _ = optim(GRADS, optim.init(PARAMS), PARAMS)
        assert np.all(np.isfinite(updates["c"]))
    with pytest.raises(TypeError, match=r"`ScaleByRProp` must be given real"):
        (eqopt.SplitRealAndImaginary(eqopt.Identity()) >> rprop).init(PARAMS)


def test_selectors_reach_both_parts():
    """A path and a function select both parts of a complex leaf."""
    for where in (select.Path(r"^\['c'\]"), select.At(lambda p: p["c"]), {"c": True, "r": False}):
        optim = eqopt.SplitRealAndImaginary(eqopt.AddDecayedWeights(1.0, where))
        zeros = jax.tree.map(jnp.zeros_like, PARAMS)
        updates, _ = optim(zeros, optim.init(PARAMS), PARAMS)
        trees.assert_equal(updates, {**PARAMS, "r": jnp.zeros(1)})


def test_flatten_of_leaves_that_vary_differently():
    """Inside `shard_map`, leaves of one device each beside leaves that all share: through a `scan`,
    which demands fixed types, it gives what the leaves alone do."""
    spec = {"a": P(), "b": P("data"), "c": P()}
    params = {"a": jnp.ones(3), "b": jnp.arange(8.0), "c": jnp.ones(())}
    grads = trees.stack([trees.grads(params, t) for t in range(3)])

    def inside(optim, params, grads):
        state = optim.init(params)
        names = set(eqopt.find(state, eqopt.ScaleByAdamState).mu)
        assert names in ({"a", "b", "c"}, {"float32[]", "float32[data]"})

        def body(carry, g):
            return optim.step(g, carry[1], carry[0]), None

        return jax.lax.scan(body, (params, state), grads)[0][0]

    def run(optim):
        over_steps = {"a": P(), "b": P(None, "data"), "c": P()}
        fn = jax.shard_map(partial(inside, optim), in_specs=(spec, over_steps), out_specs=spec)
        return trees.quick_jit(fn)(params, grads)

    with jax.set_mesh(jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))):
        adam = eqopt.Adam(0.1)
        trees.assert_close(run(eqopt.Flatten(adam)), run(adam))


def test_parts_of_parts():
    """Inside itself the inner one sees real leaves alone and changes nothing."""
    params = {"c": jnp.asarray([1 + 2j]), "r": jnp.ones(2)}
    once = eqopt.SplitRealAndImaginary(eqopt.Adam(0.1))
    twice = eqopt.SplitRealAndImaginary(once)
    wanted, _ = once.step(params, once.init(params), params)
    found, state = twice.step(params, twice.init(params), params)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), found, wanted))
    assert jax.tree.all(jax.tree.map(jnp.array_equal, twice.eval_params(state, found), found))
