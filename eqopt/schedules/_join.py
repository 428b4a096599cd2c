"""Schedules one after the other, at explicit boundaries."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from jaxtyping import Array

from .._core.hyperparam import Boundaries, is_function
from .._core.phases import joined, total
from .._core.schedule import AbstractSchedule


class Join(AbstractSchedule):
    """Runs schedules one after the other, from one boundary to the next; each begins at its own
    zero at its boundary.

    `a >> b` does the same with the lengths of the schedules as the boundaries.

    - `schedules`: at least one schedule.
    - `boundaries`: the counts at which the second, third, ... schedule begins: positive numbers or
      scalar arrays in increasing order, one fewer than the schedules.

    **Raises** `ValueError` if the number or the order of the boundaries is wrong.

    >>> import jax.numpy as jnp
    >>> from eqopt import schedules
    >>> late = schedules.FromFunction(lambda t: 10.0 + t)
    >>> schedule = schedules.Join([schedules.Constant(1.0), late], [3])
    >>> [float(schedule(t)) for t in (0, 2, 3, 4)]
    [1.0, 1.0, 10.0, 11.0]
    """

    schedules: tuple[AbstractSchedule, ...]
    boundaries: Boundaries

    def __init__(self, schedules: Sequence[Any], boundaries: Boundaries):
        self.schedules = tuple(schedules)
        self.boundaries = boundaries

    def __check_init__(self) -> None:
        if not self.schedules:
            raise ValueError("`Join(schedules=...)` must have at least one schedule; got none.")
        for i, schedule in enumerate(self.schedules):
            if not isinstance(schedule, AbstractSchedule):
                hint = " Wrap the function: `eqopt.schedules.FromFunction(fn)`."
                raise TypeError(
                    f"`Join(schedules=...)[{i}]` must be a schedule; got {schedule!r}."
                    + (hint if is_function(schedule) else "")
                )
        if len(self.schedules) != len(self.boundaries) + 1:
            raise ValueError(
                "`Join(boundaries=...)` must have one boundary fewer than there are schedules; got "
                f"{len(self.boundaries)} boundaries for {len(self.schedules)} schedules."
            )

    @property
    def steps(self) -> Any:
        """The last boundary plus the length of the last schedule; `None` if that has no end."""
        last = self.schedules[-1].steps
        if last is None or not self.boundaries:
            return last
        return total([self.boundaries[-1], last])

    def _value(self, count: Array) -> Array:
        starts = (0, *self.boundaries)
        lengths = [end - start for start, end in pairwise(starts)]
        return joined(self.schedules, lengths, count)
