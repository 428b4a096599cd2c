"""Wrappers that choose leaves, and wrappers that change the layout, with optax's counterparts."""

import jax
import optax

import eqopt
from eqopt import schedules, select

from .in_optax import linear_in_full_precision
from .kinds import Transform


def _matrices(tree):
    """For optax: which leaves are matrices."""
    return jax.tree.map(lambda x: x.ndim == 2, tree)


def _frozen(*names):
    """For optax, which takes no function here: which leaves of `trees.params` are frozen."""
    return {"b": "b" in names, "layers": [{"w": False}], "s": "s" in names}


def _label(name, other):
    """A function of a tree for optax: a name for matrices and another for other leaves."""
    return lambda tree: jax.tree.map(lambda x: name if x.ndim == 2 else other, tree)


_ADAMW = eqopt.AdamW(0.1, 0.8, 0.9, 1e-2, 1e-2, 0.1)
_CLIPPED = eqopt.ClipByGlobalNorm(0.5) >> _ADAMW
_MOMENTUM = eqopt.SGD(0.2, 0.7)


def _adamw():
    return optax.adamw(0.1, 0.8, 0.9, 1e-2, 1e-2, weight_decay=0.1)


def _clipped():
    return optax.chain(optax.clip_by_global_norm(0.5), _adamw())


CHOOSING: dict[str, Transform] = {
    "Masked": Transform(
        eqopt.Masked(_CLIPPED, select.Ndim(2)),
        lambda: optax.masked(_clipped(), _matrices),
    ),
    "Freeze": Transform(
        eqopt.Freeze(_CLIPPED, select.Ndim(0)),
        lambda: optax.selective_transform(_clipped(), freeze_mask=_frozen("s")),
    ),
    "SelectiveTransform": Transform(
        eqopt.SelectiveTransform(_ADAMW, ~select.Ndim(2)),
        lambda: optax.selective_transform(_adamw(), freeze_mask=_frozen("b", "s")),
    ),
    "Partition": Transform(
        eqopt.Partition({"matrices": (select.Ndim(2), _CLIPPED)}, default=_MOMENTUM),
        lambda: optax.partition(
            {"matrices": _clipped(), "others": optax.sgd(0.2, 0.7)}, _label("matrices", "others")
        ),
    ),
    "Partition[labels]": Transform(
        # One label for all, as cases meet trees of several structures.
        eqopt.Partition({"adam": _ADAMW}, "adam"),
        lambda: optax.partition(
            {"adam": _adamw()}, lambda tree: jax.tree.map(lambda _: "adam", tree)
        ),
    ),
    "Partition[schedule]": Transform(
        eqopt.Partition(
            [(select.Ndim(2), eqopt.SGD(schedules.Linear(0.1, 0.01, steps=4)))],
            default=_ADAMW,
        ),
        lambda: optax.partition(
            {"sgd": optax.sgd(linear_in_full_precision), "others": _adamw()},
            _label("sgd", "others"),
        ),
    ),
    "Flatten": Transform(eqopt.Flatten(_CLIPPED), lambda: optax.flatten(_clipped())),
    "SplitRealAndImaginary": Transform(
        eqopt.SplitRealAndImaginary(_ADAMW),
        lambda: optax.contrib.split_real_and_imaginary(_adamw()),
    ),
}
