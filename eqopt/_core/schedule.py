"""Schedules: a value for each count.

`a >> b` runs `a` for its `steps`, then `b` from its own zero. Schedules and numbers combine with
`+`, `-` and `*`.
"""

import html
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import wadler_lindig as wl
from equinox import AbstractVar
from jaxtyping import Array, Float, Real

from .component import infix
from .curve import curve
from .data import known
from .hyperparam import Range, Schedule, check_scalars, is_function


class AbstractSchedule(Schedule):
    """A function of the number of updates seen so far: the first update sees `schedule(0)`.

    - `steps`: the length after which the schedule stays at its last value; `None` without an end.
    """

    if TYPE_CHECKING:  # not a field: it would be the first argument of every schedule
        steps = cast(Any, None)
    else:
        steps: AbstractVar[Any]  # a number, a scalar array or None; a field or a property

    @abstractmethod
    def _value(self, count: Real[Array, "*counts"]) -> Array:
        """The value at counts that are never negative."""

    def __call__(self, count: int | float | Real[Any, "*counts"]) -> Float[Array, "*counts"]:
        """The value at a count, or at each of an array of counts, in the default float dtype."""
        check_scalars(self)
        count = jnp.asarray(count)
        value = jnp.asarray(self._value(jnp.maximum(count, 0)), jnp.result_type(float))
        return jnp.broadcast_to(value, count.shape)

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the schedule as it prints, and its curve."""
        picture = curve(self)
        return picture and f"<div><pre>{html.escape(repr(self))}</pre>{picture}</div>"

    def __rshift__(self, other: "AbstractSchedule") -> "Sequential":
        if not isinstance(other, AbstractSchedule):
            return _refuse_function(other)
        return Sequential(*_phases(self), *_phases(other))

    def __rrshift__(self, other: Any) -> "Sequential":
        return _refuse_function(other)

    def __add__(self, other: Any) -> "Sum":
        return Sum(self, _term("+", other))

    def __radd__(self, other: Any) -> "Sum":
        return Sum(_term("+", other), self)

    def __mul__(self, other: Any) -> "Product":
        return Product(self, _term("*", other))

    def __rmul__(self, other: Any) -> "Product":
        return Product(_term("*", other), self)

    def __neg__(self) -> "Product":
        return Product(-1.0, self)

    def __sub__(self, other: Any) -> "Sum":
        return Sum(self, -_term("-", other))

    def __rsub__(self, other: Any) -> "Sum":
        return Sum(_term("-", other), -self)


def fraction(count: Real[Array, "*counts"], steps: Any) -> Float[Array, "*counts"]:
    """`count / steps` in [0, 1]; 1 where `steps` is a traced 0."""
    steps = jnp.asarray(steps, jnp.result_type(float))
    done = jnp.clip(count.astype(steps.dtype) / jnp.where(steps > 0, steps, 1), 0, 1)
    return jnp.where(steps > 0, done, 1.0)


def interpolate(start: Any, end: Any, weight: Float[Array, "*counts"]) -> Array:
    """From `start` at weight 0 to `end` at weight 1, exact at both and never beyond them."""
    start = jnp.asarray(start, jnp.result_type(float))
    end = jnp.asarray(end, jnp.result_type(float))
    value = start * (1 - weight) + end * weight
    inside = jnp.clip(value, jnp.minimum(start, end), jnp.maximum(start, end))
    return value + jax.lax.stop_gradient(inside - value)


def line(x: Float[Array, "*counts"]) -> Float[Array, "*counts"]:
    """From 0 at 0 to 1 at 1 in a straight line."""
    return x


def half_cosine(x: Float[Array, "*counts"]) -> Float[Array, "*counts"]:
    """From 0 at 0 to 1 at 1 along half a cosine, flat at both ends."""
    return jnp.square(jnp.sin(jnp.pi / 2 * x))


def check_warmup(schedule: AbstractSchedule, warmup_steps: Any, steps: Any, name: str) -> None:
    """Raises where a warm-up is as long as what it is the beginning of.

    - `name`: the field that holds `steps`.
    """
    start, length = known(warmup_steps), known(steps)
    if start is not None and length is not None and start >= length:
        raise ValueError(
            f"`{type(schedule).__name__}(warmup_steps=...)` must be below `{name}`; got "
            f"warmup_steps={start} and {name}={length}."
        )


def _refuse_function(other: Any) -> Any:
    """The answer to `>>` with what is no schedule."""
    if is_function(other):
        raise TypeError(
            f"`>>` with a schedule must have a schedule on the other side; got {other!r}. Wrap the "
            "function: `eqopt.schedules.FromFunction(fn)`."
        )
    return NotImplemented


def _term(operator: str, other: Any) -> Any:
    if isinstance(other, AbstractSchedule):
        return other
    return Range().convert(f"The operand of `{operator}` with a schedule", other)


def total(lengths: Sequence[Any]) -> Any:
    """The sum of lengths: a number if all are, else an array; whole ones saturate."""
    if all(isinstance(steps, int | float) for steps in lengths):
        return sum(lengths)
    if any(jnp.issubdtype(jnp.result_type(steps), jnp.floating) for steps in lengths):
        return sum(jnp.asarray(steps, float) for steps in lengths)
    largest = jnp.iinfo(jnp.int32).max
    whole = jnp.zeros((), jnp.int32)
    for steps in lengths:
        steps = jnp.asarray(steps, jnp.int32)
        whole = jnp.where(steps > largest - whole, largest, whole + steps)
    return whole


def _evaluate(term: Any, count: Array) -> Array:
    return term(count) if isinstance(term, AbstractSchedule) else jnp.asarray(term, float)


def _longest(terms: Sequence[Any]) -> Any:
    """The steps after which all terms stand still; numbers always do."""
    lengths = [term.steps for term in terms if isinstance(term, AbstractSchedule)]
    if any(steps is None for steps in lengths):
        return None
    longest = lengths[0]
    for steps in lengths[1:]:
        both = isinstance(longest, int | float) and isinstance(steps, int | float)
        longest = max(longest, steps) if both else jnp.maximum(longest, steps)
    return longest


class Sum(AbstractSchedule):
    """The sum of schedules and numbers; `a + b` builds it.

    - `terms`: schedules or numbers.

    >>> from eqopt import schedules
    >>> schedule = schedules.Linear(0.0, 1.0, steps=2) + schedules.Linear(1.0, 0.0, steps=4)
    >>> [float(schedule(t)) for t in (0, 1, 2, 3, 4, 5)]
    [1.0, 1.25, 1.5, 1.25, 1.0, 1.0]
    """

    terms: tuple[Any, ...]

    def __init__(self, *terms: Any):
        self.terms = terms

    @property
    def steps(self) -> Any:
        """The longest length among the schedules."""
        return _longest(self.terms)

    def _value(self, count: Array) -> Array:
        return sum((_evaluate(term, count) for term in self.terms), jnp.zeros(()))


class Product(AbstractSchedule):
    """The product of schedules and numbers; `a * b` builds it.

    - `factors`: schedules or numbers.

    >>> from eqopt import schedules
    >>> schedule = 2.0 * schedules.Linear(0.0, 1.0, steps=2)
    >>> [float(schedule(t)) for t in (0, 1, 2, 3)]
    [0.0, 1.0, 2.0, 2.0]
    """

    factors: tuple[Any, ...]

    def __init__(self, *factors: Any):
        self.factors = factors

    @property
    def steps(self) -> Any:
        """The longest length among the schedules."""
        return _longest(self.factors)

    def _value(self, count: Array) -> Array:
        value = jnp.ones(())
        for factor in self.factors:
            value = value * _evaluate(factor, count)
        return value


def _phases(schedule: AbstractSchedule) -> tuple[AbstractSchedule, ...]:
    return schedule.phases if isinstance(schedule, Sequential) else (schedule,)


class Sequential(AbstractSchedule):
    """One schedule after the other, each for its `steps`; `a >> b` builds it.

    - `phases`: the schedules; each but the last has an end.

    **Raises** `ValueError` if a schedule without an end is not the last.

    >>> from eqopt import schedules
    >>> schedule = schedules.Linear(0.0, 1.0, steps=2) >> schedules.Linear(2.0, 1.0, steps=4)
    >>> [float(schedule(t)) for t in (0, 1, 2, 3, 6, 7)]
    [0.0, 0.5, 2.0, 1.75, 1.0, 1.0]
    """

    phases: tuple[AbstractSchedule, ...]

    def __init__(self, *phases: AbstractSchedule):
        self.phases = phases

    def __check_init__(self) -> None:
        if not self.phases:
            raise ValueError("`Sequential(...)` must have at least one schedule.")
        for phase in self.phases:
            if not isinstance(phase, AbstractSchedule):
                raise TypeError(f"`Sequential(...)` must be given schedules; got {phase!r}.")
        for phase in self.phases[:-1]:
            if phase.steps is None:
                raise ValueError(
                    f"`a >> b` must have an end to `a`; {phase!r} has none (`steps` is None), so "
                    "it can only come last."
                )

    @property
    def steps(self) -> Any:
        """The sum of the phases' lengths; `None` if the last has no end."""
        lengths = [phase.steps for phase in self.phases]
        return None if lengths[-1] is None else total(lengths)

    def _value(self, count: Array) -> Array:
        return joined(self.phases, [phase.steps for phase in self.phases[:-1]], count)

    def __pdoc__(self, **kwargs: Any) -> wl.AbstractDoc:
        return infix(">>", self.phases, **kwargs)


def joined(
    schedules: Sequence[Callable[[Array], Array]], lengths: Sequence[Any], count: Array
) -> Array:
    """The value of the schedule that is active at `count`, each for its length, the last for ever.

    Each begins at its own zero; one of length 0 is skipped. One that is not active is evaluated at
    the nearest end of its own span, so that it never sees a count outside it. No lengths are
    summed, so none overflows.

    - `schedules`: schedules, or functions of the count.
    - `lengths`: those of all schedules but the last.
    """
    value, reached = jnp.zeros(()), jnp.asarray(True)
    for i, schedule in enumerate(schedules):
        if i == len(lengths):
            return jnp.where(reached, schedule(count), value)
        count, length = alike(count, lengths[i])
        value = jnp.where(reached, schedule(jnp.minimum(count, length)), value)
        reached = reached & (count >= length)
        count = jnp.maximum(count - length, 0)
    return value


def through(
    values: Sequence[Any], lengths: Sequence[Any], count: Array, ease: Callable[[Array], Array]
) -> Array:
    """From each value to the next in its length, then the last for ever.

    - `ease`: how far it is between two values, 0 to 1, from the fraction of the length.
    """
    legs = [
        partial(_leg, start, end, length, ease)
        for (start, end), length in zip(pairwise(values), lengths, strict=True)
    ]
    return joined(legs, lengths[:-1], count)


def _leg(start: Any, end: Any, length: Any, ease: Callable[[Array], Array], count: Array) -> Array:
    return interpolate(start, end, ease(fraction(count, length)))


def alike(count: Array, length: Any) -> tuple[Array, Array]:
    """A count and a length in one dtype: integers as long as both are whole."""
    whole = jnp.issubdtype(count.dtype, jnp.integer)
    if whole and isinstance(length, int | float) and length == int(length):
        length = jnp.asarray(min(int(length), jnp.iinfo(count.dtype).max), count.dtype)
    length = jnp.asarray(length)
    if jnp.issubdtype(length.dtype, jnp.floating):
        return count.astype(length.dtype), length
    return count, length.astype(count.dtype)
