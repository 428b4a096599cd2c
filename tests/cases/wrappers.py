"""Wrappers that skip and that gather, each with optax's where that is right."""

import jax
import jax.numpy as jnp
import optax

import eqopt

from .kinds import Transform
from .primitives import loss_like


def spoiled(updates, params):
    """The updates, or NaN where their sum is negative."""
    bad = sum(jnp.sum(jnp.real(x)) for x in jax.tree.leaves(updates)) < 0
    return jax.tree.map(lambda x: jnp.where(bad, jnp.nan, x), updates)


def is_small(updates, params, **extras):
    """A rule for `SkipIf`."""
    return eqopt.global_norm(updates) < 4


WRAPPERS: dict[str, Transform] = {
    "ApplyIfFinite": Transform(
        eqopt.Stateless(spoiled) >> eqopt.ApplyIfFinite(eqopt.ZeroNans() >> eqopt.SGD(0.1, 0.8), 1),
        lambda: optax.chain(
            optax.stateless(spoiled),
            optax.apply_if_finite(optax.chain(optax.zero_nans(), optax.sgd(0.1, 0.8)), 1),
        ),
    ),
    "SkipIf": Transform(eqopt.SkipIf(eqopt.SGD(0.1, 0.8), is_small)),
    "SkipNotFinite": Transform(eqopt.SkipNotFinite(eqopt.Adam(0.1, 0.8, 0.9, 1e-2, 1e-2))),
    "SkipLargeUpdates": Transform(eqopt.SkipLargeUpdates(eqopt.SGD(0.1, 0.8), 4.5)),
    "SkipLossSpikes": Transform(
        eqopt.SkipLossSpikes(eqopt.SGD(0.1, 0.8), 0.8, 0.6, 2),
        observes=True,
        extras=loss_like,
    ),
    "MultiSteps": Transform(eqopt.MultiSteps(eqopt.SGD(0.1, 0.8), 2)),
    "MultiSteps[sum]": Transform(eqopt.MultiSteps(eqopt.SGD(0.1, 0.8), 2, use_grad_mean=False)),
}
