"""Contract zero: zero gradients, in float16 too, give finite updates, exactly zero where the
formula says so."""

import dataclasses

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

from eqopt._core.transform import own_numbers, replace_fields

DTYPES = ("float16", "bfloat16", "float32")


def _params():
    """One tree with leaves of all dtypes."""
    return {dtype: trees.params(dtype)["layers"][0] for dtype in DTYPES}


def _zeros(tree):
    return jax.tree.map(jnp.zeros_like, tree)


def _with_defaults(optim):
    """The same transform with the defaults of its hyperparameters, such as `eps=1e-8`, which
    float16 rounds to 0."""
    defaults = {field.name: field.default for field in dataclasses.fields(optim)}
    numbers = {name: defaults[name] for name in own_numbers(optim)}
    given = {name: x for name, x in numbers.items() if x is not dataclasses.MISSING}
    return replace_fields(optim, given)


def _run(optim, extras, params, all_grads):
    """The updates at each step, and the states after it."""
    state, found = optim.init(params), []
    for grads in all_grads:
        updates, state = optim(grads, state, params, **extras(params, grads))
        found.append((updates, state))
    return found


def _assert_finite(tree):
    for path, x in jax.tree.leaves_with_path(tree):
        if jnp.issubdtype(x.dtype, jnp.inexact):
            assert np.all(np.isfinite(np.asarray(x, np.float64))), jax.tree_util.keystr(path)


@pytest.mark.parametrize("defaults", [False, True], ids=["case", "defaults"])
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_zero_gradients(name, defaults):
    """Three updates with zero gradients are finite; at parameters that are zero each element is
    exactly 0 where the case says so. A zero gradient after others is no trouble either, nor is a
    tree in which only some leaves are zero."""
    case = cases.TRANSFORMS[name]
    optim = _with_defaults(case.optim) if defaults else case.optim
    params = _params()
    zeros, ones = _zeros(params), trees.grads(params, 0)
    for updates, state in _run(optim, case.extras, zeros, [zeros] * 3):
        _assert_finite((updates, state))
        trees.assert_same_type(updates, params)
        if case.zero:
            trees.assert_equal(updates, zeros)
    some = {**zeros, "float32": ones["float32"]}
    _assert_finite(_run(optim, case.extras, params, [zeros, ones, zeros]))
    _assert_finite(_run(optim, case.extras, params, [ones, some, zeros]))


@pytest.mark.parametrize("name", [n for n, case in cases.TRANSFORMS.items() if case.zero])
def test_a_step_from_zero_stays_there(name):
    """Where zero gradients give zero updates, a step leaves parameters that are zero exactly
    where they are."""
    case = cases.TRANSFORMS[name]
    zeros = _zeros(_params())
    state = case.optim.init(zeros)
    new, _ = case.optim.step(zeros, state, zeros, **case.extras(zeros, zeros))
    trees.assert_equal(new, zeros)


@pytest.mark.parametrize("name", cases.PROJECTIONS)
def test_projections_of_zero(name):
    """The projection of a zero tree is finite and in the set, in float16 too."""
    case = cases.PROJECTIONS[name]
    for dtype in (jnp.float16, jnp.float32):
        projected = case.projection(_zeros(case.tree(dtype)))
        _assert_finite(projected)
    assert case.contains(jax.tree.map(lambda x: np.asarray(x, np.float64), projected))
