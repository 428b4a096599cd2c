"""`extend_state`: what of a state is kept when leaves or the optimizer change."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import eqopt
from eqopt import schedules, select

PARAMS = {"a": jnp.ones(2), "b": jnp.ones((2, 2)), "c": jnp.asarray(1.0)}
ADAMW = eqopt.AdamW(0.1, weight_decay=0.1)


def trained(optim, params=None):
    """The state after three steps."""
    params = PARAMS if params is None else params
    state = optim.init(params)
    for t in range(3):
        _, state = optim(trees.grads(params, t), state, params)
    return state


def adam(state):
    """The moments."""
    return eqopt.find(state, eqopt.ScaleByAdamState)


def test_the_same_optimizer():
    """Nothing changes, and a schedule instead of a number changes nothing either."""
    state = trained(ADAMW)
    scheduled = eqopt.AdamW(schedules.Linear(0.1, 0.0, steps=9), weight_decay=0.1)
    for optim in (ADAMW, scheduled):
        new = eqopt.extend_state(optim, state, PARAMS)
        trees.assert_equal(new, state)
        assert int(new.count) == 3


def test_leaves_added_removed_and_of_another_shape():
    """What stays keeps its moments; what is new starts from zero."""
    state = trained(ADAMW)
    params = {"a": PARAMS["a"], "b": jnp.ones((3, 2)), "d": jnp.ones(1)}
    new = eqopt.extend_state(ADAMW, state, params)
    trees.assert_same_type(new, ADAMW.init(params))
    assert int(new.count) == 3
    trees.assert_equal(adam(new).mu["a"], adam(state).mu["a"])
    trees.assert_equal(adam(new).nu["b"], jnp.zeros((3, 2)))
    trees.assert_equal(adam(new).mu["d"], jnp.zeros(1))


@pytest.mark.parametrize(
    "optim",
    [
        eqopt.Freeze(ADAMW, select.Path("b")),
        eqopt.Masked(ADAMW, ~select.Path("b")),
        eqopt.Clip(1.0) >> eqopt.Freeze(ADAMW, select.Path("b")),
        eqopt.Partition(
            {"x": (select.Path("a"), ADAMW), "z": (select.Path("b"), eqopt.SGD(0.1))}, default=ADAMW
        ),
    ],
    ids=["Freeze", "Masked", "chain", "Partition"],
)
def test_freezing_and_unfreezing(optim):
    """Through each wrapper that leaves leaves out; what was left out starts from zero."""
    state = trained(ADAMW)
    frozen = eqopt.extend_state(optim, state, PARAMS)
    trees.assert_same_type(frozen, optim.init(PARAMS))
    assert int(frozen.count) == 3
    again = eqopt.extend_state(ADAMW, frozen, PARAMS)
    for name in ("a", "c"):
        trees.assert_equal(adam(again).mu[name], adam(state).mu[name])
        trees.assert_equal(adam(again).nu[name], adam(state).nu[name])
    trees.assert_equal(adam(again).mu["b"], jnp.zeros((2, 2)))


def test_models_and_keys():
    """The same in a model, whose head is replaced; a key of noise goes on."""
    model = trees.model()
    optim = eqopt.AddNoise(0.1, 0.5, 0) >> eqopt.Adam(0.1)
    state = optim.init(model)
    _, state = optim(trees.grads(model, 0), state, model)
    head = eqx.nn.Linear(4, 7, key=jax.random.key(1))
    bigger = eqx.tree_at(lambda m: m.layers[-1], model, head)
    new = eqopt.extend_state(optim, state, bigger)
    trees.assert_same_type(new, optim.init(bigger))
    trees.assert_equal(adam(new).mu.layers[0], adam(state).mu.layers[0])
    trees.assert_equal(adam(new).mu.layers[1].weight, jnp.zeros((7, 4)))
    noise = [eqopt.find(s, eqopt.AddNoiseState) for s in (new, state)]
    trees.assert_equal(*noise)


def test_two_of_a_kind():
    """They are told apart by their order."""
    optim = eqopt.Trace(0.5) >> eqopt.Trace(0.9)
    state = trained(optim)
    trees.assert_equal(eqopt.extend_state(optim, state, PARAMS), state)
    with pytest.raises(ValueError, match=r"as many of `TraceState`.*2 for 1"):
        eqopt.extend_state(eqopt.Trace(0.5), state, PARAMS)


def test_two_of_a_kind_behind_masks():
    """The place in the chain tells which one was masked and is not any more, and the reverse."""
    first, second = eqopt.ScaleByAdam(0.5), eqopt.ScaleByAdam(0.9)
    both = first >> second
    for masked in (
        eqopt.Masked(first, select.Path("a")) >> second,
        eqopt.Freeze(first, ~select.Path("a")) >> second,
        eqopt.Partition({"x": (select.Path("a"), first)}, default=eqopt.Identity()) >> second,
    ):
        for old, new in [(both, masked), (masked, both)]:
            state = trained(old)
            found = eqopt.find_all(eqopt.extend_state(new, state, PARAMS), eqopt.ScaleByAdamState)
            before = eqopt.find_all(state, eqopt.ScaleByAdamState)
            trees.assert_equal(found[1], before[1])
            trees.assert_equal(found[0].mu["a"], before[0].mu["a"])
            assert not np.any(found[0].mu["b"])
    state = trained(eqopt.Masked(first, select.Path("a")) >> eqopt.Masked(second, select.Path("b")))
    new = eqopt.Masked(first, select.Path("b")) >> eqopt.Masked(second, select.Path("a"))
    found = eqopt.find_all(eqopt.extend_state(new, state, PARAMS), eqopt.ScaleByAdamState)
    assert not any(np.any(x) for x in jax.tree.leaves(found))


def test_two_of_a_kind_in_groups():
    """A whole chain may become that of a group; where a group has fewer, or the order is another,
    it is said what is where."""
    one, two = eqopt.Trace(0.9), eqopt.Trace(0.5) >> eqopt.Trace(0.9)
    state = trained(two)
    optim = eqopt.Partition(
        {"x": (select.Path("a"), two), "y": (select.Path("b"), one)}, default=two
    )
    with pytest.raises(
        ValueError, match=r"which `TraceState` is which.*\['b'\].* \['y'\] of .*'no "
    ):
        eqopt.extend_state(optim, state, PARAMS)
    optim = eqopt.Partition({"x": (select.Path("a"), two)}, default=eqopt.SGD(0.1))
    found = eqopt.find_all(eqopt.extend_state(optim, state, PARAMS), eqopt.TraceState)
    for new, old in zip(found, eqopt.find_all(state, eqopt.TraceState), strict=True):
        trees.assert_equal(new.trace["a"], old.trace["a"])

    in_group = eqopt.Partition({"x": (select.Everything(), one)})
    with pytest.raises(
        ValueError, match=r"which `TraceState` is which.*\['no group', 'x'\].*\['x', "
    ):
        eqopt.extend_state(one >> in_group, trained(in_group >> one), PARAMS)
    flat = eqopt.Flatten(one)
    with pytest.raises(ValueError, match=r"as many of `FlattenState` .*2 for 1"):
        eqopt.extend_state(flat, trained(flat >> flat), {"d": jnp.ones(3)})


def test_names_of_groups_may_be_digits():
    """They are names as others are: what counters in them are is known, though no leaf stays."""
    params = {"a": jnp.ones(2), "b": jnp.ones(2)}
    every = [eqopt.MultiSteps(eqopt.SGD(0.1), k) for k in (2, 5)]
    named = eqopt.Partition(
        {"0": (select.Path("a|c"), every[0]), "1": (select.Path("b|d"), every[1])}
    )
    _, state = named.step(params, named.init(params), params)
    state = eqopt.extend_state(named, state, {"c": jnp.ones(2), "b": params["b"]})
    steps = [x.mini_step for x in eqopt.find_all(state, eqopt.MultiStepsState)]
    assert steps == [1, 1]
    unnamed = eqopt.Partition([(select.Path("a|c"), every[0]), (select.Path("b"), every[1])])
    _, state = unnamed.step(params, unnamed.init(params), params)
    with pytest.raises(ValueError, match=r"they have no names"):
        eqopt.extend_state(unnamed, state, {"c": jnp.ones(2), "b": params["b"]})


def test_errors():
    """Of another optimizer, of none, and within vectors."""
    state = trained(ADAMW)
    with pytest.raises(ValueError, match=r"like `SGD`, which has no `ScaleByAdamState` outside"):
        eqopt.extend_state(eqopt.SGD(0.1), state, PARAMS)
    with pytest.raises(TypeError, match=r"`AdamW`: `state` must be what its `init` returned"):
        eqopt.extend_state(ADAMW, PARAMS, PARAMS)
    flat = eqopt.Flatten(ADAMW)
    state = trained(flat)
    trees.assert_equal(eqopt.extend_state(flat, state, PARAMS), state)
    with pytest.raises(ValueError, match=r"inside `Flatten`.*\(7,\).*\(2,\)"):
        eqopt.extend_state(flat, state, {"a": PARAMS["a"]})


def test_counters_of_groups_are_not_taken_for_each_other():
    """Where a group has another name it is not known which one it was."""
    params = {"w": jnp.ones((2, 2)), "b": jnp.ones(2)}

    def groups(name):
        adam = eqopt.Adam(0.1)
        return eqopt.Partition(
            {
                "weights": (select.Ndim(2), eqopt.MultiSteps(adam, 2)),
                name: (select.Ndim(1), eqopt.MultiSteps(adam, 5)),
            }
        )

    _, state = groups("biases").step(params, groups("biases").init(params), params)
    assert eqx.tree_equal(eqopt.extend_state(groups("biases"), state, params), state)
    with pytest.raises(ValueError, match=r"groups \['weights', 'z'\] .* \['biases', 'weights'\]"):
        eqopt.extend_state(groups("z"), state, params)


def _unnamed(*groups):
    return eqopt.Partition([(select.Path(name), optim) for name, optim in groups])


def test_groups_without_names_in_another_order():
    """Counters of one group are not taken for those of another, moments go by leaf, and where
    neither is told apart that is said."""
    params = {"a": jnp.ones(2), "b": jnp.ones(2)}
    every = [("a", eqopt.MultiSteps(eqopt.Adam(0.1), k)) for k in (2, 5)]
    first, second = every[0], ("b", every[1][1])
    optim = _unnamed(first, second)
    _, state = optim.step(params, optim.init(params), params)
    assert eqx.tree_equal(eqopt.extend_state(optim, state, params), state)
    with pytest.raises(ValueError, match=r"tell the groups .* `MultiStepsState`; .* Give names"):
        eqopt.extend_state(_unnamed(second, first), state, params)

    slow, fast = ("a", eqopt.Adam(0.1, 0.5)), ("b", eqopt.Adam(0.1))
    optim = _unnamed(slow, fast)
    _, state = optim.step({"a": params["a"], "b": 2 * params["b"]}, optim.init(params), params)
    new = eqopt.extend_state(_unnamed(fast, slow), state, params).inner.inner_states
    moments = [eqopt.find(new[name], eqopt.ScaleByAdamState).mu for name in "01"]
    trees.assert_close(
        moments, [{"a": None, "b": params["b"] * 0.2}, {"a": params["a"] / 2, "b": None}]
    )

    flat = _unnamed(("a", eqopt.Flatten(eqopt.Adam(0.1))), ("b", eqopt.Flatten(eqopt.Adam(0.2))))
    with pytest.raises(ValueError, match=r"tell the groups .* Give names"):
        eqopt.extend_state(flat, trained(flat, params), params)


def test_two_of_a_kind_in_a_group_without_a_name():
    """They are of one group, which its leaves tell."""
    params = {"a": jnp.ones(2), "b": jnp.ones(2)}
    optim = _unnamed(("a", eqopt.Trace(0.5) >> eqopt.Trace(0.9)), ("b", eqopt.Trace(0.9)))
    state = trained(optim, params)
    assert eqx.tree_equal(eqopt.extend_state(optim, state, params), state)


@pytest.mark.parametrize(
    ("optim", "former", "words"),
    [
        (
            eqopt.MultiSteps(ADAMW, 2),
            ADAMW,
            r"no `ScaleByAdamState` outside of wrappers but `ScaleByAdamState` inside "
            "`MultiStepsState`",
        ),
        (ADAMW, eqopt.MultiSteps(ADAMW, 2), r"no `MultiStepsState` outside of wrappers\. Leaves"),
        (
            eqopt.SkipNotFinite(eqopt.MultiSteps(ADAMW, 2)),
            eqopt.MultiSteps(eqopt.SkipNotFinite(ADAMW), 2),
            r"no `MultiStepsState` outside of wrappers but `MultiStepsState` inside `SkipState`",
        ),
    ],
    ids=["added", "removed", "swapped"],
)
def test_another_structure(optim, former, words):
    """It is said what the state has and where the optimizer has it."""
    with pytest.raises(ValueError, match=rf"like `{type(optim).__name__}`, which has {words}"):
        eqopt.extend_state(optim, trained(former), PARAMS)


def test_in_the_midst_of_a_round():
    """What was gathered for the leaves that stay is kept; a new one counts as zero until now."""
    optim = eqopt.MultiSteps(eqopt.SGD(1.0), 2)
    before, after = {"a": jnp.zeros(2)}, {"a": jnp.zeros(2), "new": jnp.zeros(2)}
    _, state = optim.step({"a": jnp.array([2.0, 4.0])}, optim.init(before), before)
    state = eqopt.extend_state(optim, state, after)
    grads = {"a": jnp.array([4.0, 0.0]), "new": jnp.array([6.0, 2.0])}
    params, state = optim.step(grads, state, after)
    assert optim.has_updated(state)
    trees.assert_equal(params, {"a": jnp.array([-3.0, -2.0]), "new": jnp.array([-3.0, -1.0])})


def test_sums_do_not_move_to_another_group():
    """The counter that says how many gradients are in a sum, and whether it is spent, is that of
    the group: a leaf that comes from another group starts at zero."""
    params = {name: jnp.zeros(1) for name in "abc"}
    grads = jax.tree.map(jnp.ones_like, params)

    def groups(x, y):
        two, three = (eqopt.MultiSteps(eqopt.SGD(1.0), k) for k in (2, 3))
        return eqopt.Partition({"x": (select.Path(x), two), "y": (select.Path(y), three)})

    optim, new = groups("[ac]'", "b'"), groups("a'", "[bc]'")
    state = optim.init(params)
    for _ in range(4):  # x is between rounds, y has one gradient of three
        params, state = optim.step(grads, state, params)
    state = eqopt.extend_state(new, state, params)
    for _ in range(2):
        updates, state = new(grads, state, params)
    trees.assert_close(updates, {"a": -jnp.ones(1), "b": -jnp.ones(1), "c": -jnp.ones(1) * 2 / 3})


def test_moments_of_another_precision(x64):
    """Real and complex ones are kept."""
    optim = eqopt.ScaleByAdam()
    params = {"r": jnp.ones(2, jnp.float32), "c": jnp.ones(2, jnp.complex64)}
    _, state = optim(params, optim.init(params))
    wide = {"r": jnp.ones(2, jnp.float64), "c": jnp.ones(2, jnp.complex128)}
    mu = eqopt.extend_state(optim, state, wide).inner.mu
    assert mu["c"].dtype == jnp.complex128 and jnp.all(mu["c"] == state.inner.mu["c"])
    assert jnp.all(mu["r"] == state.inner.mu["r"])
