"""Optimizers that use schedules."""

import jax.numpy as jnp
import numpy as np
import pytest

import eqopt
from eqopt.schedules import Linear

OPTIMIZERS = {
    "SGD": (eqopt.SGD, {"learning_rate": 0.1, "momentum": 0.5}),
    "Adam": (eqopt.Adam, {}),
    "AdamW": (eqopt.AdamW, {"weight_decay": 0.1}),
    "NAdam": (eqopt.NAdam, {}),
    "NAdamW": (eqopt.NAdamW, {"weight_decay": 0.1}),
    "ScaleByAdam": (eqopt.ScaleByAdam, {}),
    "Trace": (eqopt.Trace, {"decay": 0.5}),
    "Scale": (eqopt.Scale, {"step_size": 0.5}),
    "ScaleByLearningRate": (eqopt.ScaleByLearningRate, {"learning_rate": 0.5}),
    "AddDecayedWeights": (eqopt.AddDecayedWeights, {"weight_decay": 0.5}),
    "Clip": (eqopt.Clip, {"max_delta": 0.5}),
    "ClipByGlobalNorm": (eqopt.ClipByGlobalNorm, {"max_norm": 0.5}),
    "NormalizeByGlobalNorm": (eqopt.NormalizeByGlobalNorm, {"scale": 0.5, "eps": 0.1}),
}
ADAM = {"b1": 0.8, "b2": 0.9, "eps": 1e-2, "eps_root": 1e-2}


def scheduled_fields():
    """Each numeric field of each optimizer, with numbers for all of them."""
    for name, (kind, own) in OPTIMIZERS.items():
        given = dict(own)
        if "Adam" in name:
            given = ADAM | given
            if not name.startswith("Scale"):
                given = {"learning_rate": 0.1} | given
        for field in given:
            yield pytest.param(kind, field, given, id=f"{name}.{field}")


@pytest.mark.parametrize("kind, field, given", list(scheduled_fields()))
def test_each_field_takes_a_schedule(kind, field, given):
    """The first update is that of the value at 0, the second that of the value at 1."""
    schedule = Linear(given[field], 0.5 * given[field], steps=2)
    optim = kind(**(given | {field: schedule}))
    p, g = jnp.asarray([1.0, -2.0]), jnp.asarray([0.5, 1.5])
    state = optim.init(p)
    for count in range(2):
        numbers = given | {field: given[field] * (1 - 0.25 * count)}
        wanted, _ = kind(**numbers)(g, state, p)
        found, state = optim(g, state, p)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
