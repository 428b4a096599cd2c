"""Looking into optimizers and states: `find`, `replace`, `hyperparameters`, `dynamic`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt
from eqopt import schedules


def params():
    """A small tree."""
    return {"w": jnp.asarray([[0.5, -1.0]]), "b": jnp.asarray([0.3])}


def advanced(optim, steps):
    """The state after some steps with gradients 1."""
    p = params()
    state = optim.init(p)
    for _ in range(steps):
        p, state = optim.step(jax.tree.map(jnp.ones_like, p), state, p)
    return state


def test_find():
    """The one part of a type, wherever it is; the outermost too."""
    optim = eqopt.Clip(1.0) >> eqopt.AdamW(0.1) >> eqopt.Trace(0.9)
    state = optim.init(params())
    found = eqopt.find(state, eqopt.ScaleByAdamState)
    assert isinstance(found, eqopt.ScaleByAdamState)
    assert found.mu is state.inner[1][0].mu
    assert eqopt.find(state, eqopt.TraceState) is state.inner[2]
    assert eqopt.find(state, eqopt.State) is state


def test_find_without_one():
    """None, and two, are errors that name the type; two have `find_all`."""
    state = (eqopt.Trace(0.9) >> eqopt.Trace(0.8)).init(params())
    with pytest.raises(LookupError, match=r"ScaleByAdamState.*none"):
        eqopt.find(state, eqopt.ScaleByAdamState)
    with pytest.raises(LookupError, match=r"TraceState.*2; use `eqopt.find_all`"):
        eqopt.find(state, eqopt.TraceState)


def test_find_all():
    """All of them, in order."""
    state = (eqopt.Trace(0.9) >> eqopt.Adam(0.1) >> eqopt.Trace(0.8)).init(params())
    assert eqopt.find_all(state, eqopt.TraceState) == [state.inner[0], state.inner[2]]
    assert eqopt.find_all(state, eqopt.ScaleByAdamState) == [state.inner[1][0]]
    assert eqopt.find_all(state, dict) == [
        state.inner[0].trace,
        state.inner[1][0].mu,
        state.inner[1][0].nu,
        state.inner[2].trace,
    ]
    assert eqopt.find_all(state, eqx.nn.Linear) == []


def test_tree_at_through_find():
    """A state is edited with `eqx.tree_at`, and the next update uses what was put in."""
    optim = eqopt.Clip(5.0) >> eqopt.Trace(0.5)
    p = params()
    trace = jax.tree.map(lambda x: jnp.full_like(x, 2.0), p)
    state = eqx.tree_at(lambda s: eqopt.find(s, eqopt.TraceState).trace, optim.init(p), trace)
    updates, _ = optim(jax.tree.map(jnp.ones_like, p), state)
    np.testing.assert_array_equal(updates["w"], [[2.0, 2.0]])


def test_replace():
    """New values of some fields; the others, and the count, stay."""
    optim = eqopt.Adam(0.1)
    state = advanced(optim, 2)
    zeros = jax.tree.map(jnp.zeros_like, params())
    new = eqopt.replace(state, eqopt.ScaleByAdamState, mu=zeros)
    found, old = (eqopt.find(s, eqopt.ScaleByAdamState) for s in (new, state))
    jax.tree.map(np.testing.assert_array_equal, found.mu, zeros)
    jax.tree.map(np.testing.assert_array_equal, found.nu, old.nu)
    assert int(new.count) == 2
    both = eqopt.replace(state, eqopt.ScaleByAdamState, mu=zeros, nu=zeros)
    jax.tree.map(np.testing.assert_array_equal, eqopt.find(both, eqopt.ScaleByAdamState).nu, zeros)
    assert jax.tree.structure(new) == jax.tree.structure(state)


def test_replace_the_count():
    """The clock may be set: a schedule goes on from there."""
    optim = eqopt.SGD(schedules.Linear(0.0, 1.0, steps=10))
    state = eqopt.replace(optim.init(params()), eqopt.State, count=jnp.asarray(7, jnp.int32))
    np.testing.assert_allclose(
        eqopt.hyperparameters(optim, state)["sgd.learning_rate"], 0.7, rtol=1e-6
    )


@pytest.mark.parametrize("number", [7, np.int32(7), np.asarray(7, np.int32)])
def test_replace_by_a_number(number):
    """What is accepted as a value keeps the state usable, with the types that it had."""
    optim = eqopt.SGD(schedules.Linear(0.0, 1.0, steps=10))
    p = params()
    state = optim.init(p)
    try:
        new = eqopt.replace(state, eqopt.State, count=number)
    except ValueError:
        return
    updates, after = optim(jax.tree.map(jnp.ones_like, p), new, p)
    np.testing.assert_allclose(updates["b"], [-0.7], rtol=1e-6)
    assert (int(after.count), after.count.dtype) == (8, jnp.int32)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"velocity": 1.0}, r"`replace\(velocity=...\)` must be a field of `TraceState`"),
        ({"trace": {"w": jnp.zeros((1, 2))}}, r"has a leaf at `\['b'\]`"),
        (
            {"trace": {"w": jnp.zeros((2, 2)), "b": jnp.zeros(1)}},
            r"at `\['w'\]` it is f(loat)?32\[2,2\], the field f(loat)?32\[1,2\]",
        ),
        (
            {"trace": {"w": jnp.zeros((1, 2), jnp.float16), "b": jnp.zeros(1)}},
            r"at `\['w'\]` it is f(loat)?16\[1,2\]",
        ),
    ],
    ids=["field", "structure", "shape", "dtype"],
)
def test_replace_errors(fields, message):
    """A value that is not like the old one is refused, with the path of the first difference."""
    state = eqopt.Trace(0.9).init(params())
    with pytest.raises(ValueError, match=message):
        eqopt.replace(state, eqopt.TraceState, **fields)


def test_replace_without_a_part():
    """The error of `find`."""
    with pytest.raises(LookupError, match="TraceState"):
        eqopt.replace(eqopt.Adam(0.1).init(params()), eqopt.TraceState, trace=None)


ADAM_FIELDS = ("learning_rate", "b1", "b2", "eps", "eps_root")


@pytest.mark.parametrize(
    "optim, keys",
    [
        (eqopt.Adam(0.1), [f"adam.{field}" for field in ADAM_FIELDS]),
        (eqopt.Chain(eqopt.Adam(0.1)), [f"adam.{field}" for field in ADAM_FIELDS]),
        (
            eqopt.ClipByGlobalNorm(1.0) >> eqopt.AdamW(0.1),
            ["clip_by_global_norm.max_norm"]
            + [f"adamw.{field}" for field in (*ADAM_FIELDS, "weight_decay")],
        ),
        (
            eqopt.Chain(clip=eqopt.ClipByGlobalNorm(1.0), opt=eqopt.NAdam(0.1)),
            ["clip.max_norm"] + [f"opt.{field}" for field in ADAM_FIELDS],
        ),
        (
            eqopt.Scale(2.0) >> eqopt.Trace(0.9) >> eqopt.Scale(3.0),
            ["scale[0].step_size", "trace.decay", "scale[1].step_size"],
        ),
        (
            eqopt.Chain(eqopt.Scale(2.0), scale=eqopt.Scale(3.0)),
            ["scale[0].step_size", "scale[1].step_size"],
        ),
        (
            eqopt.Chain(inner=eqopt.Trace(0.9) >> eqopt.Scale(2.0), outer=eqopt.Scale(3.0)),
            ["inner.trace.decay", "inner.scale.step_size", "outer.step_size"],
        ),
        (eqopt.SGD(0.1), ["sgd.learning_rate"]),
        (eqopt.SGD(0.1, 0.9), ["sgd.learning_rate", "sgd.momentum"]),
        (
            eqopt.Clip(0.5) >> eqopt.NormalizeByGlobalNorm() >> eqopt.ScaleByLearningRate(0.1),
            [
                "clip.max_delta",
                "normalize_by_global_norm.scale",
                "normalize_by_global_norm.eps",
                "scale_by_learning_rate.learning_rate",
            ],
        ),
        (eqopt.ScaleByAdam(), [f"scale_by_adam.{field}" for field in ADAM_FIELDS[1:]]),
        (eqopt.Identity(), []),
        (eqopt.Chain(), []),
    ],
)
def test_keys_of_hyperparameters(optim, keys):
    """Given names, else optax's; repeated ones are numbered; every number is there, in order."""
    assert list(eqopt.hyperparameters(optim, optim.init(params()))) == keys


def test_values_of_hyperparameters():
    """Numbers as they were given, schedules at the count of the next update."""
    rate = schedules.Linear(1.0, 0.0, steps=4)
    optim = eqopt.Chain(
        clip=eqopt.ClipByGlobalNorm(schedules.Linear(2.0, 3.0, steps=2)),
        adam=eqopt.AdamW(rate, weight_decay=2 * rate),
    )
    for steps, (norm, value) in enumerate([(2.0, 1.0), (2.5, 0.75), (3.0, 0.5)]):
        values = eqopt.hyperparameters(optim, advanced(optim, steps))
        np.testing.assert_allclose(values["clip.max_norm"], norm, rtol=1e-6)
        np.testing.assert_allclose(values["adam.learning_rate"], value, rtol=1e-6)
        np.testing.assert_allclose(values["adam.weight_decay"], 2 * value, rtol=1e-6)
        assert values["adam.b1"] == 0.9


@pytest.mark.parametrize("dynamic", [True, False])
def test_hyperparameters_under_jit(dynamic):
    """Traceable, with the same values."""
    optim = eqopt.Clip(0.5) >> eqopt.Adam(schedules.Linear(1.0, 0.0, steps=4))
    optim = eqopt.dynamic(optim) if dynamic else optim
    state = advanced(optim, 1)
    wanted = eqopt.hyperparameters(optim, state)
    found = eqx.filter_jit(eqopt.hyperparameters)(optim, state)
    assert found.keys() == wanted.keys()  # JAX sorts the keys
    for key in wanted:
        np.testing.assert_allclose(found[key], wanted[key], rtol=1e-6)


def test_hyperparameters_of_another_state():
    """The parameters are no state."""
    with pytest.raises(TypeError, match="`Adam`: `state` must be what its `init` returned"):
        eqopt.hyperparameters(eqopt.Adam(0.1), params())


def test_tree_at_on_hyperparameters():
    """In a recipe, in a chain by position and by name, and inside a schedule."""
    optim = eqopt.Chain(
        eqopt.Clip(0.5), adam=eqopt.Adam(schedules.Linear(1.0, 0.0, steps=4), b1=0.8)
    )
    optim = eqx.tree_at(lambda o: o[0].max_delta, optim, 0.25)
    optim = eqx.tree_at(lambda o: o["adam"].b1, optim, 0.5)
    optim = eqx.tree_at(lambda o: o["adam"].learning_rate.init_value, optim, 3.0)
    values = eqopt.hyperparameters(optim, optim.init(params()))
    assert (values["clip.max_delta"], values["adam.b1"]) == (0.25, 0.5)
    assert float(values["adam.learning_rate"]) == 3.0
    optim = eqx.tree_at(lambda o: o["adam"].learning_rate, optim, 0.1)
    assert optim["adam"] == eqopt.Adam(0.1, 0.5)


def test_number_and_schedule_have_one_state():
    """A number replaced by a schedule keeps the structure of the state."""
    number = eqopt.AdamW(0.1)
    fields = ("learning_rate", "b1", "b2", "eps", "eps_root", "weight_decay")
    scheduled = eqx.tree_at(
        lambda o: [getattr(o, field) for field in fields],
        number,
        [schedules.Constant(0.1)] * len(fields),
    )
    states = [optim.init(params()) for optim in (number, scheduled)]
    assert jax.tree.structure(states[0]) == jax.tree.structure(states[1])


MIXED = (
    eqopt.ClipByGlobalNorm(1.0)
    >> eqopt.Trace(0.5)
    >> eqopt.AdamW(
        schedules.Linear(0.1, 0.2, steps=4) + schedules.CosineDecay(0.1, steps=4),
        eps_root=0.1,
        weight_decay=0.1,
    )
)


def test_dynamic_makes_arrays_of_all_numbers():
    """Every number is a scalar array of a type that is not weak; the rest is unchanged."""
    optim = eqopt.dynamic(MIXED)
    leaves, numbers = jax.tree.leaves(optim), jax.tree.leaves(MIXED)
    assert len(leaves) == len(numbers)
    assert jax.tree.structure(optim) == jax.tree.structure(MIXED)
    for leaf, number in zip(leaves, numbers, strict=True):
        assert isinstance(leaf, jax.Array)
        assert not leaf.weak_type
        assert leaf == np.float32(number)


def test_dynamic_changes_no_number():
    """The same updates to float32's precision; the arrays print with their values."""
    p = params()
    g = jax.tree.map(jnp.ones_like, p)
    plain, dynamic = (optim(g, optim.init(p), p)[0] for optim in (MIXED, eqopt.dynamic(MIXED)))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), plain, dynamic)
    assert repr(eqopt.dynamic(eqopt.SGD(0.5))) == "SGD(learning_rate=Array(0.5))"


def test_dynamic_keeps_what_is_static():
    """Flags, names, dtypes and functions are no numbers."""
    optim = eqopt.dynamic(
        eqopt.Chain(
            trace=eqopt.Trace(0.9, nesterov=True, accumulator_dtype=jnp.float32),
            scale=eqopt.Scale(schedules.FromFunction(jnp.cos)),
        )
    )
    assert optim.names == ("trace", "scale")
    assert optim["trace"].nesterov is True
    assert optim["trace"].accumulator_dtype == jnp.float32
    assert optim["scale"].step_size.fn is jnp.cos


def traces_over(optims):
    """How often a compiled step is traced over several optimizers."""
    traces = []

    @eqx.filter_jit
    def step(optim, g, state, p):
        traces.append(None)
        return optim.step(g, state, p)

    p = params()
    for optim in optims:
        step(optim, jax.tree.map(jnp.ones_like, p), optim.init(p), p)
    return len(traces)


def test_new_values_of_dynamic_numbers_do_not_retrace():
    """All numbers of an optimizer and of the schedules inside it change; one trace is enough."""

    def build(x):
        return eqopt.dynamic(
            eqopt.ClipByGlobalNorm(1.0 + x)
            >> eqopt.AdamW(
                schedules.Linear(x, 0.2 + x, steps=4 + int(10 * x)), 0.5 + x, eps=x, weight_decay=x
            )
        )

    assert traces_over([build(x) for x in (0.1, 0.2, 0.3)]) == 1


def test_dynamic_numbers_however_they_were_written():
    """A Python float, an int, an array and a NumPy number give optimizers of one type."""
    rates = (0.5, 1, jnp.asarray(0.25), np.float32(0.25), jnp.asarray(0.25, jnp.float32))
    assert traces_over([eqopt.dynamic(eqopt.Adam(rate)) for rate in rates]) == 1


def test_filter_grad_sees_every_number():
    """After `dynamic` the gradient has an entry for each float, finite and not zero."""
    p = params()
    g = jax.tree.map(jnp.ones_like, p)

    @eqx.filter_jit
    @eqx.filter_grad
    def slopes(optim):
        q, state = p, optim.init(p)
        for _ in range(3):
            q, state = optim.step(jax.tree.map(lambda x, y: x + y, g, q), state, q)
        return sum(jnp.sum(x) for x in jax.tree.leaves(q))

    optim = eqopt.dynamic(MIXED)
    found = slopes(optim)
    floats = [x for x in jax.tree.leaves(optim) if jnp.issubdtype(x.dtype, jnp.floating)]
    values = {
        jax.tree_util.keystr(path): float(x)
        for path, x in jax.tree_util.tree_flatten_with_path(found)[0]
    }
    assert len(values) == len(floats) == 12
    assert all(np.isfinite(x) for x in values.values())
    assert [path for path, x in values.items() if x == 0.0] == []


def test_filter_grad_sees_a_number_written_as_an_int():
    """A learning rate of 1 is a number like 1.0."""
    x = jnp.ones(2)

    def loss(optim):
        return jnp.sum(optim.step(x, optim.init(x), x)[0])

    slopes = [
        eqx.filter_grad(loss)(eqopt.dynamic(eqopt.SGD(rate))).learning_rate for rate in (1.0, 1)
    ]
    assert slopes[0] == slopes[1] == -2.0
