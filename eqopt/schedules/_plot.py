"""Pictures of schedules."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._core.curve import counts_to, horizon
from .._core.schedule import AbstractSchedule


def plot(
    schedules: AbstractSchedule | Mapping[str, AbstractSchedule],
    steps: int | None = None,
    ax: Any = None,
) -> Any:
    """Draws the values of schedules from 0 to `steps` with matplotlib (the extra `plot`).

    - `schedules`: one schedule, or several by name, which a legend then gives.
    - `steps`: the last count; by default the length of the longest schedule, or as many as show
      its shape.
    - `ax`: the axes of matplotlib to draw on; by default new ones.

    **Returns** the axes.

    **Raises** `ImportError` where matplotlib is missing.
    """
    named = dict(schedules) if isinstance(schedules, Mapping) else {"": schedules}
    if not named:
        raise ValueError("`plot(schedules=...)` must have at least one schedule; got none.")
    if steps is not None and steps < 1:
        raise ValueError(f"`plot(steps=...)` must be at least 1; got {steps}.")
    if ax is None:
        ax = _new_axes()
    last = max(map(horizon, named.values())) if steps is None else steps
    counts = counts_to(last, 2001)
    for name, schedule in named.items():
        ax.plot(counts, np.asarray(schedule(jnp.asarray(counts))), label=name or None)
    ax.set_xlabel("count")
    if any(named):
        ax.legend()
    return ax


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot  # an extra, which drawing alone needs
    except ImportError as error:
        raise ImportError(
            "`schedules.plot` needs matplotlib; install it with `pip install 'eqopt[plot]'`."
        ) from error
    return pyplot.subplots()[1]
