"""What is compared: an optimizer of eqopt, optax's counterpart, and the targets."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import eqopt
from eqopt import projections, select


class Pair(NamedTuple):
    """Two optimizers that do the same, and what their ratios should not exceed.

    - `step`: target for the step time on the large tree and on that of matrices.
    - `tracing`: target for tracing and lowering on many leaves.
    - `trees`: the names of the trees.
    - `compile`: target for compiling.
    - `together`: the number of steps that are timed as one, where not every step does the same.
    """

    ours: eqopt.AbstractTransform
    theirs: optax.GradientTransformation
    step: float
    tracing: float
    trees: tuple[str, ...]
    compile: float | None = None
    together: int = 1


class ProjectionPair(NamedTuple):
    """Two functions that project alike, and what their ratio should not exceed.

    - `step`: target for the time of a projection.
    """

    ours: Callable[[Any], Any]
    theirs: Callable[[Any], Any]
    step: float
    trees: tuple[str, ...]
    tracing: float | None = None
    compile: float | None = None


MOMENTS, ONE_OPERATION = 0.35, 1.2
ONE = 1.1  # step time of a rule of one operation
COPIES = 0.75  # of what the compiler copies in optax's
LARGE, MANY, MODEL = "16 million in 4 leaves", "1,000 leaves of 16x16", "MLP 64-128-128-10"
LAYERS = "8 layers of matrices"
VECTOR, ROWS = "vector of 1 million", "10,000 vectors of 100"
NO_SORT = 0.7  # of what sorts in optax


def _pair(ours: Any, theirs: Any, step: float, tracing: float) -> Pair:
    """On all trees."""
    return Pair(ours, theirs, step, tracing, (LARGE, MANY, MODEL))


def _primitive(ours: Any, theirs: Any, step: float = 1.05) -> Pair:
    """Followed by the learning rate, on the large tree."""
    return Pair(
        ours >> eqopt.ScaleByLearningRate(1e-3),
        optax.chain(theirs, optax.scale_by_learning_rate(1e-3)),
        step,
        MOMENTS,
        (LARGE,),
    )


PAIRS: dict[str, Pair] = {
    "SGD": _pair(eqopt.SGD(1e-3), optax.sgd(1e-3), 1.05, ONE_OPERATION),
    "SGD momentum": _pair(eqopt.SGD(1e-3, 0.9), optax.sgd(1e-3, 0.9), 1.05, MOMENTS),
    "SGD Nesterov": _pair(
        eqopt.SGD(1e-3, 0.9, nesterov=True), optax.sgd(1e-3, 0.9, nesterov=True), 1.05, MOMENTS
    ),
    "Adam": _pair(eqopt.Adam(1e-3), optax.adam(1e-3), 1.05, MOMENTS),
    "AdamW": _pair(eqopt.AdamW(1e-3), optax.adamw(1e-3), 1.05, MOMENTS),
    "NAdam": _pair(eqopt.NAdam(1e-3), optax.nadam(1e-3), 1.05, MOMENTS),
    "NAdamW": _pair(eqopt.NAdamW(1e-3), optax.nadamw(1e-3), 1.05, MOMENTS),
    "clip, AdamW": _pair(
        eqopt.ClipByGlobalNorm(1.0) >> eqopt.AdamW(1e-3),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)),
        0.75,
        MOMENTS,
    ),
    "clip, SGD": _pair(
        eqopt.Clip(1.0) >> eqopt.SGD(1e-3),
        optax.chain(optax.clip(1.0), optax.sgd(1e-3)),
        1.05,
        ONE_OPERATION,
    ),
    "sign, SGD": _pair(
        eqopt.ScaleBySign() >> eqopt.SGD(1e-3),
        optax.chain(optax.scale_by_sign(), optax.sgd(1e-3)),
        1.05,
        ONE_OPERATION,
    ),
    "normalize, SGD": _pair(
        eqopt.NormalizeByGlobalNorm(eps=1e-6) >> eqopt.SGD(1e-3),
        optax.chain(optax.normalize_by_update_norm(eps=1e-6), optax.sgd(1e-3)),
        1.05,
        ONE_OPERATION,
    ),
    "decay, SGD": _pair(
        eqopt.AddDecayedWeights(0.1) >> eqopt.SGD(1e-3),
        optax.chain(optax.add_decayed_weights(0.1), optax.sgd(1e-3)),
        1.05,
        ONE_OPERATION,
    ),
    "AMSGrad": _primitive(eqopt.ScaleByAMSGrad(), optax.scale_by_amsgrad()),
    "AdaMax": _primitive(eqopt.ScaleByAdaMax(), optax.scale_by_adamax()),
    "AdaBelief": _primitive(eqopt.ScaleByBelief(), optax.scale_by_belief(), COPIES),
    "Yogi": _primitive(eqopt.ScaleByYogi(), optax.scale_by_yogi()),
    "RAdam": _primitive(eqopt.ScaleByRAdam(), optax.scale_by_radam()),
    "Adan": _primitive(eqopt.ScaleByAdan(), optax.scale_by_adan(), COPIES),
    "NovoGrad": _primitive(eqopt.ScaleByNovoGrad(), optax.scale_by_novograd()),
    "Lion": _primitive(eqopt.ScaleByLion(), optax.scale_by_lion(), COPIES),
    "RProp": _primitive(eqopt.ScaleByRProp(1e-3), optax.scale_by_rprop(1e-3), COPIES),
    "RMS": _primitive(eqopt.ScaleByRMS(), optax.scale_by_rms()),
    "StdDev": _primitive(eqopt.ScaleByStdDev(), optax.scale_by_stddev()),
    "RSS": _primitive(eqopt.ScaleByRSS(), optax.scale_by_rss()),
    "AdaDelta": _primitive(eqopt.ScaleByAdaDelta(), optax.scale_by_adadelta()),
    "SM3": _primitive(eqopt.ScaleBySM3(), optax.scale_by_sm3()),
    "factored RMS": _primitive(eqopt.ScaleByFactoredRMS(), optax.scale_by_factored_rms()),
    "optimistic": _primitive(
        eqopt.ScaleByOptimisticGradient(), optax.scale_by_optimistic_gradient()
    ),
    "trust ratio": _primitive(eqopt.ScaleByTrustRatio(), optax.scale_by_trust_ratio(), ONE),
    "block norm": _primitive(eqopt.ScaleByParamBlockNorm(), optax.scale_by_param_block_norm(), ONE),
    "block RMS": _primitive(eqopt.ScaleByParamBlockRMS(), optax.scale_by_param_block_rms(), ONE),
    "Polyak": _primitive(eqopt.ScaleByPolyak(), optax.scale_by_polyak(), ONE),
    "DoG": _primitive(
        eqopt.ScaleByDistanceOverGradients(), optax.scale_by_distance_over_gradients()
    ),
    "clip block RMS": _primitive(eqopt.ClipByBlockRMS(1.0), optax.clip_by_block_rms(1.0), ONE),
    "adaptive clip": _primitive(
        eqopt.AdaptiveGradClip(0.1), optax.adaptive_grad_clip(0.1, axis=1), ONE
    ),
    "centralize": _primitive(eqopt.Centralize(), optax.centralize(), ONE),
    "noise": _primitive(eqopt.AddNoise(0.1, 0.55, 0), optax.add_noise(0.1, 0.55, 0), ONE),
    "EMA": _primitive(eqopt.EMA(0.9), optax.ema(0.9)),
    "apply every": _primitive(eqopt.ApplyEvery(3), optax.apply_every(3)),
    "zero NaN": _primitive(eqopt.ZeroNans(), optax.zero_nans(), ONE),
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
        (LAYERS,),
        0.5,
    ),
}


def _around_adamw(ours: Any, theirs: Any, step: float, together: int = 1) -> Pair:
    """A wrapper around AdamW, on the large tree."""
    pair = Pair(ours(eqopt.AdamW(1e-3)), theirs(optax.adamw(1e-3)), step, MOMENTS, (LARGE,))
    return pair._replace(together=together)


def _skipping_in_optax(optimizer: Any) -> Any:
    return optax.MultiSteps(optimizer, 1, should_skip_update_fn=optax.skip_not_finite)


def _lookahead_in_optax(optimizer: Any) -> Any:
    """With the slow weights in the state, so that parameters go in and out as they are; a step has
    nothing else to do."""
    tx = optax.lookahead(optimizer, 5, 0.5)

    def init(params: Any) -> Any:
        return params, tx.init(optax.LookaheadParams(params, params))

    def update(updates: Any, state: Any, params: Any) -> Any:
        slow, state = state
        both, state = tx.update(updates, state, optax.LookaheadParams(params, slow))
        return both.fast, (optax.apply_updates(slow, both.slow), state)

    return optax.GradientTransformation(init, update)


WRAPPERS: dict[str, Pair] = {
    "MultiSteps": _around_adamw(
        lambda inner: eqopt.MultiSteps(inner, 4),
        lambda inner: optax.MultiSteps(inner, 4),
        0.2,
        together=4,
    ),
    "ApplyIfFinite": _around_adamw(
        lambda inner: eqopt.ApplyIfFinite(inner, 5),
        lambda inner: optax.apply_if_finite(inner, 5),
        0.6,
    ),
    "SkipNotFinite": _around_adamw(eqopt.SkipNotFinite, _skipping_in_optax, 0.3),
    "Lookahead": _around_adamw(
        lambda inner: eqopt.Lookahead(inner, 5, 0.5), _lookahead_in_optax, ONE, together=5
    ),
    "Partition": _around_adamw(
        lambda inner: eqopt.Partition([(select.Path("[01]"), inner)], default=eqopt.SGD(1e-3, 0.9)),
        lambda inner: optax.partition(
            {"adamw": inner, "sgd": optax.sgd(1e-3, 0.9)},
            lambda tree: {name: "adamw" if name in ("w0", "w1") else "sgd" for name in tree},
        ),
        ONE,
    ),
}


def _both(name: str, ours: Any, theirs: Any, step: float = ONE) -> dict[str, ProjectionPair]:
    """On one vector, and on many under `vmap`."""
    return {
        name: ProjectionPair(ours, theirs, step, (VECTOR,)),
        f"{name} mapped": ProjectionPair(jax.vmap(ours), jax.vmap(theirs), ONE, (ROWS,)),
    }


def _weights(x: Any) -> Any:
    """A vector that a set is given by."""
    return 1.0 + jnp.arange(x.size, dtype=x.dtype) / x.size


_optax = optax.projections

PROJECTIONS: dict[str, ProjectionPair] = {
    **_both("NonNegative", projections.NonNegative(), _optax.projection_non_negative),
    **_both("Box", projections.Box(-0.3, 0.5), lambda x: _optax.projection_box(x, -0.3, 0.5)),
    **_both("Hypercube", projections.Hypercube(), _optax.projection_hypercube),
    **_both("Simplex", projections.Simplex(), _optax.projection_simplex, NO_SORT),
    **_both("L1Ball", projections.L1Ball(), _optax.projection_l1_ball, NO_SORT),
    **_both("L1Sphere", projections.L1Sphere(), _optax.projection_l1_sphere),
    **_both("L2Ball", projections.L2Ball(), _optax.projection_l2_ball),
    **_both("L2Sphere", projections.L2Sphere(), _optax.projection_l2_sphere),
    **_both("LInfBall", projections.LInfBall(), _optax.projection_linf_ball),
    **_both(
        "Vector",
        lambda x: projections.Vector(_weights(x))(x),
        lambda x: _optax.projection_vector(x, _weights(x)),
    ),
    **_both(
        "Hyperplane",
        lambda x: projections.Hyperplane(_weights(x), 1.0)(x),
        lambda x: _optax.projection_hyperplane(x, _weights(x), 1.0),
    ),
    **_both(
        "Halfspace",
        lambda x: projections.Halfspace(_weights(x), 1.0)(x),
        lambda x: _optax.projection_halfspace(x, _weights(x), 1.0),
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


def _normal(*shape: int) -> Any:
    """So that a hundredth of it, the gradients, is standard normal."""
    return 100 * jax.random.normal(jax.random.key(0), shape)


TREES: dict[str, Callable[[], Any]] = {
    LARGE: _large,
    MANY: _many,
    MODEL: _mlp,
    LAYERS: _layers,
    VECTOR: lambda: _normal(1_000_000),
    ROWS: lambda: _normal(10_000, 100),
}
