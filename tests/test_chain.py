"""`Chain` and `>>`: flattening, names, indexing, printing, and what a step does."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import eqopt
from eqopt import projections, schedules, select

A, B, C = eqopt.Clip(0.7), eqopt.Trace(0.8), eqopt.Scale(-0.1)


def params():
    """Enough elements for a rounding error to show."""
    rng = np.random.default_rng(0)
    return {
        "w": jnp.asarray(rng.normal(size=(8, 8)), jnp.float32),
        "b": jnp.asarray(rng.normal(size=8), jnp.float32),
    }


def grads(step):
    """Gradients that change sign."""
    return jax.tree.map(lambda x: (-1.0) ** step * (x + 0.5), params())


def run(optim, steps=4):
    """The parameters and the state after some steps, and the last updates."""
    p = params()
    state = optim.init(p)
    for step in range(steps):
        updates, _ = optim(grads(step), state, p)
        p, state = optim.step(grads(step), state, p)
    return p, state, updates


def assert_equal(a, b):
    """Equal structure and numbers."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def assert_close(a, b):
    """Equal structure, and equal numbers to float32's precision."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7), a, b)


def test_members_are_applied_in_order():
    """Clipping before doubling is not doubling before clipping."""
    clip, double = eqopt.Clip(1.0), eqopt.Scale(2.0)
    one = jnp.asarray(1.0)
    for chain, wanted in ((clip >> double, 2.0), (double >> clip, 1.0)):
        assert float(chain(one, chain.init(one))[0]) == wanted


@pytest.mark.parametrize(
    "chain",
    [
        (A >> B) >> C,
        A >> (B >> C),
        eqopt.Chain(A, B, C),
        eqopt.Chain(A, eqopt.Chain(B, eqopt.Chain(C))),
        eqopt.Chain() >> A >> B >> C >> eqopt.Chain(),
    ],
)
def test_chains_are_flat(chain):
    """However it is grouped: equal, printed alike, with a state of one structure."""
    flat = A >> B >> C
    assert chain == flat
    assert (
        repr(chain)
        == repr(flat)
        == "Clip(max_delta=0.7) >> Trace(decay=0.8) >> Scale(step_size=-0.1)"
    )
    assert jax.tree.structure(chain.init(params())) == jax.tree.structure(flat.init(params()))
    assert len(chain) == 3


def test_names_survive_flattening():
    """Members of a named chain keep their names inside another."""
    chain = eqopt.Chain(clip=A, trace=B) >> C
    assert chain.names == ("clip", "trace", None)
    assert (C >> eqopt.Chain(clip=A)).names == (None, "clip")
    assert eqopt.Chain(eqopt.Chain(clip=A), last=C).names == ("clip", "last")


NEIGHBOURS = (projections.NonNegative(), projections.L2Ball(0.9))


@pytest.mark.parametrize(
    "chain",
    [
        eqopt.SGD(0.1) >> NEIGHBOURS[0] >> NEIGHBOURS[1],
        eqopt.SGD(0.1) >> (NEIGHBOURS[0] >> NEIGHBOURS[1]),
        eqopt.SGD(0.1) >> (eqopt.Project(NEIGHBOURS[0]) >> eqopt.Project(NEIGHBOURS[1])),
        eqopt.Chain(eqopt.SGD(0.1), *NEIGHBOURS),
        (eqopt.SGD(0.1) >> NEIGHBOURS[0]) >> eqopt.Chain(NEIGHBOURS[1]),
    ],
)
def test_neighbouring_projections_merge(chain):
    """So grouping makes no difference: equal, printed alike, with a state of one structure."""
    wanted = eqopt.Chain(eqopt.SGD(0.1), eqopt.Project(NEIGHBOURS[0] >> NEIGHBOURS[1]))
    assert chain == wanted
    assert repr(chain) == repr(wanted)
    assert jax.tree.structure(chain.init(params())) == jax.tree.structure(wanted.init(params()))


def test_projections_of_other_leaves_do_not_merge():
    """Two sets of leaves are two members."""
    first = eqopt.Project(NEIGHBOURS[0], select.Path("w"))
    second = eqopt.Project(NEIGHBOURS[1], select.Path("b"))
    assert len(eqopt.SGD(0.1) >> first >> second) == 3


def test_named_projections_do_not_merge():
    """A name is a promise that the member is there."""
    chain = eqopt.Chain(sgd=eqopt.SGD(0.1), first=NEIGHBOURS[0], second=NEIGHBOURS[1])
    assert chain["first"] == eqopt.Project(NEIGHBOURS[0])
    assert chain["second"] == eqopt.Project(NEIGHBOURS[1])


def test_indexing():
    """By position, from the end, by name and by slice."""
    chain = eqopt.Chain(A, trace=B, scale=C)
    assert chain[0] is A
    assert chain[-1] is C
    assert chain["trace"] is chain[1] is B
    assert chain[1:] == eqopt.Chain(trace=B, scale=C)
    assert chain[:0] == eqopt.Chain()
    assert list(chain) == [A, B, C]
    assert len(chain) == 3


def test_unknown_index():
    """The errors of a dict and of a list; the first lists the names."""
    chain = eqopt.Chain(trace=B, scale=C)
    with pytest.raises(KeyError, match=r"'adam'.*'trace', 'scale'"):
        chain["adam"]
    with pytest.raises(IndexError):
        chain[2]


def test_repeated_name():
    """Two members of one name are told apart by nobody."""
    with pytest.raises(ValueError, match="`trace`"):
        eqopt.Chain(trace=B) >> eqopt.Chain(trace=B)


def test_repr_with_names():
    """Named members print with their names."""
    chain = eqopt.Chain(A, trace=B)
    assert repr(chain) == "Chain(Clip(max_delta=0.7), trace=Trace(decay=0.8))"
    assert repr(eqopt.Chain(A)) == "Chain(Clip(max_delta=0.7))"
    assert repr(eqopt.Chain()) == "Chain()"


@pytest.mark.parametrize(
    "member, hint",
    [
        (0.1, "got 0.1"),
        (eqopt.Adam, r"Write `Adam\(...\)`"),
        (schedules.Constant(0.1), r"`ScaleByLearningRate\(schedule\)`"),
        (lambda updates: updates, "got <function"),
    ],
    ids=["number", "class", "schedule", "function"],
)
def test_wrong_member(member, hint):
    """The error says what to type instead, through `Chain` and on either side of `>>`."""
    for build in (lambda: eqopt.Chain(member), lambda: A >> member):
        with pytest.raises(TypeError, match=hint):
            build()


def test_number_on_the_left():
    """What is no transformation on the left is refused too."""
    with pytest.raises(TypeError, match=r"got 0\.1"):
        0.1 >> A


def test_empty_chain():
    """A chain without members changes nothing."""
    chain = eqopt.Chain()
    p, state, updates = run(chain, steps=1)
    assert_equal(updates, grads(0))
    assert_equal(p, eqopt.apply_updates(params(), grads(0)))
    assert int(state.count) == 1


@pytest.mark.parametrize(
    "member",
    [
        eqopt.Adam(0.1),
        eqopt.Project(projections.L2Ball(0.9)),
        eqopt.SGD(0.1) >> projections.L2Ball(0.9),
    ],
    ids=["Adam", "Project", "SGD >> L2Ball"],
)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda member: eqopt.Chain(member),
        lambda member: eqopt.Chain(name=member),
        lambda member: eqopt.Identity() >> member,
        lambda member: eqopt.Chain(first=eqopt.Identity(), second=member),
    ],
    ids=["alone", "alone and named", "last", "last and named"],
)
def test_the_last_member_steps_itself(member, wrap):
    """A step of a chain ends with its last member's own step: equal bit for bit, so a projection
    at the end projects the parameters exactly."""
    assert_equal(run(wrap(member))[0], run(member)[0])


@pytest.mark.parametrize(
    "front",
    [
        {"inner": eqopt.Trace(0.8) >> eqopt.Clip(0.7)},
        {"inner": eqopt.Chain(eqopt.Trace(0.8))},
        {"first": projections.NonNegative(), "second": projections.L2Ball(0.9)},
    ],
    ids=["chain of two", "chain of one", "projections"],
)
@pytest.mark.parametrize(
    "last", [eqopt.Scale(-0.1), projections.L2Ball(0.9)], ids=["Scale", "L2Ball"]
)
def test_named_members_step(front, last):
    """A named chain is one member, and named projections are two: a step goes through them as
    an update does."""
    chain = eqopt.Chain(**front, last=last)
    p = params()
    state = chain.init(p)
    updates, wanted_state = chain(grads(0), state, p)
    new, new_state = chain.step(grads(0), state, p)
    assert_close(new, eqopt.apply_updates(p, updates))
    assert_close(new_state, wanted_state)


def test_call_and_step_agree():
    """Without a projection a step is the update, applied."""
    chain = A >> B >> C
    p = params()
    state = chain.init(p)
    updates, state_after_call = chain(grads(0), state, p)
    new, state_after_step = chain.step(grads(0), state, p)
    assert_close(new, eqopt.apply_updates(p, updates))
    assert_close(state_after_step, state_after_call)


def test_update_is_call():
    """optax's name for the same method."""
    chain = A >> B >> C
    p = params()
    state = chain.init(p)
    assert_equal(chain.update(grads(0), state, p), chain(grads(0), state, p))


def test_one_count_for_all_members():
    """The state has one clock; members' states are bare."""
    chain = eqopt.ScaleByAdam() >> eqopt.Trace(0.8) >> eqopt.Scale(-0.1)
    _, state, _ = run(chain, steps=3)
    assert int(state.count) == 3
    assert [type(part) for part in state.inner] == [
        eqopt.ScaleByAdamState,
        eqopt.TraceState,
        type(None),
    ]


def test_eval_params_are_the_params():
    """Where nothing is averaged: of a transform, a recipe, and a chain with optax in it."""
    for optim in (A, eqopt.AdamW(0.1), A >> B >> C, A >> optax.adam(0.1)):
        p, state, _ = run(optim, steps=1)
        assert_equal(optim.eval_params(state, p), p)


def test_stateless():
    """A plain function of updates and parameters as a member, or `None` without parameters."""

    def rule(updates, params):
        if params is None:
            return updates
        return jax.tree.map(lambda u, p: u.astype(jnp.float32) + p, updates, params)

    chain = eqopt.Stateless(rule) >> eqopt.Scale(2.0)
    u = jnp.asarray([1.0, 2.0], jnp.bfloat16)
    state = chain.init(u)
    with_params, _ = chain(u, state, u)
    without, _ = chain(u, state)
    assert with_params.dtype == without.dtype == jnp.bfloat16
    np.testing.assert_array_equal(with_params.astype(float), [4.0, 8.0])
    np.testing.assert_array_equal(without.astype(float), [2.0, 4.0])
