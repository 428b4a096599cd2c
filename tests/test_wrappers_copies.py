"""The compiled, donated step of a wrapper copies no buffer of the size of a parameter."""

import re

import jax
import jax.numpy as jnp
import pytest

import eqopt
from eqopt import select

SIZE = 2**16


def copies(optim):
    """The instructions of the compiled step that copy an array of the parameters or of all of
    them together."""
    params = {"v": jnp.ones(SIZE), "w": jnp.ones(SIZE)}
    step = jax.jit(
        lambda params, state, grads: optim.step(grads, state, params), donate_argnums=(0, 1)
    )
    text = step.lower(params, optim.init(params), params).compile().as_text()
    assert f"= f32[{SIZE}]" in text
    return re.findall(rf"= f32\[(?:{SIZE}|{2 * SIZE})\]\S* copy\(.*", text)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: eqopt.MultiSteps(inner, 4),
        lambda inner: eqopt.ApplyIfFinite(inner, 5),
        eqopt.SkipNotFinite,
        lambda inner: eqopt.SkipNotFinite(eqopt.MultiSteps(inner, 4)),
        lambda inner: eqopt.Partition([(select.Path("v"), inner)], default=eqopt.SGD(1e-3, 0.9)),
        lambda inner: eqopt.Freeze(inner, select.Path("v")),
        eqopt.Flatten,
    ],
    ids=["MultiSteps", "ApplyIfFinite", "SkipNotFinite", "both", "Partition", "Freeze", "Flatten"],
)
def test_no_copies(wrap):
    assert copies(wrap(eqopt.AdamW(1e-3))) == []


def test_copies_are_seen():
    """Gradients that are returned as parameters must be copied."""

    class Replace(eqopt.AbstractTransform):
        def _init(self, params):
            return None

        def _update(self, updates, state, params, count, **extras):
            return updates, None

        def _step(self, updates, state, params, count, **extras):
            return updates, None

    assert copies(Replace())
