"""Schedules: a value for each count.

`a >> b` runs `a` for its `steps`, then `b` from its own zero. Schedules and numbers combine with
`+`, `-` and `*`.
"""

import html
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import jax.numpy as jnp
import wadler_lindig as wl
from equinox import AbstractVar
from jaxtyping import Array, Float, Real

from .component import infix
from .curve import curve
from .data import known
from .hyperparam import Range, Schedule, check_scalars, is_function
from .phases import at_least_int32, joined, total


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
        if jnp.issubdtype(count.dtype, jnp.integer):
            count = at_least_int32(count)
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
        return Sum(self, _operand("+", other))

    def __radd__(self, other: Any) -> "Sum":
        return Sum(_operand("+", other), self)

    def __mul__(self, other: Any) -> "Product":
        return Product(self, _operand("*", other))

    def __rmul__(self, other: Any) -> "Product":
        return Product(_operand("*", other), self)

    def __neg__(self) -> "Product":
        return Product(-1.0, self)

    def __sub__(self, other: Any) -> "Sum":
        return Sum(self, -_operand("-", other))

    def __rsub__(self, other: Any) -> "Sum":
        return Sum(_operand("-", other), -self)


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


def _operand(operator: str, other: Any) -> Any:
    return _term(f"The operand of `{operator}` with a schedule", other)


def _term(label: str, given: Any) -> Any:
    return given if isinstance(given, AbstractSchedule) else Range().convert(label, given)


def _check_terms(schedule: AbstractSchedule, terms: tuple[Any, ...]) -> None:
    if not any(isinstance(term, AbstractSchedule) for term in terms):
        raise ValueError(
            f"`{type(schedule).__name__}(...)` must be given at least one schedule; got {terms}."
        )


def _evaluate(term: Any, count: Array) -> Array:
    return term(count) if isinstance(term, AbstractSchedule) else jnp.asarray(term, float)


def _longest(terms: Sequence[Any]) -> Any:
    """The steps after which all terms stand still; numbers always do."""
    lengths = [term.steps for term in terms if isinstance(term, AbstractSchedule)]
    if not lengths:  # where an edit left only numbers
        return 0
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

    **Raises** `TypeError` if a term is something else, `ValueError` if none is a schedule.

    >>> from eqopt import schedules
    >>> schedule = schedules.Linear(0.0, 1.0, steps=2) + schedules.Linear(1.0, 0.0, steps=4)
    >>> [float(schedule(t)) for t in (0, 1, 2, 3, 4, 5)]
    [1.0, 1.25, 1.5, 1.25, 1.0, 1.0]
    """

    terms: tuple[Any, ...]

    def __init__(self, *terms: Any):
        self.terms = tuple(_term("`Sum(...)`", term) for term in terms)

    def __check_init__(self) -> None:
        _check_terms(self, self.terms)

    @property
    def steps(self) -> Any:
        """The longest length among the schedules."""
        return _longest(self.terms)

    def _value(self, count: Array) -> Array:
        return sum((_evaluate(term, count) for term in self.terms), jnp.zeros(()))


class Product(AbstractSchedule):
    """The product of schedules and numbers; `a * b` builds it.

    - `factors`: schedules or numbers.

    **Raises** `TypeError` if a factor is something else, `ValueError` if none is a schedule.

    >>> from eqopt import schedules
    >>> schedule = 2.0 * schedules.Linear(0.0, 1.0, steps=2)
    >>> [float(schedule(t)) for t in (0, 1, 2, 3)]
    [0.0, 1.0, 2.0, 2.0]
    """

    factors: tuple[Any, ...]

    def __init__(self, *factors: Any):
        self.factors = tuple(_term("`Product(...)`", factor) for factor in factors)

    def __check_init__(self) -> None:
        _check_terms(self, self.factors)

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
