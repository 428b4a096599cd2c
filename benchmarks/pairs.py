"""What is compared: an optimizer of eqopt, optax's counterpart, and the targets."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import eqopt


class Pair(NamedTuple):
    """Two optimizers that do the same, and what their ratios should not exceed.

    - `step`: target for the step time on the large tree (and, for the other trees, printed).
    - `tracing`: target for tracing and lowering on many leaves.
    - `tree`: a tree of its own, on which alone it is measured.
    - `compile`: target for compiling on that tree.
    """

    ours: eqopt.AbstractTransform
    theirs: optax.GradientTransformation
    step: float
    tracing: float
    tree: str | None = None
    compile: float | None = None


MOMENTS, ONE_OPERATION = 0.35, 1.2

PAIRS: dict[str, Pair] = {
    "SGD": Pair(eqopt.SGD(1e-3), optax.sgd(1e-3), 1.05, ONE_OPERATION),
    "SGD momentum": Pair(eqopt.SGD(1e-3, 0.9), optax.sgd(1e-3, 0.9), 1.05, MOMENTS),
    "SGD Nesterov": Pair(
        eqopt.SGD(1e-3, 0.9, nesterov=True), optax.sgd(1e-3, 0.9, nesterov=True), 1.05, MOMENTS
    ),
    "Adam": Pair(eqopt.Adam(1e-3), optax.adam(1e-3), 1.05, MOMENTS),
    "AdamW": Pair(eqopt.AdamW(1e-3), optax.adamw(1e-3), 1.05, MOMENTS),
    "NAdam": Pair(eqopt.NAdam(1e-3), optax.nadam(1e-3), 1.05, MOMENTS),
    "NAdamW": Pair(eqopt.NAdamW(1e-3), optax.nadamw(1e-3), 1.05, MOMENTS),
    "clip, AdamW": Pair(
        eqopt.ClipByGlobalNorm(1.0) >> eqopt.AdamW(1e-3),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)),
        0.75,
        MOMENTS,
    ),
    "clip, SGD": Pair(
        eqopt.Clip(1.0) >> eqopt.SGD(1e-3),
        optax.chain(optax.clip(1.0), optax.sgd(1e-3)),
        1.05,
        ONE_OPERATION,
    ),
    "sign, SGD": Pair(
        eqopt.ScaleBySign() >> eqopt.SGD(1e-3),
        optax.chain(optax.scale_by_sign(), optax.sgd(1e-3)),
        1.05,
        ONE_OPERATION,
    ),
    "normalize, SGD": Pair(
        eqopt.NormalizeByGlobalNorm(eps=1e-6) >> eqopt.SGD(1e-3),
        optax.chain(optax.normalize_by_update_norm(eps=1e-6), optax.sgd(1e-3)),
        1.05,
        ONE_OPERATION,
    ),
    "decay, SGD": Pair(
        eqopt.AddDecayedWeights(0.1) >> eqopt.SGD(1e-3),
        optax.chain(optax.add_decayed_weights(0.1), optax.sgd(1e-3)),
        1.05,
        ONE_OPERATION,
    ),
    "Muon": Pair(
        eqopt.ScaleByMuon() >> eqopt.ScaleByLearningRate(1e-3),
        optax.chain(
            optax.contrib.scale_by_muon(
                weight_dimension_numbers=lambda params: jax.tree.map(
                    lambda _: optax.contrib.MuonDimensionNumbers(1, 0), params
                )
            ),
            optax.scale_by_learning_rate(1e-3),
        ),
        1.0,
        MOMENTS,
        "8 layers of matrices",
        0.5,
    ),
}


def _large() -> Any:
    return {f"w{i}": jnp.full((2048, 2048), 0.1, jnp.float32) for i in range(4)}


def _many() -> Any:
    return {f"w{i}": jnp.full((16, 16), 0.1, jnp.float32) for i in range(1000)}


def _mlp() -> Any:
    return eqx.filter(eqx.nn.MLP(64, 10, 128, 2, key=jax.random.key(0)), eqx.is_array)


def _layers() -> Any:
    """Of a transformer of width 256: attention's four matrices and the two of the MLP."""
    shapes = [(256, 256)] * 4 + [(1024, 256), (256, 1024)]
    keys = jax.random.split(jax.random.key(0), 8 * len(shapes))
    return {f"w{i}": 0.1 * jax.random.normal(k, shapes[i % 6]) for i, k in enumerate(keys)}


TREES: dict[str, Callable[[], Any]] = {
    "16 million in 4 leaves": _large,
    "1,000 leaves of 16x16": _many,
    "MLP 64-128-128-10": _mlp,
    "8 layers of matrices": _layers,
}
LARGE, MANY = "16 million in 4 leaves", "1,000 leaves of 16x16"
