"""Wrappers that average parameters, and that act at some updates only."""

import jax.numpy as jnp
import optax

import eqopt

from .kinds import Transform
from .primitives import halve, loss_like, waves


def but_every_second_of_three(count):
    """A predicate: true at the counts 0, 2, 3, 5, ..."""
    return count % 3 != 1


def where_low(count, **extras):
    """A predicate of the loss as well as the count."""
    return (count < 1) | (extras["value"] < 2)


def _adam():
    return eqopt.Adam(0.1, 0.8, 0.9, 1e-2, 1e-2)


def _adam_in_optax():
    return optax.adam(0.1, 0.8, 0.9, 1e-2, 1e-2)


def _halved_trace():
    """Adds its updates to the parameters as those that pass through are added, so that an eager
    step which passes them through has nothing left to compile."""
    return eqopt.Trace(0.8) >> eqopt.Stateless(halve)


def _halved_trace_in_optax():
    return optax.chain(optax.trace(0.8), optax.scale(0.5))


def _in_steps(predicate):
    """The predicate under the name that optax's keyword has."""
    return lambda step, **extras: jnp.asarray(predicate(step, **extras))


AVERAGING: dict[str, Transform] = {
    "Lookahead": Transform(eqopt.Lookahead(_adam(), 2, 0.4)),
    "Lookahead[reset]": Transform(eqopt.Lookahead(_adam(), 2, 0.4, reset_state=True)),
    "EMAParams": Transform(eqopt.EMAParams(_adam(), 0.8), _adam_in_optax, observes=True),
    "PolyakAverage": Transform(eqopt.PolyakAverage(_adam(), 1), _adam_in_optax, observes=True),
    "BestSoFar": Transform(eqopt.BestSoFar(_adam()), _adam_in_optax, extras=loss_like),
    "ConditionallyTransform": Transform(
        eqopt.ConditionallyTransform(_halved_trace(), but_every_second_of_three),
        lambda: optax.conditionally_transform(
            _halved_trace_in_optax(), _in_steps(but_every_second_of_three)
        ),
    ),
    "ConditionallyTransform[extras]": Transform(
        eqopt.ConditionallyTransform(_halved_trace(), where_low, forward_extras=True),
        lambda: optax.conditionally_transform(
            _halved_trace_in_optax(), _in_steps(where_low), forward_extra_args=True
        ),
        extras=waves,
    ),
    "ConditionallyMask": Transform(
        eqopt.ConditionallyMask(_adam(), but_every_second_of_three),
        lambda: optax.conditionally_mask(_adam_in_optax(), _in_steps(but_every_second_of_three)),
    ),
    "ConditionallyMask[extras]": Transform(
        eqopt.ConditionallyMask(_adam(), where_low, forward_extras=True),
        lambda: optax.conditionally_mask(
            _adam_in_optax(), _in_steps(where_low), forward_extra_args=True
        ),
        extras=waves,
    ),
    "Every": Transform(
        eqopt.Every(_adam(), 2),
        lambda: optax.conditionally_mask(
            _adam_in_optax(), _in_steps(lambda step, **_: step % 2 == 0)
        ),
    ),
}
