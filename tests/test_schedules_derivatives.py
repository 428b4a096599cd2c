"""The derivatives of schedules, also where a length is 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

from eqopt.schedules import (
    SGDR,
    WSD,
    CosineDecay,
    CosineOneCycle,
    ExponentialDecay,
    FromFunction,
    InverseSqrt,
    Linear,
    LinearOneCycle,
    PiecewiseConstant,
    PiecewiseInterpolate,
    Polynomial,
    WarmupConstant,
    WarmupCosineDecay,
)

LINE = Linear(0.2, 1.0, steps=4)
COSINE = CosineDecay(1.0, steps=4, end_value=0.2, exponent=2.0)
RISING = FromFunction(lambda count: 10.0 + count)


def as_floats(schedule):
    """The schedule with every number, also a length, as a float64 array: leaves and structure."""
    leaves, treedef = jax.tree.flatten(schedule)
    return jnp.asarray([float(x) for x in leaves]), treedef


# What the contracts, which differentiate each kind, do not see.
DIFFERENTIATED = {
    "CosineDecay[root]": CosineDecay(1.0, steps=4, end_value=0.2, exponent=0.5),
    "CosineDecay[square]": COSINE,
    "Polynomial[root]": Polynomial(1.0, 0.2, power=0.5, steps=4),
    "no warm-up": WarmupCosineDecay(0.1, 1.0, 0, 9, 0.2),
    "growth": ExponentialDecay(1.0, 3, 1.5),
    "three phases": LINE >> CosineDecay(1.0, steps=3) >> Linear(0.0, 0.5, steps=2) >> RISING,
}
each_differentiated = pytest.mark.parametrize(
    "schedule", DIFFERENTIATED.values(), ids=DIFFERENTIATED.keys()
)


@each_differentiated
def test_derivatives_are_finite(schedule, x64):
    """With respect to each number, at every count, also at kinks and after the end."""
    numbers, treedef = as_floats(schedule)

    def value(numbers, count):
        return jax.tree.unflatten(treedef, list(numbers))(count)

    counts = jnp.arange(12)
    for jacobian in (jax.jacfwd, jax.jacrev):
        slopes = trees.quick_jit(jax.vmap(jacobian(value), in_axes=(None, 0)))(numbers, counts)
        assert np.all(np.isfinite(slopes)), np.argwhere(~np.isfinite(slopes))


@each_differentiated
def test_derivatives_by_finite_differences(schedule, x64):
    """Between kinks, which are at integers, derivatives are those of the values."""
    numbers, treedef = as_floats(schedule)
    counts = jnp.arange(12) + 0.5

    def evaluate(numbers):
        return jax.tree.unflatten(treedef, list(numbers))(counts)

    if not numbers.size:
        return
    steps = 1e-6 * jnp.eye(numbers.size)
    lanes = trees.quick_jit(jax.vmap(evaluate))
    wanted = (lanes(numbers + steps) - lanes(numbers - steps)) / 2e-6
    found = trees.quick_jit(jax.jacfwd(evaluate))(numbers)
    np.testing.assert_allclose(found, wanted.T, rtol=1e-7, atol=1e-8)


# Each from its lengths.
OF_LENGTHS = {
    "Linear": lambda n: Linear(0.2, 1.0, n),
    "Polynomial": lambda n: Polynomial(0.2, 1.0, 0.5, n),
    "CosineDecay": lambda n: CosineDecay(0.2, n, 1.0),
    "PiecewiseConstant": lambda n: PiecewiseConstant([0.2, 1.0], [n]),
    "PiecewiseInterpolate": lambda n: PiecewiseInterpolate([0.2, 0.5, 1.0], [n, 2 * n]),
    "WarmupCosineDecay": lambda n: WarmupCosineDecay(0.2, 0.5, n, 2 * n, 1.0),
    "LinearOneCycle": lambda n: LinearOneCycle(n, 25e4),
    "CosineOneCycle": lambda n: CosineOneCycle(n, 25e4),
    "SGDR": lambda n: SGDR(0.2, n, 2, end_value=1.0),
    "WSD": lambda n: WSD(0.2, 0.5, n, 2 * n, n, 1.0, "sqrt"),
    "WarmupConstant": lambda n: WarmupConstant(0.2, 1.0, n),
    "ExponentialDecay": lambda n: ExponentialDecay(2.0, n, 0.5, end_value=1.0),
    "InverseSqrt": lambda n: 1.0 + InverseSqrt(0.2, n),
}


@pytest.mark.parametrize("build", OF_LENGTHS.values(), ids=OF_LENGTHS.keys())
def test_a_traced_length_of_zero(build):
    """A length that is 0 when it is known: the end at once, and no NaN."""

    @trees.quick_jit
    def value_and_slope(n):
        return jax.value_and_grad(lambda n: build(n)(0))(n)

    value, slope = value_and_slope(0.0)
    np.testing.assert_allclose(value, 1.0, rtol=1e-6)
    assert np.isfinite(slope)
