"""The schedules."""

import optax

from eqopt import schedules

from .kinds import Schedule


def inverse_decay(count):
    """A plain function for `FromFunction`."""
    return 0.3 / (1.0 + count)


_LINEAR = schedules.Linear(0.1, 0.5, steps=3)
_COSINE = schedules.CosineDecay(0.5, steps=4, end_value=0.1, exponent=1.5)

# optax's for the cycles of `SGDR`.
_CYCLES = [
    {"init_value": 0.1, "warmup_steps": 1, "end_value": 0.05, "peak_value": p, "decay_steps": n}
    for p, n in [(0.5, 4), (0.4, 6)]
]

SCHEDULES: dict[str, Schedule] = {
    "Constant": Schedule(schedules.Constant(0.3), lambda: optax.constant_schedule(0.3)),
    "Linear": Schedule(_LINEAR, lambda: optax.linear_schedule(0.1, 0.5, 3)),
    "CosineDecay": Schedule(
        _COSINE, lambda: optax.cosine_decay_schedule(0.5, 4, alpha=0.2, exponent=1.5)
    ),
    "Polynomial": Schedule(  # at powers that are not whole optax may be NaN from the end on
        schedules.Polynomial(0.5, 0.1, power=2.0, steps=5),
        lambda: optax.polynomial_schedule(0.5, 0.1, 2.0, 5),
    ),
    "ExponentialDecay": Schedule(
        schedules.ExponentialDecay(0.5, 2, 0.6, end_value=0.11),
        lambda: optax.exponential_decay(0.5, 2, 0.6, end_value=0.11),
    ),
    "ExponentialDecay[staircase]": Schedule(
        schedules.ExponentialDecay(0.1, 2, 1.5, staircase=True, end_value=0.3),
        lambda: optax.exponential_decay(0.1, 2, 1.5, staircase=True, end_value=0.3),
    ),
    "InverseSqrt": Schedule(schedules.InverseSqrt(0.5, 3)),
    "PiecewiseConstant": Schedule(
        schedules.PiecewiseConstant([0.5, 0.2, 0.3], [2, 5]),
        lambda: optax.piecewise_constant_schedule(0.5, {2: 0.4, 5: 1.5}),
    ),
    "PiecewiseInterpolate": Schedule(
        schedules.PiecewiseInterpolate([0.5, 0.2, 0.3], [2, 5]),
        lambda: optax.piecewise_interpolate_schedule("linear", 0.5, {2: 0.4, 5: 1.5}),
    ),
    "WarmupConstant": Schedule(
        schedules.WarmupConstant(0.1, 0.5, 3), lambda: optax.warmup_constant_schedule(0.1, 0.5, 3)
    ),
    "WarmupCosineDecay": Schedule(
        schedules.WarmupCosineDecay(0.1, 0.5, 2, 7, 0.2, 1.5),
        lambda: optax.warmup_cosine_decay_schedule(0.1, 0.5, 2, 7, 0.2, 1.5),
    ),
    "WarmupExponentialDecay": Schedule(
        schedules.WarmupExponentialDecay(0.1, 0.5, 2, 2, 0.6, end_value=0.21),
        lambda: optax.warmup_exponential_decay_schedule(0.1, 0.5, 2, 2, 0.6, end_value=0.21),
    ),
    "LinearOneCycle": Schedule(
        schedules.LinearOneCycle(8, 0.5, 0.25, 0.75, 5.0, 4.0),
        lambda: optax.linear_onecycle_schedule(8, 0.5, 0.25, 0.75, 5.0, 4.0),
    ),
    "CosineOneCycle": Schedule(
        schedules.CosineOneCycle(8, 0.5, 0.25, 5.0, 4.0),
        lambda: optax.cosine_onecycle_schedule(8, 0.5, 0.25, 5.0, 4.0),
    ),
    "SGDR": Schedule(
        schedules.SGDR(0.5, 4, 2, 1.5, 0.8, 1, 0.1, 0.05), lambda: optax.sgdr_schedule(_CYCLES)
    ),
    "WSD": Schedule(schedules.WSD(0.1, 0.5, 2, 7, 3, 0.2)),
    "WSD[sqrt]": Schedule(schedules.WSD(0.1, 0.5, 2, 7, 3, 0.2, "sqrt")),
    "FromFunction": Schedule(schedules.FromFunction(inverse_decay), lambda: inverse_decay),
    "Join": Schedule(
        schedules.Join([_LINEAR, _COSINE], [2]),
        lambda: optax.join_schedules(
            [
                optax.linear_schedule(0.1, 0.5, 3),
                optax.cosine_decay_schedule(0.5, 4, alpha=0.2, exponent=1.5),
            ],
            [2],
        ),
    ),
    "Sequential": Schedule(
        _LINEAR >> _COSINE,
        lambda: optax.join_schedules(
            [
                optax.linear_schedule(0.1, 0.5, 3),
                optax.cosine_decay_schedule(0.5, 4, alpha=0.2, exponent=1.5),
            ],
            [3],
        ),
    ),
    "Sum": Schedule(_LINEAR + 0.5, lambda: lambda t: optax.linear_schedule(0.1, 0.5, 3)(t) + 0.5),
    "Product": Schedule(
        2.0 * _LINEAR, lambda: lambda t: 2.0 * optax.linear_schedule(0.1, 0.5, 3)(t)
    ),
}
