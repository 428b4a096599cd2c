"""The contract alive: changing any number by a tenth changes some output of the class's case."""

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

STEPS = 6
# Far above rounding, far below what a tenth of a number that matters makes.
VISIBLE = 1e-5


def tenths(x):
    """1.1; for the elements of an array, which may matter up to a factor, growing up to 1.2."""
    return 1.1 + 0.1 * np.arange(np.size(x)).reshape(np.shape(x)) / np.size(x)


def changed(component):
    """The component with one lane for each number, in which that number alone is a tenth larger
    (a whole one larger by at least 1); lane 0 is the component itself."""
    leaves, treedef = jax.tree.flatten(component)
    lanes = [list(leaves)]
    for i, x in enumerate(leaves):
        more = x + max(1, round(abs(x) / 10)) if isinstance(x, int) else x * tenths(x)
        lanes.append([*leaves[:i], more, *leaves[i + 1 :]])
    columns = [jnp.asarray(column) for column in zip(*lanes, strict=True)]
    return jax.tree.unflatten(treedef, columns), len(leaves)


def assert_alive(fn, component):
    """`fn` of the component differs visibly in some element for each number."""
    lanes, count = changed(component)
    assert count
    out = trees.quick_jit(lambda lanes: eqx.filter_vmap(fn)(lanes))(lanes)
    differences = [jnp.abs(x[1:] - x[:1]).reshape(count, -1) for x in jax.tree.leaves(out)]
    largest = jnp.concatenate(differences, axis=1).max(axis=1)
    paths = [path for path, _ in jax.tree.leaves_with_path(component)]
    dead = [
        jax.tree_util.keystr(path)
        for path, x in zip(paths, largest, strict=True)
        if not x > VISIBLE
    ]
    assert dead == []


def with_numbers(table):
    """The names of the cases that have numbers."""
    return [name for name, case in table.items() if jax.tree.leaves(case[0])]


@pytest.mark.slow
@pytest.mark.parametrize("name", with_numbers(cases.TRANSFORMS))
def test_transforms(name):
    """Some parameter after one of a few steps, or one to evaluate with, changes; the state where
    the transform only observes."""
    case = cases.TRANSFORMS[name]
    start = trees.small_params()
    grads = trees.stack([trees.grads(start, t) for t in range(STEPS)])

    def outputs(optim):
        def body(carry, grads):
            params, state = carry
            params, state = optim.step(grads, state, params, **case.extras(params, grads))
            seen = state if case.observes else optim.eval_params(state, params)
            return (params, state), (params, seen)

        return jax.lax.scan(body, (start, optim.init(start)), grads)[1]

    assert_alive(outputs, case.optim)


@pytest.mark.parametrize("name", with_numbers(cases.SCHEDULES))
def test_schedules(name):
    """Some value of the first few counts changes."""
    assert_alive(lambda schedule: schedule(jnp.arange(8)), cases.SCHEDULES[name].schedule)


@pytest.mark.parametrize("name", with_numbers(cases.PROJECTIONS))
def test_projections(name):
    """The projection of the parameters changes."""
    case = cases.PROJECTIONS[name]
    assert_alive(lambda projection: projection(case.tree()), case.projection)
