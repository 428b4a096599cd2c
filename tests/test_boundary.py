"""What the boundary of a transformation refuses, and what it must not keep or leak."""

import gc
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

import eqopt
from eqopt import schedules

PARAMS = {"w": jnp.array([1.0, -2.0]), "b": jnp.array([0.5])}
GRADS = {"w": jnp.array([0.1, 0.2]), "b": jnp.array([-1.0])}


@pytest.mark.parametrize(
    ("optim", "other"),
    [
        (eqopt.AdamW(0.1), eqopt.Adam(0.1)),
        (eqopt.Adam(0.1), eqopt.AdamW(0.1)),
        (eqopt.ClipByGlobalNorm(1.0) >> eqopt.SGD(0.1), eqopt.SGD(0.1)),
        (eqopt.Clip(1.0) >> eqopt.Scale(0.1), eqopt.Scale(0.1)),
        (eqopt.Scale(0.1), eqopt.SGD(0.1)),
    ],
)
def test_state_of_another_optimizer(optim, other):
    """It is refused also where it has the right leaves, at each try."""
    for _ in range(2):
        with pytest.raises(ValueError, match="`state` must be what its `init` returned"):
            optim.step(GRADS, other.init(PARAMS), PARAMS)


def test_static_parts_of_the_model_may_change():
    """A flag in the model is no part of the state."""
    layers = [eqx.nn.Linear(2, 2, key=jax.random.key(0)), eqx.nn.Dropout(0.5)]
    model = eqx.nn.Sequential(layers)
    optim = eqopt.AdamW(0.1)
    state = optim.init(model)
    evaluated = eqx.nn.inference_mode(model)
    grads = eqx.filter(evaluated, eqx.is_inexact_array)
    new, _ = optim.step(grads, state, evaluated)
    assert not jnp.array_equal(new[0].weight, model[0].weight)


def test_python_number_as_a_gradient():
    """It is named, not dropped."""
    optim = eqopt.SGD(0.1)
    with pytest.raises(TypeError, match=r"updates.*got 5.0 at `\['b'\]`"):
        optim.step({"w": GRADS["w"], "b": 5.0}, optim.init(PARAMS), PARAMS)


def test_missing_params_of_a_step():
    """A step needs the parameters even where the update does not."""
    optim = eqopt.SGD(0.1)
    with pytest.raises(TypeError, match=r"SGD.step\(params=...\)"):
        optim.step(GRADS, optim.init(PARAMS), None)


@pytest.mark.parametrize(
    "fn", [lambda u, p: jax.tree.map(lambda x: x[None], u), lambda u, p: u["w"]]
)
def test_results_of_plain_functions(fn):
    """A function that changes shapes or structure is refused by name."""
    optim = eqopt.Stateless(fn) >> eqopt.SGD(0.1)
    with pytest.raises(ValueError, match="`Stateless`"):
        optim.step(GRADS, optim.init(PARAMS), PARAMS)


def test_shapes_in_apply_updates():
    """Updates are never broadcast over the parameters, nor they over the updates."""
    with pytest.raises(ValueError, match=r"apply_updates.*\['w'\]"):
        eqopt.apply_updates(PARAMS, {"w": jnp.ones((3, 2)), "b": jnp.ones(1)})


def test_decay_that_is_one_in_float32(request):
    """It would never correct the bias; in float64 it is a rate like any other."""
    with pytest.raises(ValueError, match=r"Adam\(b2=...\).*float32"):
        eqopt.Adam(1e-3, b2=1 - 1e-9)
    request.getfixturevalue("x64")
    assert eqopt.Adam(1e-3, b2=1 - 1e-9).b2 == 1 - 1e-9


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.complex64, "foo"])
def test_dtypes_of_states(dtype):
    """Only real floating dtypes hold a moment."""
    with pytest.raises(ValueError, match=r"Adam\(mu_dtype=...\).*floating"):
        eqopt.Adam(0.1, mu_dtype=dtype)
    assert eqopt.Adam(0.1, mu_dtype="bfloat16") == eqopt.Adam(0.1, mu_dtype=jnp.bfloat16)


def test_bools_that_miss_a_leaf():
    """They are refused at `init`, by class and argument."""
    with pytest.raises(ValueError, match=r"AdamW\(decay_where=...\).*\['b'\]"):
        eqopt.AdamW(0.1, decay_where={"w": True}).init(PARAMS)


def test_keys_in_states_of_optax():
    """A typed key inside a state of optax's goes through."""
    optim = eqopt.FromOptax(optax.add_noise(0.1, 0.5, key=jax.random.key(0))) >> eqopt.SGD(0.1)
    params, _ = optim.step(GRADS, optim.init(PARAMS), PARAMS)
    assert jnp.all(jnp.isfinite(params["w"]))


@pytest.mark.parametrize("steps", [2, 2.0, jnp.asarray(2)])
def test_counts_stay_integers(steps):
    """A schedule after one of a whole length still sees an integer count."""
    table = jnp.arange(10.0)
    schedule = schedules.Linear(0.0, 1.0, steps=steps) >> schedules.FromFunction(lambda t: table[t])
    assert float(schedule(5)) == 3.0


def test_no_tracer_leaks():
    """The check of the state keeps nothing of the trace, nor of what optimizers close over."""

    def step(rate, grads, params):
        optim = eqopt.ClipByGlobalNorm(1.0) >> optax.sgd(rate) >> optax.adam(1e-3)
        return optim.step(grads, optim.init(params), params)[0]

    with jax.checking_leaks():
        params = jax.jit(step)(0.1, GRADS, PARAMS)
    assert jnp.all(jnp.isfinite(params["w"]))


def test_optimizers_are_not_kept_alive():
    """What a function in an optimizer closes over is freed with it."""

    class Captured:
        scale = 0.5

    captured = Captured()
    reference = weakref.ref(captured)
    optim = eqopt.Stateless(lambda u, p, held=captured: jax.tree.map(lambda x: held.scale * x, u))
    optim(GRADS, optim.init(PARAMS))
    del optim, captured
    gc.collect()
    assert reference() is None
