"""What the trajectory tests share: parameters and gradients, and the comparison with a reference.

A reference is plain NumPy that follows its paper's lines and imports nothing from eqopt: a function
of the step t = 1, 2, ..., the gradient g, the parameters p (flat vectors) and a dict that it
remembers things in, which returns what is added to the parameters. Numbers in the comments are
those of the paper's lines or equations.
"""

import jax.numpy as jnp
import numpy as np
from trees import flat, quick_jit

STEPS = 10
SIZE = 6  # a vector of 2 and a matrix of 2 x 2
IS_MATRIX = np.arange(SIZE) >= 2


def tree(flat):
    """The flat vector as a tree."""
    return {"b": jnp.asarray(flat[:2]), "w": jnp.asarray(flat[2:].reshape(2, 2))}


def problem(is_complex):
    """Parameters and gradients: signs change, the fifth gradient is 0, the eighth 1e3, and the
    first has an element that is 0."""
    rng = np.random.default_rng(0)
    params = rng.normal(size=SIZE)
    grads = rng.normal(size=(STEPS, SIZE))
    if is_complex:
        params = params + 1j * rng.normal(size=SIZE)
        grads = grads + 1j * rng.normal(size=(STEPS, SIZE))
    grads[0, 3] = 0.0
    grads[4] = 0.0
    grads[7] = 1e3 * np.sign(grads[7].real)
    return params, grads


def descent(rate, direction):
    """What a method adds to the parameters, from the direction that it takes."""
    return lambda t, g, p, memory: -rate(t) * direction(t, g, p, memory)


def constant(value):
    """The same at every step."""
    return lambda t: value


def linear(start, end, steps):
    """A line from `start` to `end`; the first step is at 0."""
    return lambda t: start + (end - start) * min((t - 1) / steps, 1)


def cosine(start, steps):
    """Loshchilov and Hutter 2017, equation 5, with 0 as the smallest rate."""
    return lambda t: start * (1 + np.cos(np.pi * min((t - 1) / steps, 1))) / 2


def gradient(t, g, p, memory):
    return g


def check_trajectory(optim, reference, is_complex):
    """Ten updates, and the parameters after each, agree with the paper to 1e-12."""
    wanted, grads = problem(is_complex)
    params, memory = tree(wanted), {}
    state = optim.init(params)

    def both(optim, g, state, params):
        return optim(g, state, params)[0], optim.step(g, state, params)

    both = quick_jit(both)
    for t, g in enumerate(grads, start=1):
        update = reference(t, g, wanted, memory)
        wanted = wanted + update
        updates, (params, state) = both(optim, tree(g), state, params)
        np.testing.assert_allclose(flat(updates), update, rtol=1e-12, atol=0, err_msg=f"step {t}")
        np.testing.assert_allclose(flat(params), wanted, rtol=1e-12, atol=0, err_msg=f"step {t}")
