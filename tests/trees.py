"""Small trees of parameters and gradients with fixed seeds, and comparisons of trees."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

# `jax.jit` for tests that are about values: compiles faster, to slower code.
quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def _noise(shape, dtype, seed):
    """Normal numbers moved away from 0 by 0.1, the same on every machine."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        x = x + 1j * rng.standard_normal(shape)
    return jnp.asarray(x + 0.1 * np.sign(x.real), dtype)


def params(dtype=jnp.float32):
    """A matrix, a vector and a scalar, in a nested tree."""
    return {
        "b": _noise((3,), dtype, (0, 1)),
        "layers": [{"w": _noise((4, 3), dtype, (0, 2))}],
        "s": _noise((), dtype, (0, 3)),
    }


def small_params(dtype=jnp.float32):
    """A matrix and a scalar, for what is expensive to compile."""
    return {key: x for key, x in params(dtype).items() if key != "b"}


def grads(params, step):
    """Gradients for `params` (a tree or a model) at a step: `None` where there is nothing to
    train. Signs change from step to step, and no two elements are equal."""
    leaves, treedef = jax.tree.flatten(eqx.filter(params, eqx.is_inexact_array))
    drawn = [_noise(x.shape, x.dtype, (1 + step, i)) for i, x in enumerate(leaves)]
    return jax.tree.unflatten(treedef, drawn)


def model():
    """A whole Equinox model, with functions and integers among its leaves and static fields."""
    return eqx.nn.MLP(2, 3, width_size=4, depth=1, key=jax.random.key(0))


def stack(trees):
    """Trees of one structure, stacked along a new leading axis."""
    return jax.tree.map(lambda *xs: jnp.stack(xs), *trees)


def flat(tree):
    """A tree as one vector."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def assert_close(a, b, rtol=1e-6, atol=1e-7):
    """Equal structure, and equal arrays up to `rtol * |b| + atol`; what is no array is equal."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
        name = jax.tree_util.keystr(path)
        if not eqx.is_array_like(x):
            assert x == y, name
            continue
        assert jnp.shape(x) == jnp.shape(y), name
        x, y = (_numbers(z) for z in (x, y))
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=name)


def _numbers(x):
    """An array that NumPy can compare: bfloat16 and float16 in float32, keys as their data."""
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    x = np.asarray(x)
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x


def assert_equal(a, b):
    """Equal structure and equal arrays; NaN equals NaN, 0 equals -0."""
    assert_close(a, b, rtol=0, atol=0)


def assert_same_type(a, b):
    """Equal structure, and equal shapes, dtypes and weak types of all leaves."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
        assert _type(x) == _type(y), jax.tree_util.keystr(path)


def _type(x):
    if not isinstance(x, jax.Array | jax.ShapeDtypeStruct | jax.core.Tracer):
        return type(x)
    return x.shape, x.dtype, x.weak_type


def step_both_ways(case, optim, grads, state, params):
    """One update of a case from `cases.TRANSFORMS`, as `__call__` and as `step` give it: the
    updates, the new parameters and the new state."""
    extras = case.extras(params, grads)
    updates, _ = optim(grads, state, params, **extras)
    params, state = optim.step(grads, state, params, **extras)
    return updates, params, state
