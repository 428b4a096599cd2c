"""eqopt's transformations inside optax."""

from typing import Any

import optax

from .._core.boundary import keywords
from .._core.transform import AbstractTransform
from .._core.types import OptState, Params, Updates


def to_optax(transform: AbstractTransform) -> optax.GradientTransformationExtraArgs:
    """An optax transformation of plain closures that does what `transform` does.

    It stands in `optax.chain` and wherever optax takes a transformation. Keywords that `transform`
    does not know are dropped, as optax's own transformations do. The other direction needs no
    function: `>>` takes optax transformations (see `eqopt.FromOptax`).
    """
    _, known = keywords(transform)

    def update(
        updates: Updates, state: OptState, params: Params | None = None, **extras: Any
    ) -> tuple[Updates, OptState]:
        if known is not None:
            extras = {name: value for name, value in extras.items() if name in known}
        return transform(updates, state, params, **extras)

    return optax.GradientTransformationExtraArgs(transform.init, update)
