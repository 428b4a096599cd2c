"""Chains, projections and optax's transformations as members, and the named optimizers."""

import optax

import eqopt
from eqopt import projections, schedules, select

from .in_optax import linear_in_full_precision
from .kinds import Transform

OPTIMIZERS: dict[str, Transform] = {
    "Chain": Transform(
        eqopt.Clip(0.7) >> eqopt.Trace(0.8) >> eqopt.Scale(-0.1),
        lambda: optax.chain(optax.clip(0.7), optax.trace(0.8), optax.scale(-0.1)),
        complex=False,
    ),
    "Project": Transform(eqopt.Project(projections.L2Ball(0.9))),
    "FromOptax": Transform(
        eqopt.FromOptax(
            optax.adam(0.1, eps=1e-3, eps_root=1e-3)
        ),  # optax's own eps are 0 or round to it
        lambda: optax.adam(0.1, eps=1e-3, eps_root=1e-3),
        pickles=False,
    ),
    "SGD": Transform(eqopt.SGD(0.1), lambda: optax.sgd(0.1)),
    "SGD[momentum]": Transform(eqopt.SGD(0.1, 0.8), lambda: optax.sgd(0.1, 0.8)),
    "SGD[nesterov]": Transform(
        eqopt.SGD(0.1, 0.8, nesterov=True), lambda: optax.sgd(0.1, 0.8, nesterov=True)
    ),
    "Adam": Transform(
        eqopt.Adam(0.1, 0.8, 0.9, 1e-2, 1e-2), lambda: optax.adam(0.1, 0.8, 0.9, 1e-2, 1e-2)
    ),
    "Adam[schedule]": Transform(
        eqopt.Adam(schedules.Linear(0.1, 0.01, steps=4), 0.8, 0.9, 1e-2, 1e-2),
        lambda: optax.adam(linear_in_full_precision, 0.8, 0.9, 1e-2, 1e-2),
    ),
    "AdamW": Transform(
        eqopt.AdamW(0.1, 0.8, 0.9, 1e-2, 1e-2, 0.1),
        lambda: optax.adamw(0.1, 0.8, 0.9, 1e-2, 1e-2, weight_decay=0.1),
    ),
    "AdamW[matrices]": Transform(
        eqopt.AdamW(0.1, 0.8, 0.9, 1e-2, 1e-2, 0.1, decay_where=select.Matrices())
    ),
    "AdamW[independent]": Transform(
        eqopt.AdamW(0.1, 0.8, 0.9, 1e-2, 1e-2, 0.1, independent_decay=True)
    ),
    "NAdam": Transform(
        eqopt.NAdam(0.1, 0.8, 0.9, 1e-2, 1e-2), lambda: optax.nadam(0.1, 0.8, 0.9, 1e-2, 1e-2)
    ),
    "NAdamW": Transform(
        eqopt.NAdamW(0.1, 0.8, 0.9, 1e-2, 1e-2, 0.1),
        lambda: optax.nadamw(0.1, 0.8, 0.9, 1e-2, 1e-2, weight_decay=0.1),
    ),
}
