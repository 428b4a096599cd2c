"""Edges that users step over: odd numbers, modes of JAX, and inputs that are almost right."""

from collections import OrderedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import eqopt
from eqopt import projections, schedules, select

PARAMS = {"w": jnp.array([1.0, 2.0])}
GRADS = {"w": jnp.array([1.0, -1.0])}


def updated(optim, grads=GRADS, params=PARAMS):
    """The first updates."""
    return optim(grads, optim.init(params), params)[0]


@pytest.mark.parametrize("rate", [np.uint8(1), np.int8(1), jnp.uint32(1), 1])
@pytest.mark.parametrize("wrap", [lambda x: x, eqopt.dynamic], ids=["as it is", "dynamic"])
def test_integer_learning_rates_have_a_negative(rate, wrap):
    """An unsigned 1 is 1.0: its negative is -1, not 255."""
    np.testing.assert_array_equal(updated(wrap(eqopt.SGD(rate)))["w"], [-1.0, 1.0])


@pytest.mark.parametrize(
    "optim",
    [
        eqopt.Adam(0.1),
        eqopt.SGD(schedules.Linear(1, 0, steps=10), 0.9),
        eqopt.ClipByGlobalNorm(1.0) >> eqopt.SGD(0.1),
        eqopt.SGD(0.1) >> projections.L2Ball(1.0),
        eqopt.ScaleByFactoredRMS(step_offset=1),
        eqopt.ScaleByLion(),
    ],
    ids=lambda optim: type(optim).__name__,
)
def test_without_compiling(optim):
    """`jax.disable_jit`, JAX's mode for debugging, gives the same numbers."""
    wanted, _ = optim.step(GRADS, optim.init(PARAMS), PARAMS)
    with jax.disable_jit():
        found, _ = optim.step(GRADS, optim.init(PARAMS), PARAMS)
    np.testing.assert_allclose(found["w"], wanted["w"], rtol=1e-6)


@pytest.mark.parametrize(
    "bounded",
    [
        lambda tree: updated(eqopt.ClipByGlobalNorm(1.0), tree, tree),
        projections.L2Ball(1.0),
    ],
    ids=["ClipByGlobalNorm", "L2Ball"],
)
def test_a_norm_of_nan_bounds_nothing(bounded):
    """With one NaN no element has a bounded norm to be scaled by: all are NaN."""
    found = bounded({"a": jnp.array([jnp.nan]), "b": jnp.array([1e6])})
    assert np.isnan(found["a"]) and np.isnan(found["b"])


@pytest.mark.parametrize(
    "optim, where",
    [
        (eqopt.SGD(schedules.Linear(1, 0, steps=10)), lambda o: o.learning_rate.init_value),
        (eqopt.SGD(schedules.Constant(1) * 2), lambda o: o.learning_rate.factors[1]),
        (eqopt.SGD(0.1) >> projections.L2Ball(1), lambda o: o[1].projection.radius),
    ],
    ids=["Linear", "Product", "L2Ball"],
)
def test_dynamic_makes_floats_of_values(optim, where):
    """A value written as an int is a float that `eqx.filter_grad` sees."""

    def loss(optim):
        return optim.step(GRADS, optim.init(PARAMS), PARAMS)[0]["w"].sum()

    slope = where(eqx.filter_grad(loss)(eqopt.dynamic(optim)))
    assert slope.dtype == jnp.float32


def test_dynamic_keeps_lengths():
    """Lengths stay ints: float32 does not hold all beyond 2^24."""
    join = schedules.Join([schedules.Linear(1, 0, steps=10), schedules.Constant(1)], [3])
    found = eqopt.dynamic(join)
    assert found.schedules[0].steps.dtype == found.boundaries[0].dtype == jnp.int32
    assert found.schedules[0].end_value.dtype == jnp.float32


def test_another_key_of_a_dict_is_found_every_time():
    """A wrong state is reported as one after a right one of the same shapes too."""
    optim, right, wrong = eqopt.Adam(0.1), {"a": jnp.ones(3)}, {"b": jnp.ones(3)}
    state = optim.init(right)
    optim(right, state, right)
    with pytest.raises(ValueError, match=r"`Adam`: `state` and the state .* `\[0\]\.mu\['a'\]`"):
        optim(wrong, state, wrong)


NO_UPDATES = {
    "int": jnp.array([1, 2]),
    "number": 1.0,
    "list": [1.0, 2.0],
}


@pytest.mark.parametrize("wrong", NO_UPDATES.values(), ids=NO_UPDATES.keys())
@pytest.mark.parametrize(
    "apply",
    [
        lambda updates: eqopt.SGD(0.1).step(updates, eqopt.SGD(0.1).init(PARAMS), PARAMS),
        lambda updates: eqopt.Adam(0.1)(updates, eqopt.Adam(0.1).init(PARAMS), PARAMS),
        lambda updates: eqopt.apply_updates(PARAMS, updates),
    ],
    ids=["step", "call", "apply_updates"],
)
def test_what_is_no_float_array_is_no_update(apply, wrong):
    """It is not dropped, which would train nothing."""
    with pytest.raises(TypeError, match=r"`updates` must be float arrays where .* `\['w'\]"):
        apply({"w": wrong})


@pytest.mark.parametrize("wrong", [-1.0, [1.0, -2.0]], ids=["number", "list"])
def test_projections_refuse_numbers(wrong):
    """A Python number would come back as it is."""
    with pytest.raises(TypeError, match="`NonNegative` must be given at least one array; got"):
        projections.NonNegative()(wrong)


def test_batched_operands_of_schedules():
    """A batch of factors belongs under `filter_vmap`."""
    line = schedules.Linear(0.0, 1.0, steps=4)
    batched = eqx.filter_vmap(lambda a: a * line)(jnp.array([1.0, 10.0]))
    with pytest.raises(ValueError, match=r"`Product\(factors=...\)` must be a scalar where"):
        batched(jnp.arange(2))


def test_schedules_are_finite():
    """Endless is `None`, not infinity."""
    with pytest.raises(ValueError, match=r"`Linear\(steps=...\)` must be positive and finite"):
        schedules.Linear(0.0, 1.0, float("inf"))


def test_numpy_boundaries_increase():
    """NumPy's numbers are looked at as Python's are."""
    phases = [schedules.Constant(1.0)] * 3
    with pytest.raises(ValueError, match=r"boundaries=...\)` must increase; got \[3, 2\]"):
        schedules.Join(phases, [np.int64(3), np.int64(2)])


def test_leaves_in_another_order():
    """Updates and parameters in different orders are not paired up wrongly by optax."""
    optim = eqopt.Chain(optax.add_decayed_weights(0.1))
    params = {"a": jnp.ones(1), "b": jnp.ones(1)}
    grads = OrderedDict([("b", jnp.ones(1)), ("a", jnp.ones(1))])
    with pytest.raises(ValueError, match="must list the same leaves in the same order"):
        optim(grads, optim.init(params), params)


@pytest.mark.parametrize("eps", [0.0, 1e-40])
def test_eps_of_zero(eps):
    """Where nothing has moved yet there is no direction: 0, not NaN."""
    zero = {"w": jnp.zeros(2)}
    np.testing.assert_array_equal(updated(eqopt.Adam(0.1, eps=eps), zero)["w"], np.zeros(2))


@pytest.mark.parametrize(
    "value", [jnp.ones(3), jnp.ones(1), 1j, None, "a", True], ids=lambda x: str(x).strip("[]")
)
def test_a_loss_is_a_real_scalar(value):
    """The losses of single examples would change the shapes of updates."""
    optim = eqopt.ScaleByPolyak()
    with pytest.raises(TypeError, match="`ScaleByPolyak`: `value` must be a real scalar; got"):
        optim(GRADS, optim.init(PARAMS), PARAMS, value=value)


def test_factored_moments_have_derivatives_at_zero():
    """In float32 too, where epsilon squared is 0: the first update at 0 has the slope
    1 / sqrt(epsilon)."""
    optim = eqopt.ScaleByFactoredRMS(min_dim_size_to_factor=2)
    slope = jax.grad(lambda g: updated(optim, g, g).sum())(jnp.zeros((2, 3)))
    np.testing.assert_allclose(slope, np.full((2, 3), 1e15), rtol=1e-5)


def test_gains_are_no_matrix():
    """The gains of a weight normalisation are a vector in the form of a matrix."""
    model = eqx.nn.WeightNorm(eqx.nn.Linear(3, 4, key=jax.random.key(0)))
    grads = jax.tree.map(jnp.ones_like, eqx.filter(model, eqx.is_inexact_array))
    centred = updated(eqopt.Centralize(), grads, model)
    np.testing.assert_array_equal(centred.g, grads.g)
    np.testing.assert_allclose(centred.layer.weight, np.zeros((4, 3)), atol=1e-7)
    assert select.Matrices()(model).layer.weight and not select.Matrices()(model).g


@pytest.mark.parametrize(
    "clip", [eqopt.per_example_global_norm_clip, eqopt.per_example_layer_norm_clip]
)
@pytest.mark.parametrize(
    "bound, error", [(-1.0, ValueError), (jnp.ones(2), TypeError), (True, TypeError)]
)
def test_bounds_of_single_examples(clip, bound, error):
    """A negative bound would turn the gradient round."""
    with pytest.raises(error, match=r"_norm_clip\(max_norm=...\)` must be"):
        clip(jnp.ones((2, 3)), bound)


def test_an_empty_batch_of_examples():
    """No examples: a sum of 0, by either norm."""
    for clip in (eqopt.per_example_global_norm_clip, eqopt.per_example_layer_norm_clip):
        total, clipped = clip(jnp.ones((0, 3)), 1.0)
        np.testing.assert_array_equal(total, np.zeros(3))
        assert int(clipped) == 0


@pytest.mark.parametrize(
    "build, message",
    [
        (
            lambda: eqopt.ScaleByFactoredRMS(min_dim_size_to_factor=True),
            r"min_dim_size_to_factor=...\)` must be an integer; got True",
        ),
        (lambda: eqopt.ApplyEvery(0.5), r"`ApplyEvery\(k=...\)` must be at least 1; got 0.5"),
        (
            lambda: eqopt.ScaleByRProp(0.1, min_step_size=1.0, max_step_size=0.5),
            "must be at most `max_step_size`; got 1.0 and 0.5",
        ),
        (lambda: eqopt.Monitor((1, 2)), r"`Monitor\(measures=...\)` must be a dict"),
        (
            lambda: eqopt.Monitor((("a", eqopt.global_norm), ("a", eqopt.global_norm))),
            r"`Monitor\(measures=...\)` must have distinct names",
        ),
        (
            lambda: eqopt.AddNoise(0.1, 0.5, jnp.zeros(3, jnp.uint32)),
            r"`AddNoise\(key=...\)` must be a random key",
        ),
    ],
)
def test_bad_arguments_of_primitives(build, message):
    """Errors at construction name class, argument, rule and value."""
    with pytest.raises((TypeError, ValueError), match=message):
        build()


def test_old_style_keys_of_either_size():
    """The number of words says which generator an old-style key is of."""
    for name in ("threefry2x32", "rbg"):
        data = jax.random.key_data(jax.random.key(0, impl=name))
        assert eqopt.AddNoise(0.1, 0.5, data).key.implementation == name
