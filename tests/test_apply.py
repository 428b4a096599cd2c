"""Adding updates to parameters, and averaging parameters."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt


def test_apply_updates_adds():
    """Leaf by leaf."""
    params = {"a": jnp.asarray([1.0, 2.0]), "b": jnp.asarray(3.0)}
    result = eqopt.apply_updates(params, jax.tree.map(jnp.ones_like, params))
    np.testing.assert_array_equal(result["a"], [2.0, 3.0])
    assert float(result["b"]) == 4.0


@pytest.mark.parametrize(
    "param, update",
    [
        (jnp.bfloat16, jnp.float32),
        (jnp.float32, jnp.bfloat16),
        (jnp.float16, jnp.float32),
        (jnp.bfloat16, jnp.float16),
        (jnp.float32, jnp.float64),
        (jnp.float64, jnp.float32),
        (jnp.complex64, jnp.complex128),
    ],
)
def test_apply_updates_rounds_once(param, update, x64):
    """The exact sum, rounded once to the parameter's dtype."""
    p, u = jnp.asarray([256.0, 1.0, -3.0], param), jnp.asarray([1.00390625, 1e-3, 7.0], update)
    result = eqopt.apply_updates(p, u)
    assert result.dtype == param
    wide = np.complex128 if jnp.issubdtype(param, jnp.complexfloating) else np.float64
    exact = np.asarray(p).astype(wide) + np.asarray(u).astype(wide)
    np.testing.assert_array_equal(result, jnp.asarray(exact).astype(param))


def test_apply_updates_leaves_out_none():
    """What has no update stays as it is, the same array."""
    params = {"a": jnp.ones(2), "b": jnp.ones(3), "c": None}
    result = eqopt.apply_updates(params, {"a": jnp.ones(2), "b": None, "c": None})
    np.testing.assert_array_equal(result["a"], [2.0, 2.0])
    assert result["b"] is params["b"]
    assert result["c"] is None


def test_apply_updates_to_a_whole_model():
    """Functions, numbers and integer arrays stay as they are."""
    model = (eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0)), 0.5, jnp.arange(2))
    updates = jax.tree.map(jnp.ones_like, eqx.filter(model, eqx.is_inexact_array))
    result = eqopt.apply_updates(model, updates)
    assert jax.tree.structure(result) == jax.tree.structure(model)
    assert result[0].activation is model[0].activation
    assert result[1] == 0.5
    assert result[2] is model[2]
    np.testing.assert_array_equal(result[0].layers[0].bias, model[0].layers[0].bias + 1)


def test_apply_updates_names_a_stray_leaf():
    """An update without a parameter is an error that names its path."""
    with pytest.raises(ValueError, match=r"\['b'\]"):
        eqopt.apply_updates({"a": jnp.ones(2)}, {"a": jnp.ones(2), "b": jnp.ones(2)})


def test_incremental_update():
    """`step_size * new + (1 - step_size) * old`, in the dtypes of the new tree."""
    new = {"a": jnp.asarray([1.0, 2.0]), "b": jnp.asarray(4.0, jnp.bfloat16)}
    old = {"a": jnp.asarray([5.0, 6.0]), "b": jnp.asarray(8.0, jnp.float32)}
    result = eqopt.incremental_update(new, old, 0.25)
    np.testing.assert_allclose(result["a"], [4.0, 5.0], rtol=1e-6)
    assert result["b"].dtype == jnp.bfloat16
    assert float(result["b"]) == 7.0


@pytest.mark.parametrize("step_size", [0, 1, 0.0, 1.0])
def test_incremental_update_at_its_ends(step_size):
    """0 is the old tree, 1 the new one, exactly."""
    new, old = jnp.asarray([0.1, 3e8]), jnp.asarray([0.7, -1e-8])
    result = eqopt.incremental_update(new, old, step_size)
    np.testing.assert_array_equal(result, new if step_size else old)


def test_incremental_update_of_a_model():
    """What is no float array comes from `new`; the step size may be traced."""
    new, old = (eqx.nn.Linear(2, 2, key=jax.random.key(i)) for i in (0, 1))
    mix = eqx.filter_jit(eqopt.incremental_update)
    result = mix((new, 1, "new"), (old, 0, "old"), jnp.asarray(0.5))
    np.testing.assert_allclose(result[0].weight, (new.weight + old.weight) / 2, rtol=1e-6)
    assert result[1:] == (1, "new")


@pytest.mark.parametrize("traced", [False, True])
def test_periodic_update(traced):
    """The new tree where the count is a multiple of the period, so at 0 too."""
    new, old = {"a": jnp.ones(2)}, {"a": jnp.zeros(2)}
    update = eqx.filter_jit(eqopt.periodic_update) if traced else eqopt.periodic_update
    as_count = jnp.asarray if traced else int
    taken = [float(update(new, old, as_count(t), as_count(3))["a"][0]) for t in range(7)]
    assert taken == [1, 0, 0, 1, 0, 0, 1]


def test_periodic_update_hides_nothing():
    """A NaN on the side that is not taken does not leak."""
    nan, one = jnp.asarray(jnp.nan), jnp.asarray(1.0)
    assert float(eqopt.periodic_update(nan, one, 1, 2)) == 1.0
    assert float(eqopt.periodic_update(one, nan, 2, 2)) == 1.0
