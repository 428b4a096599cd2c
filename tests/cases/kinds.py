"""What an entry of the tables holds."""

from collections.abc import Callable
from typing import Any, NamedTuple

import trees

import eqopt
from eqopt import projections, schedules


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
