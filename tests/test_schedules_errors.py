"""Schedules that are refused, each with an error that says why."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt
from eqopt.schedules import (
    SGDR,
    WSD,
    Constant,
    CosineDecay,
    ExponentialDecay,
    FromFunction,
    Join,
    Linear,
    LinearOneCycle,
    PiecewiseConstant,
    PiecewiseInterpolate,
    Polynomial,
    Product,
    Sum,
    WarmupConstant,
    WarmupCosineDecay,
    WarmupExponentialDecay,
)

LINE = Linear(0.2, 1.0, steps=4)
RISING = FromFunction(lambda count: 10.0 + count)


def test_an_endless_schedule_comes_last():
    """The error says which one has no end."""
    for endless in (Constant(1.0), RISING, LINE + Constant(1.0), LINE >> RISING):
        with pytest.raises(ValueError, match=r"`a >> b` must have an end to `a`.*none"):
            endless >> LINE


@pytest.mark.parametrize(
    "boundaries, message",
    [
        ([], "one boundary fewer.*got 0 boundaries for 2 schedules"),
        ([1, 2], "one boundary fewer.*got 2 boundaries for 2 schedules"),
        ([0], r"`Join\(boundaries=...\)\[0\]` must be positive and finite; got 0"),
        ([-1], r"must be positive and finite; got -1"),
        ([float("nan")], r"must be positive and finite; got nan"),
    ],
)
def test_boundaries_of_join(boundaries, message):
    """Their number and their range."""
    with pytest.raises(ValueError, match=message):
        Join([LINE, RISING], boundaries)


@pytest.mark.parametrize("boundaries", [[3, 3], [3, 2], [2.5, 1]])
def test_boundaries_of_join_increase(boundaries):
    """In strict order."""
    with pytest.raises(ValueError, match="must increase"):
        Join([LINE, RISING, LINE], boundaries)


def test_join_of_nothing():
    """There is no value without a schedule."""
    with pytest.raises(ValueError, match="must have at least one schedule"):
        Join([], [])


def bare(count):
    """A bare function."""
    return 0.1


@pytest.mark.parametrize(
    "build",
    [
        lambda: eqopt.Adam(bare),
        lambda: eqopt.SGD(0.1, bare),
        lambda: eqopt.ClipByGlobalNorm(bare),
        lambda: LINE + bare,
        lambda: bare * LINE,
        lambda: LINE >> bare,
        lambda: bare >> LINE,
        lambda: Join([LINE, bare], [2]),
    ],
    ids=["Adam", "SGD", "ClipByGlobalNorm", "+", "*", ">> right", ">> left", "Join"],
)
def test_bare_functions(build):
    """Where a schedule belongs a function raises, and the error names `FromFunction`."""
    with pytest.raises(TypeError, match="FromFunction"):
        build()


LENGTHS = {
    "Linear": lambda n: Linear(0.0, 1.0, n),
    "Polynomial": lambda n: Polynomial(0.0, 1.0, 2.0, n),
    "CosineDecay": lambda n: CosineDecay(1.0, n),
    "WarmupCosineDecay": lambda n: WarmupCosineDecay(0.0, 1.0, 2, n),
    "WSD": lambda n: WSD(0.0, 1.0, 0, n, 1),
    "LinearOneCycle": lambda n: LinearOneCycle(n, 1.0),
}


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("steps", [0, -1, 0.0, float("nan")])
def test_steps_are_positive(kind, steps):
    """The error names class, argument, rule and value."""
    with pytest.raises(ValueError, match=rf"`{kind}\(steps=...\)` must be positive"):
        LENGTHS[kind](steps)


def test_a_schedule_inside_a_schedule_is_combined_instead():
    """Numbers of schedules are numbers."""
    with pytest.raises(TypeError, match=r"`Linear\(init_value=...\)` must be a number"):
        Linear(LINE, 1.0, steps=2)


# What does not fit together, and what the error says.
MISFITS = {
    "warm-up": (
        lambda: WarmupCosineDecay(0.0, 1.0, 10, 10),
        r"`WarmupCosineDecay\(warmup_steps=...\)` must be below `steps`; got warmup_steps=10 and "
        r"steps=10",
    ),
    "warm-up of NumPy": (
        lambda: WarmupCosineDecay(0.0, 1.0, np.int64(12), np.int64(10)),
        r"got warmup_steps=12 and steps=10",
    ),
    "warm-up of arrays": (
        lambda: WSD(0.0, 1.0, jnp.asarray(12), 10, 1),
        r"`WSD\(warmup_steps=...\)` must be below `steps`; got warmup_steps=12 and steps=10",
    ),
    "negative warm-up": (
        lambda: WarmupConstant(0.0, 1.0, -1),
        r"`WarmupConstant\(warmup_steps=...\)` must be at least 0 and finite; got -1",
    ),
    "decay": (
        lambda: WSD(0.0, 1.0, 3, 6, 4),
        r"`WSD\(steps=...\)` must be at least .*; got steps=6, warmup_steps=3 and decay_steps=4",
    ),
    "cycle": (
        lambda: SGDR(1.0, 10, 3, length_factor=0.5, warmup_steps=4),
        r"`SGDR\(warmup_steps=...\)` must be below .*warmup_steps=4 .*=2.5",
    ),
    "no cycle": (lambda: SGDR(1.0, 10, 0), r"`SGDR\(cycles=...\)` must be .*at least 1; got 0"),
    "portions": (
        lambda: LinearOneCycle(10, 1.0, 0.9),
        r"`LinearOneCycle\(pct_start=...\)` must be at most `pct_final`; got pct_start=0.9 and "
        r"pct_final=0.85",
    ),
    "end of decay": (
        lambda: ExponentialDecay(1.0, 10, 0.5, end_value=2.0),
        r"`ExponentialDecay\(end_value=...\)` .*init_value=1.0, decay_rate=0.5, end_value=2.0",
    ),
    "end of growth": (
        lambda: WarmupExponentialDecay(0.0, 1.0, 2, 10, 1.5, end_value=0.5),
        r"`ExponentialDecay\(end_value=...\)` .*init_value=1.0, decay_rate=1.5, end_value=0.5",
    ),
    "values": (
        lambda: PiecewiseConstant([1.0, 2.0], [1, 2]),
        r"`PiecewiseConstant\(boundaries=...\)` .*got 2 boundaries for 2 values",
    ),
    "one value": (lambda: PiecewiseInterpolate([1.0], []), r"must have two values at least"),
    "order": (
        lambda: PiecewiseInterpolate([1.0, 2.0, 3.0], [4, 4]),
        r"`PiecewiseInterpolate\(boundaries=...\)` must increase; got \[4, 4\]",
    ),
    "not a number": (
        lambda: PiecewiseConstant([1.0, float("nan")], [1]),
        r"`PiecewiseConstant\(values=...\)\[1\]` must be a number, not NaN; got nan",
    ),
}


@pytest.mark.parametrize("build, message", MISFITS.values(), ids=MISFITS.keys())
def test_misfits(build, message):
    """Numbers that don't go together are named, with their fields."""
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("values", [1.0, jnp.ones(()), jnp.ones((2, 2)), {1: 0.5}, "12"])
def test_values_are_a_sequence(values):
    """One number, a matrix or optax's dict of factors is no sequence of values."""
    with pytest.raises(TypeError, match=r"`PiecewiseConstant\(values=...\)` must be a sequence"):
        PiecewiseConstant(values, [1])


def test_unknown_words():
    """By the class, or by the type checker before it."""
    with pytest.raises((TypeError, ValueError), match="'cubic'"):
        PiecewiseInterpolate([1.0, 2.0], [1], "cubic")
    with pytest.raises((TypeError, ValueError), match="'square'"):
        WSD(0.0, 1.0, 3, 9, 4, shape="square")


@pytest.mark.parametrize("kind", [Sum, Product])
def test_terms(kind):
    """Schedules and numbers, at least one of them a schedule."""
    line = Linear(0.0, 1.0, 2)
    with pytest.raises(ValueError, match=rf"{kind.__name__}\(...\)` must be given at least one"):
        kind(1.0, 2.0)
    with pytest.raises(TypeError, match=rf"{kind.__name__}\(...\)` must be a number.*got 'a'"):
        kind(line, "a")
    edited = eqx.tree_at(
        lambda s: s.terms if kind is Sum else s.factors, kind(line, 3.0), (2.0, 3.0)
    )
    assert edited(0) == (5 if kind is Sum else 6) and edited.steps == 0
