"""The curve of a schedule as a small picture, for notebooks and the documentation."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .data import known
from .hyperparam import Schedule, own_numbers

if TYPE_CHECKING:
    from .schedule import AbstractSchedule

_WIDTH, _HEIGHT, _MARGIN = 240, 72, 6
_POINTS = 480  # two for each pixel: jumps look like jumps


def curve(schedule: "AbstractSchedule") -> str | None:
    """A picture in SVG of the values from 0 to the end of a schedule, or to where its shape is
    seen; `None` where the values are not known, or not finite."""
    if any(known(x) is None for x in jax.tree.leaves(schedule)):
        return None
    counts = counts_to(horizon(schedule), _POINTS)
    values = np.asarray(schedule(jnp.asarray(counts)), float)
    if not np.all(np.isfinite(values)):
        return None
    low, high = float(values.min()), float(values.max())
    x = _MARGIN + (_WIDTH - 2 * _MARGIN) * counts / counts[-1]
    flat = high == low
    part = np.full_like(values, 0.5) if flat else (values - low) / (high - low)
    y = _MARGIN + (_HEIGHT - 2 * _MARGIN) * (1 - part)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    label = f"between {low:.3g} and {high:.3g} in {counts[-1]} steps"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" role="img"><title>{label}</title>'
        f'<polyline points="{points}" fill="none" stroke="#4051b5" stroke-width="1.5" '
        'stroke-linejoin="round"/></svg>'
    )


def counts_to(last: int, most: int) -> np.ndarray:
    """All counts from 0 to `last`, or `most` of them at equal distances."""
    last = min(last, np.iinfo(np.int32).max)
    return np.unique(np.linspace(0, last, min(last + 1, most)).astype(np.int32))


def horizon(schedule: "AbstractSchedule") -> int:
    """How many steps show the shape of a schedule: its length, or a few times its longest part."""
    length = schedule.steps
    if length is None:
        length = _span(schedule) or 100
    return max(math.ceil(float(length)), 1)


def _span(schedule: Any) -> float:
    """Four times the longest of the lengths that a schedule without an end names, after those of
    its parts."""
    fields = [getattr(schedule, field.name) for field in dataclasses.fields(schedule)]
    parts: list[Any] = [x for field in fields if isinstance(field, tuple) for x in field]
    parts = [part for part in parts if isinstance(part, Schedule)]
    before = sum(_span(part) if part.steps is None else float(part.steps) for part in parts)
    steps = [x for name, x in own_numbers(schedule).items() if name.endswith("steps")]
    return 4 * max(map(float, [*steps, *getattr(schedule, "boundaries", ()), 0])) + before
