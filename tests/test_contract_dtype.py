"""Contract dtype: updates keep the gradients' dtypes, states and parameters their own, and what is
computed in half precision follows the hyperparameters as they were given."""

from functools import partial

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import eqopt

REAL = ["bfloat16", "float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]


def _structs(dtype):
    tree = trees.small_params()
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.dtype(dtype)), tree)


def _mixed(dtypes):
    return {dtype: _structs(dtype) for dtype in dtypes}


def _check_types(case, params, grads):
    """Two updates and a step, traced: nothing changes its type."""
    state = jax.eval_shape(case.optim.init, params)

    def update(grads, state, params):
        return case.optim(grads, state, params, **case.extras(params, grads))

    def step(grads, state, params):
        return case.optim.step(grads, state, params, **case.extras(params, grads))

    updates, after_one = jax.eval_shape(update, grads, state, params)
    _, after_two = jax.eval_shape(update, grads, after_one, params)
    new_params, after_step = jax.eval_shape(step, grads, state, params)
    trees.assert_same_type(updates, grads)
    trees.assert_same_type(new_params, params)
    for new in (after_one, after_two, after_step):
        trees.assert_same_type(new, state)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_dtypes_are_kept(name, x64):
    """In trees of one real dtype and in a mixed tree, update dtype is gradient dtype, and the
    dtypes of states and parameters don't change over the steps."""
    case = cases.TRANSFORMS[name]
    for dtype in REAL:
        params = _structs(dtype)
        _check_types(case, params, params)
    _check_types(case, _mixed(REAL), _mixed(REAL))


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_gradients_of_another_dtype(name, x64):
    """Gradients narrower or wider than the parameters: the updates are like the gradients."""
    case = cases.TRANSFORMS[name]
    for of_params, of_grads in [
        ("float32", "bfloat16"),
        ("bfloat16", "float32"),
        ("float16", "float32"),
        ("float32", "float64"),
        ("float64", "float32"),
    ]:
        _check_types(case, _structs(of_params), _structs(of_grads))


@pytest.mark.parametrize("name", [n for n, case in cases.TRANSFORMS.items() if case.complex])
def test_complex_dtypes_are_kept(name, x64):
    """Complex trees, and trees with complex and real leaves."""
    case = cases.TRANSFORMS[name]
    for dtype in COMPLEX:
        _check_types(case, _structs(dtype), _structs(dtype))
    mixed = _mixed([*COMPLEX, "bfloat16", "float32"])
    _check_types(case, mixed, mixed)


# ---- the numbers


@partial(jax.jit, static_argnums=0)
def _update(extras, optim, grads, state, params):
    return optim(grads, state, params, **extras(params, grads))


def _updates(optim, extras, params, all_grads):
    """The updates of a few steps at fixed parameters."""
    state, found = optim.init(params), []
    for grads in all_grads:
        updates, state = _update(extras, optim, grads, state, params)
        found.append(updates)
    return found


def _many(seed, dtype):
    """128 numbers that float16 and bfloat16 hold exactly, away from 0."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.15, 0.5, (8, 16)) * rng.choice([-1.0, 1.0], (8, 16))
    return jnp.asarray(jnp.asarray(x, jnp.bfloat16), dtype)


def _inputs(dtype):
    """Parameters and the gradients of three steps."""
    return {"w": _many(0, dtype)}, [{"w": _many(seed, dtype)} for seed in (1, 2, 3)]


def _half_ulp(x, dtype):
    """Half a unit in the last place of numbers rounded to `dtype`."""
    _, exponent = np.frexp(np.abs(x))
    return np.ldexp(1.0, exponent - 2 - jnp.finfo(dtype).nmant)


def _flat(updates):
    return np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(updates)])


def _rounded_one_by_one(optim, dtype):
    """The optimizer with one of its numbers rounded to `dtype`, for each that this changes."""
    numbers, treedef = jax.tree.flatten(optim)
    for i, number in enumerate(numbers):
        rounded = number.astype(dtype).astype(number.dtype)
        if rounded != number:
            yield jax.tree.unflatten(treedef, [*numbers[:i], rounded, *numbers[i + 1 :]])


def _check_numbers_in(name, dtype):
    case = cases.TRANSFORMS[name]
    optim = eqopt.dynamic(case.optim)

    def run(optim, dtype):
        return _flat(_updates(optim, case.extras, *_inputs(dtype)))

    exact, low = run(optim, jnp.float32), run(optim, dtype)
    params, grads = _inputs(jnp.float32)
    size = np.maximum(np.abs(exact), np.abs(_flat([params] * len(grads))))
    ulp = _half_ulp(np.full_like(size, size.max()) if case.coupled else size, dtype)
    np.testing.assert_array_less(np.abs(low - exact), 8 * ulp)
    error = (low - exact) / ulp
    for other in _rounded_one_by_one(optim, dtype):
        shift = (run(other, jnp.float32) - exact) / ulp
        if np.sum(shift**2) == 0:
            continue
        # How much of the shift there is in the error, by least squares, and how sure that is.
        share = np.sum(error * shift) / np.sum(shift**2)
        doubt = np.sqrt(np.mean((error - share * shift) ** 2) / np.sum(shift**2))
        assert share < 0.5 or doubt > 0.12


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_numbers_are_not_rounded_to_bfloat16(name):
    """The run in bfloat16 is the float32 run of the same numbers up to rounding, and its error
    does not look like that of a run with any one hyperparameter rounded to bfloat16."""
    _check_numbers_in(name, jnp.bfloat16)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_numbers_are_not_rounded_to_float16(name):
    """The same in float16."""
    _check_numbers_in(name, jnp.float16)


@pytest.mark.parametrize(
    "name", [n for n, case in cases.TRANSFORMS.items() if case.complex and not case.random]
)
def test_complex_numbers_on_the_real_line(name):
    """Complex parameters and gradients without an imaginary part give the real run."""
    case = cases.TRANSFORMS[name]
    optim = eqopt.dynamic(case.optim)
    real, found = (
        _updates(optim, case.extras, *_inputs(dtype)) for dtype in (jnp.float32, jnp.complex64)
    )
    for x in jax.tree.leaves(found):
        np.testing.assert_allclose(x.imag, 0, atol=1e-7)
    largest = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(real)) if case.coupled else 0
    found = jax.tree.map(jnp.real, found)
    trees.assert_close(found, real, rtol=2e-6, atol=max(1e-7, 2e-6 * largest))


# ---- schedules and projections


@pytest.mark.parametrize("name", cases.SCHEDULES)
def test_schedules_have_the_default_dtype(name):
    """A schedule's value is float32, whatever the count is, in its shape."""
    schedule = cases.SCHEDULES[name].schedule
    counts = (2, 2.0, np.int64(2), jnp.float16(2), jnp.arange(3), np.ones((2, 1)))
    for count in counts:
        value = jax.eval_shape(schedule, count)
        assert value.shape == np.shape(count)
        assert value.dtype == jnp.float32 and not value.weak_type
    assert schedule(2).dtype == jnp.float32 and not schedule(2).weak_type


@pytest.mark.parametrize("name", cases.SCHEDULES)
def test_schedules_have_float64_where_that_is_the_default(name, x64):
    """With 64 bits enabled the value is float64."""
    for count in (2, jnp.int32(2), jnp.arange(3)):
        value = jax.eval_shape(cases.SCHEDULES[name].schedule, count)
        assert value.dtype == jnp.float64


@pytest.mark.parametrize("name", cases.PROJECTIONS)
def test_projections_keep_dtypes(name, x64):
    """Each leaf of a projected tree has its own dtype; the result in half precision is the
    float32 result, rounded."""
    case = cases.PROJECTIONS[name]
    projection = case.projection
    for structs in (*map(_structs, REAL), _mixed(REAL)) if case.free else ():
        trees.assert_same_type(jax.eval_shape(projection, structs), structs)
    wide = jax.tree.map(lambda x: x.astype(jnp.float32), case.tree(jnp.float16))
    project = jax.jit(lambda tree: projection(tree))  # itself it may hold arrays, without a hash
    expected = project(wide)
    narrow = project(jax.tree.map(lambda x: x.astype(jnp.float16), wide))
    trees.assert_close(narrow, expected, rtol=2**-9, atol=2**-14)
