"""Every public transform, wrapper, optimizer, schedule and projection, once.

The contract tests (`test_contract_*.py`) run each entry through the contracts, so adding a class
here tests it fully. Numbers are chosen so that each of them matters within a few steps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
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
    """

    projection: projections.AbstractProjection
    contains: Callable[[Any], bool]
    twin: Callable[[Any], Any] | None = None
    convex: bool = True


def halve(updates, params):
    """A plain function for `Stateless`."""
    return eqopt.Scale(0.5)(updates, eqopt.Scale(0.5).init(updates))[0]


def inverse_decay(count):
    """A plain function for `FromFunction`."""
    return 0.3 / (1.0 + count)


def linear_in_full_precision(count):
    """optax's schedule without the float32 that it computes in from an int32 count."""
    return optax.linear_schedule(0.1, 0.01, 4)(jnp.asarray(count, float))


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

_LINEAR = schedules.Linear(0.1, 0.5, steps=3)
_COSINE = schedules.CosineDecay(0.5, steps=4, end_value=0.1, exponent=1.5)

SCHEDULES: dict[str, Schedule] = {
    "Constant": Schedule(schedules.Constant(0.3), lambda: optax.constant_schedule(0.3)),
    "Linear": Schedule(_LINEAR, lambda: optax.linear_schedule(0.1, 0.5, 3)),
    "CosineDecay": Schedule(
        _COSINE, lambda: optax.cosine_decay_schedule(0.5, 4, alpha=0.2, exponent=1.5)
    ),
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


def _norm(tree):
    return float(eqopt.global_norm(tree))


def _all_non_negative(tree):
    return all(bool(jnp.all(x >= 0)) for x in jax.tree.leaves(tree))


PROJECTIONS: dict[str, Projection] = {
    "NonNegative": Projection(
        projections.NonNegative(), _all_non_negative, optax.projections.projection_non_negative
    ),
    "L2Ball": Projection(
        projections.L2Ball(0.9),
        lambda tree: _norm(tree) <= 0.9 * (1 + 1e-6),
        lambda tree: optax.projections.projection_l2_ball(tree, 0.9),
    ),
    "L2Sphere": Projection(
        projections.L2Sphere(0.9),
        lambda tree: abs(_norm(tree) - 0.9) <= 0.9e-6,
        lambda tree: optax.projections.projection_l2_sphere(tree, 0.9),
        convex=False,
    ),
    "Sequential": Projection(
        projections.NonNegative() >> projections.L2Ball(0.9),
        lambda tree: _all_non_negative(tree) and _norm(tree) <= 0.9 * (1 + 1e-6),
    ),
}
