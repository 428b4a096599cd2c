"""The contract grad: in float64, derivatives through updates agree with finite differences, and
are finite everywhere."""

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from jax.flatten_util import ravel_pytree

import eqopt

STEPS = 3
pytestmark = pytest.mark.usefixtures("x64")


def is_float(x):
    """A number with a derivative: a Python float or an array of floats."""
    return isinstance(x, float) or eqx.is_inexact_array(x)


def numbers_of(component, which=is_float):
    """Some numbers of a component as one vector, and the component as a function of it."""
    chosen, rest = eqx.partition(component, which)
    leaves, treedef = jax.tree.flatten(chosen)
    vector, unravel = ravel_pytree([jnp.asarray(x, float) for x in leaves])

    def build(vector):
        return eqx.combine(jax.tree.unflatten(treedef, unravel(vector)), rest)

    return jnp.asarray(vector, float), build


def roots_of(component):
    """Which of the numbers of a component are an `eps_root`."""
    chosen = jax.tree.leaves_with_path(eqx.filter(component, is_float))
    return np.array(["eps_root" in jax.tree_util.keystr(path) for path, _ in chosen], bool)


def noise(params, step):
    """Fixed numbers like the parameters."""
    return trees.grads(jax.tree.map(lambda x: jnp.zeros(x.shape), params), step)


def weighted(tree, weights):
    """One number that depends on every element of a tree."""
    return sum(jax.tree.leaves(jax.tree.map(lambda x, w: jnp.sum(x * w), tree, weights)))


def directions(size, numbers):
    """Some directions of `size` parameters, and each number in proportion to itself."""
    random = np.random.default_rng(7).standard_normal((3, size))
    rows = [np.concatenate([row, np.zeros(len(numbers))]) for row in random]
    rows += [np.concatenate([np.zeros(size), row]) for row in np.diag(numbers)]
    return jnp.array(rows)


def assert_slopes_agree(gradient, values, x, along, step=1e-6):
    """Derivatives along some directions agree with central differences; `values` takes many points
    at once."""
    points = jnp.concatenate([x + step * along, x - step * along])
    above, below = jnp.split(values(points), 2)
    np.testing.assert_allclose(
        along @ gradient(x), (above - below) / (2 * step), rtol=1e-6, atol=1e-8
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_transforms(name):
    """With respect to parameters and to each number, through three steps whose gradients depend
    on the parameters before; finite where gradients, or parameters too, are 0."""
    case = cases.TRANSFORMS[name]
    start, unravel = ravel_pytree(trees.small_params(jnp.float64))
    numbers, build = numbers_of(case.optim)

    added, weights = (
        trees.stack([noise(unravel(start), first + t) for t in range(STEPS)]) for first in (0, 50)
    )

    def loss(x, curvature, size):
        params, optim = unravel(x[: len(start)]), build(x[len(start) :])

        def body(carry, inputs):
            params, state = carry
            added, weights = inputs
            grads = jax.tree.map(lambda p, n: curvature * jnp.sin(p) + size * n, params, added)
            params, state = optim.step(grads, state, params, **case.extras(params, grads))
            return (params, state), weighted(params, weights)

        return jnp.sum(jax.lax.scan(body, (params, optim.init(params)), (added, weights))[1])

    gradient = trees.quick_jit(jax.grad(loss))
    values = trees.quick_jit(jax.vmap(loss, in_axes=(0, None, None)))
    x = jnp.concatenate([start, numbers])
    assert_slopes_agree(
        lambda x: gradient(x, 0.5, 0.8),
        lambda x: values(x, 0.5, 0.8),
        x,
        directions(len(start), numbers),
    )
    # An `eps_root` of 0, the default of many classes, leaves bare square roots.
    without = jnp.where(roots_of(case.optim), 0, numbers)
    for x in (jnp.concatenate([start, ns]) for ns in (numbers, without)):
        assert jnp.all(jnp.isfinite(gradient(x, 0.0, 0.0)))
        assert jnp.all(jnp.isfinite(gradient(x.at[: len(start)].set(0), 0.5, 0.0)))


@pytest.mark.parametrize("name", [n for n, case in cases.TRANSFORMS.items() if not case.smooth])
def test_piecewise_constant_rules(name):
    """The derivative of the updates with respect to the gradients of all steps is exactly 0."""
    case = cases.TRANSFORMS[name]
    params = trees.params(jnp.float64)

    def loss(all_grads):
        state = case.optim.init(params)
        total = 0.0
        for t, grads in enumerate(all_grads):
            updates, state = case.optim(grads, state, params, **case.extras(params, grads))
            total = total + weighted(updates, noise(params, 50 + t))
        return total

    slope = jax.grad(loss)([trees.grads(params, t) for t in range(STEPS)])
    trees.assert_equal(slope, jax.tree.map(jnp.zeros_like, slope))


@pytest.mark.parametrize(
    "name", [n for n, case in cases.SCHEDULES.items() if jax.tree.leaves(case.schedule)]
)
def test_schedules(name):
    """With respect to each number, whole ones too, at counts between the kinks; finite at whole
    counts, where there may be kinks."""
    numbers, build = numbers_of(cases.SCHEDULES[name].schedule, eqx.is_array_like)

    def loss(x, counts):
        return jnp.sum(build(x)(counts) * jnp.linspace(0.5, 1.5, len(counts)))

    counts = jnp.arange(8) + 0.4
    assert_slopes_agree(
        trees.quick_jit(lambda x: jax.grad(loss)(x, counts)),
        trees.quick_jit(lambda x: jax.vmap(loss, in_axes=(0, None))(x, counts)),
        numbers,
        jnp.diag(numbers),
    )
    whole = trees.quick_jit(jax.jacobian(lambda x: build(x)(jnp.arange(8))))(numbers)
    assert jnp.all(jnp.isfinite(whole))


@pytest.mark.parametrize("name", cases.PROJECTIONS)
def test_projections(name):
    """With respect to the tree, outside the set and near its middle, and to each number; finite
    at zero."""
    case = cases.PROJECTIONS[name]
    start, unravel = ravel_pytree(case.small(jnp.float64))
    numbers, build = numbers_of(case.projection)

    weights = noise(unravel(start), 50)

    def loss(x):
        return weighted(build(x[len(start) :])(unravel(x[: len(start)])), weights)

    gradient, values = trees.quick_jit(jax.grad(loss)), trees.quick_jit(jax.vmap(loss))
    for scale in (1.0, 0.05):
        x = jnp.concatenate([scale * start, numbers])
        assert_slopes_agree(gradient, values, x, directions(len(start), numbers))
    assert jnp.all(jnp.isfinite(gradient(x.at[: len(start)].set(0))))


def test_case_C3_derivative_by_the_learning_rate():
    """Two steps of SGD on `x**2 / 2` from 1: `x = (1 - rate)**2`, with slope `-2 (1 - rate)`."""

    @eqx.filter_grad
    def slope(optim):
        x = jnp.ones(())
        state = optim.init(x)
        for _ in range(2):
            x, state = optim.step(x, state, x)
        return x

    slope = slope(eqopt.dynamic(eqopt.SGD(0.1)))
    np.testing.assert_allclose(slope.learning_rate, -1.8, rtol=1e-12)
