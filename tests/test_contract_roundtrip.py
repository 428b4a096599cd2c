"""Contract round trip: instances and states come back equal from files, pickles and flattening,
and the grouping of `>>` makes no difference."""

import io
import pickle

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
import trees

import eqopt
from eqopt import projections, schedules

TRANSFORMS = {name: (case.optim, case.pickles) for name, case in cases.TRANSFORMS.items()}
SCHEDULES = {name: (case.schedule, case.pickles) for name, case in cases.SCHEDULES.items()}
PROJECTIONS = {name: (case.projection, True) for name, case in cases.PROJECTIONS.items()}
ALL = {
    f"{kind}-{name}": entry
    for kind, table in (
        ("transform", TRANSFORMS),
        ("schedule", SCHEDULES),
        ("projection", PROJECTIONS),
    )
    for name, entry in table.items()
}


def _assert_equal(new, old):
    """Equal in structure, types and values, and as printed."""
    assert eqx.tree_equal(new, old, typematch=True)
    assert jax.tree.structure(new) == jax.tree.structure(old)
    assert repr(new) == repr(old)


def _dynamic(instance):
    """The instance with arrays for its numbers."""
    if isinstance(instance, eqopt.AbstractTransform):
        return eqopt.dynamic(instance)
    return jax.tree.map(
        lambda x: x if isinstance(x, jax.Array) else jnp.asarray(x, type(x)), instance
    )


def _hash(instance):
    """The hash; what holds arrays has none."""
    has_arrays = any(isinstance(x, jax.Array) for x in jax.tree.leaves(instance))
    return None if has_arrays else hash(instance)


def _blank(tree):
    """The same tree with zeros for its numbers."""

    def zero(x):
        if isinstance(x, jax.Array):
            return jnp.zeros_like(x)
        return 0 * x if eqx.is_array_like(x) else x

    return jax.tree.map(zero, tree)


def _saved_and_loaded(tree):
    """Through `eqx.tree_serialise_leaves`, into a tree with other numbers."""
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, tree)
    file.seek(0)
    return eqx.tree_deserialise_leaves(file, _blank(tree))


def _state(name):
    """The state after one update."""
    case = cases.TRANSFORMS[name]
    params = trees.params()
    grads = trees.grads(params, 0)
    return case.optim(grads, case.optim.init(params), params, **case.extras(params, grads))[1]


# ---- instances


@pytest.mark.parametrize("name", ALL)
def test_flattened_instances(name):
    """Flattening and unflattening gives an equal instance of the same hash and print; so do its
    numbers as arrays."""
    instance, _ = ALL[name]
    new = jax.tree.map(lambda x: x, instance)
    _assert_equal(new, instance)
    assert new == instance and _hash(new) == _hash(instance)
    arrays = _dynamic(instance)
    _assert_equal(jax.tree.map(lambda x: x, arrays), arrays)


@pytest.mark.parametrize("name", ALL)
def test_saved_instances(name):
    """Saving with Equinox and loading into an instance with other numbers gives the numbers
    back, as Python numbers and as arrays."""
    for instance in (ALL[name][0], _dynamic(ALL[name][0])):
        _assert_equal(_saved_and_loaded(instance), instance)


@pytest.mark.parametrize("name", [name for name, (_, pickles) in ALL.items() if pickles])
def test_pickled_instances(name):
    """Pickling gives an equal instance of the same hash and print."""
    instance, _ = ALL[name]
    new = pickle.loads(pickle.dumps(instance))
    _assert_equal(new, instance)
    assert new == instance and _hash(new) == _hash(instance)
    arrays = _dynamic(instance)
    _assert_equal(pickle.loads(pickle.dumps(arrays)), arrays)


@pytest.mark.parametrize("name", ALL)
def test_instances_differ_by_their_numbers(name):
    """Another number makes another instance, in comparison and, if it is no array of many, in
    print."""
    instance, _ = ALL[name]
    numbers, treedef = jax.tree.flatten(instance)
    for i, number in enumerate(numbers):
        less = 0.9 * number if isinstance(number, jax.Array) else 0.9 * number or 0.5
        other = jax.tree.unflatten(treedef, [*numbers[:i], less, *numbers[i + 1 :]])
        assert other != instance
        assert getattr(number, "ndim", 0) or repr(other) != repr(instance)


# ---- states


@pytest.mark.parametrize("name", TRANSFORMS)
def test_states(name):
    """A state comes back equal from flattening, from Equinox's files and from a pickle."""
    state = _state(name)
    _assert_equal(jax.tree.map(lambda x: x, state), state)
    _assert_equal(_saved_and_loaded(state), state)
    _assert_equal(pickle.loads(pickle.dumps(state)), state)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_states_load_into_new_ones(name):
    """A file is loaded into what `init` gives, and into its shapes."""
    state, file = _state(name), io.BytesIO()
    eqx.tree_serialise_leaves(file, state)
    optim, params = cases.TRANSFORMS[name].optim, trees.params()
    for like in (optim.init(params), jax.eval_shape(optim.init, params)):
        file.seek(0)
        _assert_equal(eqx.tree_deserialise_leaves(file, like), state)


# ---- `>>`


def _groupings(a, b, c):
    return (a >> b) >> c, a >> (b >> c)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_chains_are_associative(name):
    """The grouping changes neither the chain, its print nor its state, wherever the member
    stands, between transforms or projections."""
    member, params = TRANSFORMS[name][0], trees.params()
    clip, scale = eqopt.Clip(0.5), eqopt.Scale(0.5)
    ball, orthant = projections.L2Ball(2.0), projections.NonNegative()
    for three in [
        (member, clip, scale),
        (clip, member, scale),
        (clip, scale, member),
        (member, ball, orthant),
        (ball, orthant, member),
        (ball, member, orthant),
    ]:
        left, right = _groupings(*three)
        _assert_equal(left, right)
        _assert_equal(left.init(params), right.init(params))
        assert type(left) is eqopt.Chain


@pytest.mark.parametrize("name", SCHEDULES)
def test_sequences_of_schedules_are_associative(name):
    """The grouping changes neither the schedule, its print, its length nor its values; a schedule
    without an end comes last."""
    schedule, _ = SCHEDULES[name]
    first, second = schedules.Linear(0.0, 1.0, steps=3), schedules.Constant(0.5, steps=2)
    threes = [(first, second, schedule)]
    if schedule.steps is not None:
        threes += [(schedule, first, second), (first, schedule, second)]
    for three in threes:
        left, right = _groupings(*three)
        _assert_equal(left, right)
        assert left.steps == right.steps
        trees.assert_equal(left(jnp.arange(12)), right(jnp.arange(12)))


@pytest.mark.parametrize("name", PROJECTIONS)
def test_sequences_of_projections_are_associative(name):
    """The grouping changes neither the projection nor its print."""
    projection, _ = PROJECTIONS[name]
    ball, orthant = projections.L2Ball(2.0), projections.NonNegative()
    for three in [
        (projection, ball, orthant),
        (ball, projection, orthant),
        (ball, orthant, projection),
    ]:
        _assert_equal(*_groupings(*three))


def test_named_members_keep_their_names():
    """Names given to members survive every grouping."""
    named, clip, scale = eqopt.Chain(trace=eqopt.Trace(0.9)), eqopt.Clip(0.5), eqopt.Scale(0.5)
    for three in [(named, clip, scale), (clip, named, scale), (clip, scale, named)]:
        left, right = _groupings(*three)
        _assert_equal(left, right)
        assert left["trace"] == eqopt.Trace(0.9)
