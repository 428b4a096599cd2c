"""Contract donation: parameters and state may be donated, because no two of their arrays, nor any
of the optimizer's own, share a buffer."""

import warnings
from collections import Counter

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import eqopt


class Keeper(eqopt.AbstractTransform):
    """A transform whose state is, as written, nothing but arrays of others."""

    start: eqopt.Params

    def _init(self, params):
        return {"here": params, "again": params, "own": self.start}

    def _update(self, updates, state, params, count, **extras):
        return updates, state


TRANSFORMS = {
    **{name: (case.optim, case.extras) for name, case in cases.TRANSFORMS.items()},
    "Keeper": (Keeper(jnp.arange(3.0)), lambda params, grads: {}),
    "Keeper in a chain": (
        Keeper(jnp.arange(3.0)) >> Keeper(jnp.arange(2.0)),
        lambda params, grads: {},
    ),
}


def _arrays(tree):
    return [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]


def _copy(tree):
    return jax.tree.map(lambda x: jnp.array(x) if isinstance(x, jax.Array) else x, tree)


def _buffer(x):
    x = jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    return x.unsafe_buffer_pointer()


def _assert_no_shared_buffer(*named):
    """No buffer is there twice among named trees."""
    found = [(_buffer(x), name) for name, tree in named for x in _arrays(tree) if x.size]
    times = Counter(buffer for buffer, _ in found)
    assert not [name for buffer, name in found if times[buffer] > 1]


@jax.jit
def _jitted_init(optim, params):
    return optim.init(params)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_init_shares_no_buffer(name):
    """The arrays of a new state, the parameters and the optimizer's own arrays are all in buffers
    of their own, whether `init` was called eagerly or inside `jax.jit`."""
    optim = eqopt.dynamic(TRANSFORMS[name][0])
    params = trees.params()
    for init in (type(optim).init, _jitted_init):
        state = init(optim, params)
        _assert_no_shared_buffer(("optim", optim), ("params", params), ("state", state))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_donated_steps(name):
    """Three jitted steps with parameters and state donated: each donated buffer is used, nothing
    is donated twice, the optimizer's own arrays survive, and the numbers are those of steps
    without donation."""
    optim, extras = TRANSFORMS[name]
    optim = eqopt.dynamic(optim)

    def step(optim, grads, state, params):
        return optim.step(grads, state, params, **extras(params, grads))

    params = trees.params()
    grads = [trees.grads(params, i) for i in range(3)]
    state = optim.init(params)
    expected_params, expected_state = _copy(params), _copy(state)
    for g in grads:
        expected_params, expected_state = step(optim, g, expected_state, expected_params)

    # A measurement is overwritten without being read: kept, or its buffer would not be passed on.
    donating = jax.jit(step, donate_argnums=(2, 3), keep_unused=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # JAX warns of buffers that it could not reuse
        for g in grads:
            old = _arrays((params, state))
            params, state = donating(optim, g, state, params)
            assert all(x.is_deleted() for x in old)
    assert not any(x.is_deleted() for x in _arrays((optim, grads)))
    trees.assert_close((params, state), (expected_params, expected_state), rtol=2e-5, atol=1e-6)


def test_what_the_check_of_buffers_finds():
    """An array that is there twice is found, and an equal one with a buffer of its own is not."""
    x = jnp.arange(3.0)
    _assert_no_shared_buffer(("a", x), ("b", jnp.array(x)))
    for pair in ([x, x], {"a": x, "b": x.addressable_data(0)}):
        with pytest.raises(AssertionError):
            _assert_no_shared_buffer(("pair", pair))


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_updates_leave_what_they_are_given(name):
    """An eager update and step delete and change nothing that they were given."""
    case = cases.TRANSFORMS[name]
    params = trees.params()
    grads, state = trees.grads(params, 0), case.optim.init(params)
    before = jax.tree.map(np.array, (grads, state, params))
    case.optim(grads, state, params, **case.extras(params, grads))
    case.optim.step(grads, state, params, **case.extras(params, grads))
    after = jax.tree.map(np.asarray, (grads, state, params))
    assert eqx.tree_equal(before, after)
