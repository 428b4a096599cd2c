"""Every public transform, wrapper, optimizer, schedule and projection, once.

The contract tests (`test_contract_*.py`) run each entry through the contracts, so adding a class
here tests it fully. Numbers are chosen so that each of them matters within a few steps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import trees
from optax.contrib import _muon

import eqopt
from eqopt import projections, schedules, select


class Transform(NamedTuple):
    """One transform, wrapper or optimizer.

    - `optim`: the instance; every non-static number of it changes some output.
    - `twin`: builds optax's counterpart with the same numbers; `None` where there is none or where
      optax is wrong.
    - `complex`: whether complex parameters are allowed.
    - `zero`: whether zero gradients give exactly zero updates (of parameters that are zero, where
      weights decay).
    - `smooth`: False for piecewise-constant rules, whose derivative is 0.
    - `pickles`: False for what holds closures.
    - `observes`: whether numbers may matter to the state alone, within a few steps.
    - `random`: whether the updates have noise, which depends on the place of a leaf in its tree and
      has both parts where a leaf is complex.
    - `coupled`: whether each element of an update is a sum over the whole matrix, so that what is
      rounded is seen in proportion to the largest element.
    - `extras`: the keywords of an update, from the parameters and the gradients.
    """

    optim: eqopt.AbstractTransform
    twin: Callable[[], Any] | None = None
    complex: bool = True
    zero: bool = True
    smooth: bool = True
    pickles: bool = True
    observes: bool = False
    random: bool = False
    coupled: bool = False
    extras: Callable[[Any, Any], dict[str, Any]] = lambda params, grads: {}


class Schedule(NamedTuple):
    """One schedule.

    - `schedule`: the instance.
    - `twin`: builds optax's counterpart; `None` where there is none or where optax is wrong.
    - `pickles`: False for what holds closures.
    """

    schedule: schedules.AbstractSchedule
    twin: Callable[[], Any] | None = None
    pickles: bool = True


class Projection(NamedTuple):
    """One projection.

    - `projection`: the instance.
    - `contains`: whether a tree of float64 NumPy arrays is in the set, to rounding.
    - `twin`: optax's function of the tree; `None` where there is none or where optax is wrong.
    - `convex`: whether the set is convex, so that projecting brings no two points further apart.
    - `tree`: builds a tree of a dtype that fits the set, for a set that knows shapes.
    - `points`: points of the set, vertices or others, as rows of an array: from the number of
      elements of the tree.
    - `tol`: to how much float64 results are exact, in proportion to the largest element.
    """

    projection: projections.AbstractProjection
    contains: Callable[[Any], bool]
    twin: Callable[[Any], Any] | None = None
    convex: bool = True
    tree: Callable[..., Any] = trees.params
    points: Callable[[int], Any] | None = None
    tol: float = 1e-14

    @property
    def free(self) -> bool:
        """Whether the set is one of trees of any shapes."""
        return self.tree is trees.params

    def small(self, dtype: Any) -> Any:
        """A tree for what is expensive to compile."""
        return trees.small_params(dtype) if self.free else self.tree(dtype)


def halve(updates, params):
    """A plain function for `Stateless`."""
    return eqopt.Scale(0.5)(updates, eqopt.Scale(0.5).init(updates))[0]


def inverse_decay(count):
    """A plain function for `FromFunction`."""
    return 0.3 / (1.0 + count)


def linear_in_full_precision(count):
    """optax's schedule without the float32 that it computes in from an int32 count."""
    return optax.linear_schedule(0.1, 0.01, 4)(jnp.asarray(count, float))


def power_in_full_precision(count, exponent):
    """Adafactor's decay without the float32 that optax computes it in."""
    return 1 - (jnp.asarray(count, float) + 1) ** -exponent


def largest(updates):
    """A measure of the updates, for each leaf."""
    return jax.tree.map(lambda x: jnp.max(jnp.abs(x), initial=0), updates)


def loss_like(params, grads):
    """A loss for transforms that need one."""
    size = eqopt.global_norm(eqx.filter(grads, eqx.is_inexact_array))
    return {"value": 0.5 + 0.1 * size}


def low_loss(params, grads):
    """A loss that is below 0.1 at some points."""
    size = eqopt.global_norm(eqx.filter(grads, eqx.is_inexact_array))
    return {"value": 0.3 + jnp.sin(5 * size)}


def waves(params, grads):
    """A loss that rises and falls from step to step."""
    size = eqopt.global_norm(eqx.filter(grads, eqx.is_inexact_array))
    return {"value": 2 + jnp.sin(13 * size)}


def clip_rows_in_optax(clipping, eps):
    """optax's adaptive clipping, told that matrices are (out, in)."""
    rows = optax.adaptive_grad_clip(clipping, eps, axis=1)
    return optax.partition(
        {True: rows, False: optax.adaptive_grad_clip(clipping, eps)},
        lambda params: jax.tree.map(lambda x: jnp.ndim(x) == 2, params),
    )


# Equinox's matrices are (out, in); in optax the default is (in, out).
_DIMENSIONS = optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=0)


def on_matrices_in_optax(build):
    """optax's transform of matrices (out, in) and nothing else; `build` is given the function
    that gives each leaf its dimension numbers."""
    tx = build(lambda params: jax.tree.map(lambda _: _DIMENSIONS, params))
    return optax.masked(tx, lambda params: jax.tree.map(lambda x: jnp.ndim(x) == 2, params))


def orthogonalize_in_optax(coefficients, steps, eps, preconditioning):
    """optax's iteration as a transform."""

    def fn(g, _):
        return _muon.orthogonalize_via_newton_schulz(
            g, jnp.asarray(coefficients, g.dtype), steps, preconditioning, eps, _DIMENSIONS
        )

    return on_matrices_in_optax(lambda _: optax.stateless_with_tree_map(fn))


def muon_in_optax(*args, **kwargs):
    """optax's `scale_by_muon` for matrices (out, in)."""
    return on_matrices_in_optax(
        lambda dimensions: optax.contrib.scale_by_muon(
            *args, weight_dimension_numbers=dimensions, **kwargs
        )
    )


_QUINTIC = (2.0, -1.5, 0.5)
_ROWS = ((2.0, -1.5, 0.5), (1.8, -1.1, 0.3))

TRANSFORMS: dict[str, Transform] = {
    "Identity": Transform(eqopt.Identity(), lambda: optax.identity()),
    "SetToZero": Transform(eqopt.SetToZero(), lambda: optax.set_to_zero(), smooth=False),
    "Scale": Transform(eqopt.Scale(-0.3), lambda: optax.scale(-0.3)),
    "ScaleByLearningRate": Transform(
        eqopt.ScaleByLearningRate(0.3), lambda: optax.scale_by_learning_rate(0.3)
    ),
    "ScaleBySign": Transform(eqopt.ScaleBySign(), lambda: optax.scale_by_sign(), smooth=False),
    "Stateless": Transform(eqopt.Stateless(halve), lambda: optax.scale(0.5)),
    "Trace": Transform(eqopt.Trace(0.8), lambda: optax.trace(0.8)),
    "Trace[nesterov]": Transform(
        eqopt.Trace(0.8, nesterov=True), lambda: optax.trace(0.8, nesterov=True)
    ),
    "ScaleByAdam": Transform(
        eqopt.ScaleByAdam(0.8, 0.9, 1e-2, 1e-2), lambda: optax.scale_by_adam(0.8, 0.9, 1e-2, 1e-2)
    ),
    "ScaleByAdam[nesterov]": Transform(
        eqopt.ScaleByAdam(0.8, 0.9, 1e-2, 1e-2, nesterov=True),
        lambda: optax.scale_by_adam(0.8, 0.9, 1e-2, 1e-2, nesterov=True),
    ),
    "ScaleByAMSGrad": Transform(
        eqopt.ScaleByAMSGrad(0.8, 0.9, 1e-2, 1e-2),
        lambda: optax.scale_by_amsgrad(0.8, 0.9, 1e-2, 1e-2),
    ),
    "ScaleByAMSGrad[paper]": Transform(
        eqopt.ScaleByAMSGrad(
            0.8, 0.9, 1e-2, 1e-2, bias_correction_mu=False, bias_correction_nu=False
        ),
        lambda: optax.scale_by_amsgrad(
            0.8, 0.9, 1e-2, 1e-2, bias_correction_mu=False, bias_correction_nu=False
        ),
    ),
    "ScaleByAMSGrad[torch]": Transform(
        eqopt.ScaleByAMSGrad(0.8, 0.9, 1e-2, 1e-2, max_of_corrected=False)
    ),
    "ScaleByAdaMax": Transform(
        eqopt.ScaleByAdaMax(0.8, 0.9, 1e-2), lambda: optax.scale_by_adamax(0.8, 0.9, 1e-2)
    ),
    "ScaleByBelief": Transform(
        eqopt.ScaleByBelief(0.8, 0.9, 1e-2, 1e-2),
        lambda: optax.scale_by_belief(0.8, 0.9, 1e-2, 1e-2),
    ),
    "ScaleByBelief[nesterov]": Transform(
        eqopt.ScaleByBelief(0.8, 0.9, 1e-2, 1e-2, nesterov=True),
        lambda: optax.scale_by_belief(0.8, 0.9, 1e-2, 1e-2, nesterov=True),
    ),
    "ScaleByYogi": Transform(eqopt.ScaleByYogi(0.8, 0.9, 1e-2, 1e-2, 0.1)),
    "ScaleByYogi[paper]": Transform(
        eqopt.ScaleByYogi(0.8, 0.9, 1e-2, 1e-2, 0.1, bias_correction=False)
    ),
    "ScaleByRAdam": Transform(
        eqopt.ScaleByRAdam(0.8, 0.9, 1e-2, 1e-2, 5.0),
        lambda: optax.scale_by_radam(0.8, 0.9, 1e-2, 1e-2, 5.0),
    ),
    "ScaleByRAdam[nesterov]": Transform(
        eqopt.ScaleByRAdam(0.8, 0.9, 1e-2, 1e-2, 5.0, nesterov=True),
        lambda: optax.scale_by_radam(0.8, 0.9, 1e-2, 1e-2, 5.0, nesterov=True),
    ),
    "ScaleByOptimisticGradient": Transform(
        eqopt.ScaleByOptimisticGradient(0.7, 0.4),
        lambda: optax.scale_by_optimistic_gradient(0.7, 0.4),
    ),
    "ScaleByAdan": Transform(eqopt.ScaleByAdan(0.8, 0.7, 0.9, 1e-2, 1e-2)),
    "ScaleByNovoGrad": Transform(
        eqopt.ScaleByNovoGrad(0.8, 0.25, 1e-2, 1e-2, 0.1),
        lambda: optax.scale_by_novograd(0.8, 0.25, 1e-2, 1e-2, 0.1),
    ),
    "ScaleByLion": Transform(
        eqopt.ScaleByLion(0.8, 0.7),
        lambda: optax.scale_by_lion(0.8, 0.7),
        smooth=False,
        observes=True,
    ),
    "ScaleByLion[smooth]": Transform(
        eqopt.ScaleByLion(0.8, 0.7, mode="smooth", smooth_beta=0.7),
        lambda: optax.scale_by_lion(0.8, 0.7, mode="smooth", smooth_beta=0.7),
    ),
    "ScaleByLion[refined]": Transform(
        eqopt.ScaleByLion(0.8, 0.7, mode="refined"),
        lambda: optax.scale_by_lion(0.8, 0.7, mode="refined"),
    ),
    "ScaleByRProp": Transform(
        eqopt.ScaleByRProp(0.125, 0.5, 1.25, 0.0625, 0.1875), complex=False, smooth=False
    ),
    "ScaleByRMS": Transform(
        eqopt.ScaleByRMS(0.8, 1e-2, 0.1), lambda: optax.scale_by_rms(0.8, 1e-2, 0.1)
    ),
    "ScaleByRMS[outside]": Transform(
        eqopt.ScaleByRMS(0.8, 1e-2, 0.1, eps_in_sqrt=False, bias_correction=True),
        lambda: optax.scale_by_rms(0.8, 1e-2, 0.1, eps_in_sqrt=False, bias_correction=True),
    ),
    "ScaleByStdDev": Transform(
        eqopt.ScaleByStdDev(0.8, 1e-2, 0.1), lambda: optax.scale_by_stddev(0.8, 1e-2, 0.1)
    ),
    "ScaleByStdDev[outside]": Transform(
        eqopt.ScaleByStdDev(0.8, 1e-2, 0.1, eps_in_sqrt=False),
        lambda: optax.scale_by_stddev(0.8, 1e-2, 0.1, eps_in_sqrt=False),
    ),
    "ScaleByStdDev[corrected]": Transform(
        eqopt.ScaleByStdDev(0.8, 1e-2, 0.1, bias_correction=True),
        lambda: optax.scale_by_stddev(0.8, 1e-2, 0.1, bias_correction=True),
    ),
    "ScaleByRSS": Transform(eqopt.ScaleByRSS(0.1, 1e-2), lambda: optax.scale_by_rss(0.1, 1e-2)),
    "ScaleByAdaDelta": Transform(
        eqopt.ScaleByAdaDelta(0.8, 1e-2), lambda: optax.scale_by_adadelta(0.8, 1e-2)
    ),
    "ScaleByFactoredRMS": Transform(
        eqopt.ScaleByFactoredRMS(0.7, 0, 1e-3, min_dim_size_to_factor=2),
        lambda: optax.scale_by_factored_rms(True, 0.7, 0, 2, 1e-3, power_in_full_precision),
    ),
    "ScaleByFactoredRMS[full]": Transform(
        eqopt.ScaleByFactoredRMS(0.7, 0, 1e-3, factored=False),
        lambda: optax.scale_by_factored_rms(False, 0.7, 0, 2, 1e-3, power_in_full_precision),
    ),
    "ScaleBySM3": Transform(eqopt.ScaleBySM3(0.8, 0.9, 1e-2)),
    "AddDecayedWeights": Transform(
        eqopt.AddDecayedWeights(0.1), lambda: optax.add_decayed_weights(0.1)
    ),
    "AddDecayedWeights[where]": Transform(eqopt.AddDecayedWeights(0.1, select.Ndim(2))),
    "Clip": Transform(eqopt.Clip(0.7)),
    "ClipByGlobalNorm": Transform(
        eqopt.ClipByGlobalNorm(0.7), lambda: optax.clip_by_global_norm(0.7)
    ),
    "NormalizeByGlobalNorm": Transform(
        eqopt.NormalizeByGlobalNorm(0.7, 0.1), lambda: optax.normalize_by_update_norm(0.7, 0.1)
    ),
    "ScaleByTrustRatio": Transform(
        eqopt.ScaleByTrustRatio(1.2, 0.7, 0.1), lambda: optax.scale_by_trust_ratio(1.2, 0.7, 0.1)
    ),
    "ScaleByParamBlockNorm": Transform(
        eqopt.ScaleByParamBlockNorm(0.8), lambda: optax.scale_by_param_block_norm(0.8)
    ),
    "ScaleByParamBlockRMS": Transform(
        eqopt.ScaleByParamBlockRMS(0.8), lambda: optax.scale_by_param_block_rms(0.8)
    ),
    "ScaleByPolyak": Transform(
        eqopt.ScaleByPolyak(0.1, 0.06, 1.0),
        lambda: optax.scale_by_polyak(0.1, 0.06, 1.0),
        extras=loss_like,
    ),
    "ScaleByPolyak[sps+]": Transform(
        eqopt.ScaleByPolyak(0.1, 0.06, 1.0, "sps+"),
        lambda: optax.scale_by_polyak(0.1, 0.06, 1.0, "sps+"),
        extras=low_loss,
    ),
    "ReduceOnPlateau": Transform(
        eqopt.ReduceOnPlateau(0.5, 1, 0.1, 0.1, 1, 1, 0.3),
        lambda: optax.contrib.reduce_on_plateau(0.5, 1, 0.1, 0.1, 1, 1, 0.3),
        extras=waves,
    ),
    "ScaleByDistanceOverGradients": Transform(
        # optax's sums have shape (1,), and so have its updates of scalar parameters.
        eqopt.ScaleByDistanceOverGradients(0.1, 0.1, -0.8)
    ),
    "ClipByBlockRMS": Transform(eqopt.ClipByBlockRMS(0.7), lambda: optax.clip_by_block_rms(0.7)),
    "AddNoise": Transform(
        eqopt.AddNoise(0.3, 0.55, 7), zero=False, random=True
    ),  # other numbers than optax's
    "EMA": Transform(eqopt.EMA(0.8), lambda: optax.ema(0.8)),
    "EMA[biased]": Transform(eqopt.EMA(0.8, False), lambda: optax.ema(0.8, False)),
    "ApplyEvery": Transform(eqopt.ApplyEvery(3), lambda: optax.apply_every(3)),
    "Snapshot": Transform(
        eqopt.Snapshot(largest), lambda: optax.snapshot("largest", largest), observes=True
    ),
    "Monitor": Transform(
        eqopt.Monitor({"norm": eqopt.global_norm, "largest": largest}),
        lambda: optax.monitor({"norm": optax.tree.norm}),
        observes=True,
    ),
    "Monitor[decay]": Transform(
        eqopt.Monitor({"norm": eqopt.global_norm, "largest": largest}, 0.8),
        lambda: optax.monitor({"norm": optax.measure_with_ema(optax.tree.norm, 0.8)}),
        observes=True,
    ),
    "ZeroNans": Transform(eqopt.ZeroNans(), lambda: optax.zero_nans()),
    "NormalizeByGlobalNorm[leaf]": Transform(eqopt.NormalizeByGlobalNorm(0.7, 0.1, "leaf")),
    "NormalizeByGlobalNorm[matrix]": Transform(eqopt.NormalizeByGlobalNorm(0.7, 0.1, "matrix")),
    "NormalizeByGlobalNorm[row]": Transform(eqopt.NormalizeByGlobalNorm(0.7, 0.1, "row")),
    "Centralize": Transform(eqopt.Centralize(), lambda: optax.centralize()),
    "AdaptiveGradClip": Transform(
        eqopt.AdaptiveGradClip(0.3, 1.2), lambda: clip_rows_in_optax(0.3, 1.2)
    ),
    "Orthogonalize": Transform(
        eqopt.Orthogonalize(_QUINTIC, 3, 0.3, where=select.Matrices()),
        lambda: orthogonalize_in_optax(_QUINTIC, 3, 0.3, "frobenius"),
    ),
    "Orthogonalize[rows]": Transform(
        eqopt.Orthogonalize(_ROWS, 2, 0.3, "spectral", where=select.Matrices()),
        lambda: orthogonalize_in_optax(_ROWS, 2, 0.3, "spectral"),
    ),
    "Orthogonalize[aol]": Transform(
        eqopt.Orthogonalize(_QUINTIC, 2, 0.3, "aol", where=select.Matrices())
    ),
    "Orthogonalize[schatten]": Transform(
        eqopt.Orthogonalize(_QUINTIC, 2, 0.3, "schatten", where=select.Matrices())
    ),
    "Orthogonalize[exact]": Transform(
        eqopt.Orthogonalize(None, eps=0.3, where=select.Matrices()), coupled=True
    ),
    "ScaleByMuon": Transform(
        eqopt.ScaleByMuon(_QUINTIC, 3, 0.8, 0.3, where=select.Matrices()),
        lambda: muon_in_optax(_QUINTIC, 3, 0.8, 0.3),
    ),
    "ScaleByMuon[plain]": Transform(
        eqopt.ScaleByMuon(_QUINTIC, 3, 0.8, 0.3, nesterov=False, where=select.Matrices()),
        lambda: muon_in_optax(_QUINTIC, 3, 0.8, 0.3, nesterov=False),
    ),
    "ScaleByMuon[adaptive]": Transform(
        eqopt.ScaleByMuon(_QUINTIC, 3, 0.8, 0.3, adaptive=True, where=select.Matrices()),
        lambda: muon_in_optax(_QUINTIC, 3, 0.8, 0.3, adaptive=True),
        coupled=True,
    ),
    "ScaleByShape": Transform(
        eqopt.ScaleByShape(where=select.Matrices()),
        lambda: on_matrices_in_optax(_muon.scale_by_shape),
    ),
    "ScaleByShape[rms]": Transform(
        eqopt.ScaleByShape(0.2, where=select.Matrices()),
        lambda: on_matrices_in_optax(lambda dimensions: _muon.scale_by_shape(dimensions, 0.2)),
    ),
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

# Reported cases are about optimizers: these stand for all transforms, which the contracts run.
REPORTED = {
    name: case
    for name, case in TRANSFORMS.items()
    if isinstance(case.optim, eqopt.AbstractOptimizer)
    or name in {"Chain", "Project", "FromOptax", "ScaleByBelief", "ScaleBySM3", "ScaleByMuon"}
}

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


def matrices(dtype=jnp.float32):
    """Leaves of at least one axis."""
    return {key: x for key, x in trees.params(dtype).items() if key != "s"}


def flat(tree):
    """A tree as one vector."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def leaves_as_vectors(tree):
    """The leaves of a tree, each as a vector."""
    return [np.ravel(x) for x in jax.tree.leaves(tree)]


def rows(tree):
    """The last axes of all leaves, as vectors."""
    return [row for x in jax.tree.leaves(tree) for row in np.reshape(x, (-1, x.shape[-1]))]


def _norm(tree):
    return np.linalg.norm(flat(tree))


def _all_non_negative(tree):
    return bool(np.all(flat(tree) >= 0))


def axes_of(radius):
    """Where the axes meet a ball of any norm."""
    return lambda n: radius * np.concatenate([np.eye(n), -np.eye(n)])


def _largest(tree):
    return np.max(np.abs(flat(tree)))


def _absolute(tree):
    return np.sum(np.abs(flat(tree)))


def in_simplex(x, scale):
    """Whether a vector is in the simplex, to rounding."""
    return bool(np.all(x >= 0)) and abs(np.sum(x) - scale) <= 2e-6 * scale


def some_of_a_box(lower, upper):
    """Corners of a box, and its middle."""

    def points(n):
        corner = np.arange(n) % 2 == 0
        low, high = np.full(n, lower), np.full(n, upper)
        corners = [low, high, np.where(corner, low, high), np.where(corner, high, low)]
        return np.stack([*corners, (low + high) / 2])

    return points


def simplex_in_optax(tree, scale):
    """optax's, less the largest element, which changes nothing but the rounding."""
    largest = jnp.max(jnp.asarray(jax.tree.leaves(jax.tree.map(jnp.max, tree))))
    return _optax.projection_simplex(jax.tree.map(lambda x: x - largest, tree), scale)


def few(dtype=jnp.float32):
    """Five elements, for sets given by vectors and matrices."""
    full = trees.params(dtype)
    return {"s": full["s"], "w": full["layers"][0]["w"][:, 0]}


def squares(dtype=jnp.float32):
    """Square matrices, alone and stacked."""
    full = trees.params(dtype)
    return {"a": full["layers"][0]["w"][:3], "b": full["layers"][0]["w"].reshape(3, 2, 2)}


def tall_and_wide(dtype=jnp.float32):
    """A tall matrix and wide ones."""
    w = trees.params(dtype)["layers"][0]["w"]
    return {"a": w, "b": w.reshape(2, 2, 3)}


def table(dtype=jnp.float32):
    """A matrix."""
    return {"w": trees.params(dtype)["layers"][0]["w"]}


def in_polyhedron(tree, a, b, c, d):
    """Whether a tree solves a x = b and c x <= d, to rounding."""
    x = flat(tree)
    return bool(np.all(np.abs(a @ x - b) <= 2e-6) and np.all(c @ x <= d + 2e-6))


def is_psd(x):
    """Whether matrices are symmetric without negative eigenvalues, to rounding."""
    scale = 2e-6 * max(1.0, float(np.max(np.abs(x))))
    mirrored = np.swapaxes(x, -1, -2)
    return bool(np.all(np.abs(x - mirrored) <= scale) and np.all(np.linalg.eigvalsh(x) >= -scale))


def is_orthogonal(x):
    """Whether the columns, or rows if there are fewer, are orthonormal, to rounding."""
    x = np.asarray(x) if x.shape[-2] >= x.shape[-1] else np.swapaxes(x, -1, -2)
    return np.allclose(np.swapaxes(x, -1, -2) @ x, np.eye(x.shape[-1]), rtol=0, atol=4e-6)


# Each number is one of float32, so that sets are the same in float64.
_NORMAL = np.asarray([1.0, -0.5, 2.0, 0.25, 1.5])
_NORMAL_TREE = {"s": jnp.asarray(1.0), "w": jnp.asarray(_NORMAL[1:])}
_NO_ROWS = np.zeros((0, 5)), np.zeros(0)
_A = np.asarray([[1.0, 0.5, 0.0, -1.0, 2.0], [0.0, 1.0, 1.0, 1.0, 1.0]])
_C = np.asarray(
    [[0.5, -1.0, 0.25, 0.0, 1.0], [1.0, 1.0, -0.5, 0.25, 0.0], [0.0, 0.0, 1.0, 1.0, 0.5]]
)
_B, _D = np.asarray([0.5, 0.25]), np.asarray([-0.5, 0.25, 1.0])
_ROW_SUMS, _COL_SUMS = np.asarray([0.5, 0.25, 0.75, 0.5]), np.asarray([1.0, 0.5, 0.5])


def _like(tree, data, factor=1):
    """Data of a set in the dtypes of a tree."""
    return jax.tree.map(lambda x, y: factor * jnp.asarray(y, x.dtype), tree, data)


_LOWER = {"b": -0.4, "layers": jnp.asarray(-0.2)}
_UPPER = {"b": jnp.asarray([-0.3, 0.2, 0.9]), "layers": [{"w": 0.3}]}
_optax = optax.projections

PROJECTIONS: dict[str, Projection] = {
    "NonNegative": Projection(
        projections.NonNegative(),
        _all_non_negative,
        _optax.projection_non_negative,
        points=lambda n: np.concatenate([np.zeros((1, n)), 3 * np.eye(n), np.ones((1, n))]),
        tol=0,
    ),
    "Box": Projection(
        projections.Box(-0.3, 0.5),
        lambda tree: bool(np.all(flat(tree) >= -0.3) and np.all(flat(tree) <= 0.5)),
        lambda tree: jax.tree.map(lambda x: _optax.projection_box(x, -0.3, 0.5), tree),
        points=some_of_a_box(-0.3, 0.5),
        tol=0,
    ),
    "Box[leaves]": Projection(
        projections.Box(_LOWER, _UPPER),
        lambda tree: bool(
            np.all(tree["b"] >= -0.4)
            and np.all(tree["b"] <= _UPPER["b"])
            and np.all(np.abs(tree["layers"][0]["w"] - 0.05) <= 0.25 + 1e-7)
        ),
        tree=matrices,
        tol=0,
    ),
    "Hypercube": Projection(
        projections.Hypercube(0.7),
        lambda tree: bool(np.all(flat(tree) >= 0) and np.all(flat(tree) <= 0.7)),
        lambda tree: jax.tree.map(lambda x: _optax.projection_hypercube(x, 0.7), tree),
        points=some_of_a_box(0.0, 0.7),
        tol=0,
    ),
    "LInfBall": Projection(
        projections.LInfBall(0.7),
        lambda tree: _largest(tree) <= 0.7,
        lambda tree: _optax.projection_linf_ball(tree, 0.7),
        points=some_of_a_box(-0.7, 0.7),
        tol=0,
    ),
    "Simplex": Projection(
        projections.Simplex(0.9),
        lambda tree: in_simplex(flat(tree), 0.9),
        lambda tree: simplex_in_optax(tree, 0.9),
        points=lambda n: np.concatenate([0.9 * np.eye(n), np.full((1, n), 0.9 / n)]),
    ),
    "Simplex[leaf]": Projection(
        projections.Simplex(0.9, per_leaf=True),
        lambda tree: all(in_simplex(x, 0.9) for x in leaves_as_vectors(tree)),
        lambda tree: jax.tree.map(lambda x: simplex_in_optax(x, 0.9), tree),
    ),
    "Simplex[axis]": Projection(
        projections.Simplex(0.9, axis=-1),
        lambda tree: all(in_simplex(x, 0.9) for x in rows(tree)),
        tree=matrices,
    ),
    "L1Ball": Projection(
        projections.L1Ball(0.9),
        lambda tree: _absolute(tree) <= 0.9 * (1 + 2e-6),
        lambda tree: _optax.projection_l1_ball(tree, 0.9),
        points=axes_of(0.9),
    ),
    "L1Sphere": Projection(
        projections.L1Sphere(0.9),
        lambda tree: abs(_absolute(tree) - 0.9) <= 2e-6,
        lambda tree: _optax.projection_l1_sphere(tree, 0.9),
        convex=False,
    ),
    "L2Ball": Projection(
        projections.L2Ball(0.9),
        lambda tree: _norm(tree) <= 0.9 * (1 + 1e-6),
        lambda tree: _optax.projection_l2_ball(tree, 0.9),
        points=axes_of(0.9),
    ),
    "L2Ball[leaf]": Projection(
        projections.L2Ball(0.9, per_leaf=True),
        lambda tree: all(_norm(x) <= 0.9 * (1 + 1e-6) for x in leaves_as_vectors(tree)),
        lambda tree: jax.tree.map(lambda x: _optax.projection_l2_ball(x, 0.9), tree),
    ),
    "L2Ball[axis]": Projection(
        projections.L2Ball(0.9, axis=-1),
        lambda tree: all(_norm(x) <= 0.9 * (1 + 1e-6) for x in rows(tree)),
        tree=matrices,
    ),
    "L2Sphere": Projection(
        projections.L2Sphere(0.9),
        lambda tree: abs(_norm(tree) - 0.9) <= 0.9e-6,
        lambda tree: _optax.projection_l2_sphere(tree, 0.9),
        convex=False,
    ),
    "Vector": Projection(
        projections.Vector(_NORMAL_TREE),
        lambda tree: np.linalg.matrix_rank([flat(tree), _NORMAL], tol=2e-5) == 1,
        lambda tree: _optax.projection_vector(tree, _like(tree, _NORMAL_TREE)),
        tree=few,
        points=lambda n: np.outer([-1.0, 0.0, 0.5], _NORMAL),
    ),
    "Hyperplane": Projection(
        projections.Hyperplane(_NORMAL, 0.75),
        lambda tree: abs(_NORMAL @ flat(tree) - 0.75) <= 4e-6,
        lambda tree: _optax.projection_hyperplane(tree, _like(tree, _NORMAL_TREE), 0.75),
        tree=few,
        points=lambda n: 0.75 * np.diag(1 / _NORMAL),
    ),
    "Halfspace": Projection(
        projections.Halfspace(jax.tree.map(lambda x: -x, _NORMAL_TREE), 0.25),
        lambda tree: -_NORMAL @ flat(tree) <= 0.25 + 4e-6,
        lambda tree: _optax.projection_halfspace(tree, _like(tree, _NORMAL_TREE, -1), 0.25),
        tree=few,
        points=lambda n: np.diag(1 / _NORMAL),
    ),
    "Affine": Projection(
        projections.Affine(_A, _B),
        lambda tree: in_polyhedron(tree, _A, _B, *_NO_ROWS),
        tree=few,
        points=lambda n: [np.linalg.lstsq(_A, _B, rcond=None)[0]],
        tol=1e-13,
    ),
    "Polyhedron": Projection(
        projections.Polyhedron(_A[:1], _B[:1], _C, _D),
        lambda tree: in_polyhedron(tree, _A[:1], _B[:1], _C, _D),
        tree=few,
        points=lambda n: [[0.0, 1.0, 2.0, -1.0, -0.5], [-1.0, 0.5, 0.0, -0.25, 0.5]],
        tol=1e-13,
    ),
    "Monotone": Projection(
        projections.Monotone(),
        lambda tree: bool(np.all(np.diff(flat(tree)) >= 0)),
        points=lambda n: np.concatenate([np.tri(n).T, -np.tri(n), [np.zeros(n)]]),
    ),
    "PSD": Projection(
        projections.PSD(),
        lambda tree: all(map(is_psd, jax.tree.leaves(tree))),
        tree=squares,
        tol=1e-13,
    ),
    "Orthogonal": Projection(
        projections.Orthogonal(),
        lambda tree: all(map(is_orthogonal, jax.tree.leaves(tree))),
        convex=False,
        tree=tall_and_wide,
        tol=1e-13,
    ),
    "TransportPolytope": Projection(
        projections.TransportPolytope(_ROW_SUMS, _COL_SUMS),
        lambda tree: (
            _all_non_negative(tree)
            and np.allclose(np.sum(tree["w"], axis=1), _ROW_SUMS, rtol=0, atol=4e-6)
            and np.allclose(np.sum(tree["w"], axis=0), _COL_SUMS, rtol=0, atol=4e-6)
        ),
        tree=table,
        points=lambda n: [np.outer(_ROW_SUMS, _COL_SUMS).ravel() / 2],
        tol=1e-13,
    ),
    "Intersection": Projection(
        projections.Intersection(projections.Hypercube(0.3), projections.L2Ball(0.5)),
        lambda tree: (
            _norm(tree) <= 0.5 * (1 + 1e-5)
            and bool(np.all(flat(tree) >= -1e-5) and np.all(flat(tree) <= 0.3 + 1e-5))
        ),
        points=lambda n: np.concatenate([np.zeros((1, n)), 0.3 * np.eye(n)]),
        tol=1e-13,
    ),
    "Sequential": Projection(
        projections.NonNegative() >> projections.L2Ball(0.9),
        lambda tree: _all_non_negative(tree) and _norm(tree) <= 0.9 * (1 + 1e-6),
    ),
}

# Those that any tree goes into, whatever its shapes.
FREE_PROJECTIONS = {name: case for name, case in PROJECTIONS.items() if case.free}
