"""The primitive transformations, each with optax's where that is right."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from optax.contrib import _muon

import eqopt
from eqopt import select

from .in_optax import (
    clip_rows_in_optax,
    muon_in_optax,
    on_matrices_in_optax,
    orthogonalize_in_optax,
    power_in_full_precision,
)
from .kinds import Transform


def halve(updates, params):
    """A plain function for `Stateless`."""
    return eqopt.Scale(0.5)(updates, eqopt.Scale(0.5).init(updates))[0]


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


_QUINTIC = (2.0, -1.5, 0.5)
_ROWS = ((2.0, -1.5, 0.5), (1.8, -1.1, 0.3))

PRIMITIVES: dict[str, Transform] = {
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
}
