"""Hyperparameters: numbers that are seen, edited, swept, differentiated and scheduled.

A field annotated `Hyperparam` (or one of the narrower names below) takes a Python number, a
scalar array or a schedule and keeps it as it is; `Number` is the same without schedules. What the
formula forbids is refused at construction for Python and NumPy numbers; arrays may be traced, so
their values are not looked at.
"""

import dataclasses
import functools
import types
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, DTypeLike, Float, Int

from .component import AbstractConverter, Component, converter_of
from .data import Arrays


class Schedule(Component):
    """Marks the modules that are evaluated at a count; see `AbstractSchedule`."""

    if TYPE_CHECKING:
        # Where formulas are computed, a schedule has been replaced by its value: to the type
        # checker a hyperparameter is something to compute with.
        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __rpow__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __gt__(self, other: Any) -> Any: ...


_INT32_MAX = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Range(AbstractConverter):
    """Metadata of a numeric field: its bounds, and whether a schedule may stand for it."""

    ge: int | float | None = None
    gt: int | float | None = None
    lt: int | float | None = None
    le: int | float | None = None
    schedules: bool = True
    whole: bool = False  # a length or a count: integers stay integers

    @property
    def rule(self) -> str:
        """The rule in words, as errors give it."""
        low, high = self.ge, self.lt
        if self.gt == 0 and high is None and self.le is None:
            return "be positive and finite" if self.whole else "be positive"
        if low is not None and high is None and self.le is None:
            return f"be at least {low:g}" + (" and finite" if self.whole else "")
        if low is None and self.gt is None and high is None and self.le is None:
            return "be a number, not NaN"
        left = f"[{low:g}" if low is not None else f"({-np.inf if self.gt is None else self.gt:g}"
        right = f"{self.le:g}]" if self.le is not None else f"{np.inf if high is None else high:g})"
        return f"be in {left}, {right}"

    def holds(self, value: int | float) -> bool:
        """Whether a concrete number keeps the rule; NaN never does."""
        return (
            value == value
            and (not self.whole or abs(value) < np.inf)
            and (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.lt is None or value < self.lt)
            and (self.le is None or value <= self.le)
        )

    def convert(self, label: str, value: Any) -> Any:
        """Checks a number's range, an array's shape and dtype, and turns NumPy into JAX."""
        if isinstance(value, Schedule) and self.schedules:
            return value
        if isinstance(value, np.generic | np.ndarray | jax.Array):
            return self._array(label, value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(self._wrong_type(label, value))
        self._check(label, value)
        return float(value) if isinstance(value, int) and abs(value) > _INT32_MAX else value

    def _array(self, label: str, value: Any) -> Array:
        real = jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer)
        if value.ndim != 0 or not real:
            raise TypeError(
                f"{label} must be a scalar; got an array of shape {value.shape} and dtype "
                f"{value.dtype}. To sweep values, build under `eqx.filter_vmap`."
            )
        if not isinstance(value, jax.Array):
            self._check(label, value.item())
        if jnp.issubdtype(value.dtype, jnp.integer) and not self.whole:
            return jnp.asarray(value, jnp.result_type(float))  # unsigned ones have no negative
        return jnp.asarray(value)

    def _check(self, label: str, value: int | float) -> None:
        if not self.holds(value):
            raise ValueError(f"{label} must {self.rule}; got {value!r}.")
        single = jnp.result_type(float) == jnp.float32
        if self.lt is not None and single and np.float32(value) >= self.lt:
            raise ValueError(f"{label} must {self.rule} in float32 too; got {value!r}.")

    def _wrong_type(self, label: str, value: Any) -> str:
        wanted = (
            "a number, a scalar array or a schedule"
            if self.schedules
            else ("a number or a scalar array")
        )
        hint = (
            " Wrap the function: `eqopt.schedules.FromFunction(fn)`."
            if self.schedules and is_function(value)
            else ""
        )
        return f"{label} must be {wanted}; got {value!r}.{hint}"


@dataclasses.dataclass(frozen=True)
class Rows(AbstractConverter):
    """Metadata of a field that holds rows of hyperparameters; a single row may be given alone.

    - `width`: how many there are in a row.
    - `presets`: pairs of a name and the rows that it stands for.
    """

    width: int
    presets: tuple[tuple[str, tuple[tuple[float, ...], ...]], ...] = ()

    def convert(self, label: str, value: Any) -> Any:
        """The rows as tuples; each entry is checked as a hyperparameter."""
        wanted = f"{label} must be a row of {self.width} numbers, or such rows"
        if isinstance(value, str):
            known = dict(self.presets)
            if value not in known:
                names = ", ".join(map(repr, known))
                raise ValueError(f"{label} must be numbers or one of {names}; got {value!r}.")
            return known[value]
        if isinstance(value, np.ndarray | jax.Array):
            if value.ndim not in (1, 2):
                raise ValueError(f"{wanted}; got an array of shape {value.shape}.")
            rows = value[None] if value.ndim == 1 else value
            value = [[rows[i, j] for j in range(rows.shape[1])] for i in range(rows.shape[0])]
        if not isinstance(value, list | tuple):
            raise TypeError(f"{wanted}; got {value!r}.")
        if not any(isinstance(row, list | tuple) for row in value):
            value = [value]
        if any(not isinstance(row, list | tuple) or len(row) != self.width for row in value):
            raise ValueError(f"{wanted}; got {value!r}.")
        checked = (tuple(Range().convert(label, x) for x in row) for row in value)
        return tuple(tuple(float(x) if type(x) is int else x for x in row) for row in checked)


@dataclasses.dataclass(frozen=True)
class Several(AbstractConverter):
    """Metadata of a field that holds several numbers: a sequence, or an array of one axis.

    - `each`: the rule for each of them.
    - `increasing`: whether each must be above the one before.
    """

    each: Range
    increasing: bool = False

    def convert(self, label: str, value: Any) -> tuple[Any, ...]:
        """The numbers as a tuple; each is checked as a hyperparameter."""
        is_array = isinstance(value, np.ndarray | jax.Array) and value.ndim == 1
        if not is_array and not isinstance(value, list | tuple):
            raise TypeError(f"{label} must be a sequence of numbers; got {value!r}.")
        given = [value[i] for i in range(len(value))]
        known = [x.item() if isinstance(x, np.generic | np.ndarray) else x for x in given]
        known = [x for x in known if isinstance(x, int | float)]
        if self.increasing and any(second <= first for first, second in pairwise(known)):
            raise ValueError(f"{label} must increase; got {known}.")
        place = label.removesuffix("`")
        return tuple(self.each.convert(f"{place}[{i}]`", x) for i, x in enumerate(given))


def is_whole(field: Any) -> bool:
    """Whether integers in a field are lengths, counts or seeds."""
    rule = converter_of(field.type)
    if isinstance(rule, Several):
        return rule.each.whole
    if isinstance(rule, Range):
        return rule.whole
    return field.metadata.get("whole", False) or not (
        rule is None or isinstance(rule, Rows | Arrays)
    )


def is_function(x: Any) -> bool:
    """Whether something is a plain function or method, not a module that can be called."""
    return isinstance(x, types.FunctionType | types.BuiltinFunctionType | types.MethodType)


Numeric: TypeAlias = int | float | Float[Array, ""] | Int[Array, ""]

Hyperparam: TypeAlias = Annotated[Numeric | Schedule, Range()]
"""A number, a scalar array or a schedule."""
NonNegative: TypeAlias = Annotated[Numeric | Schedule, Range(ge=0)]
"""A hyperparameter that is at least 0."""
Positive: TypeAlias = Annotated[Numeric | Schedule, Range(gt=0)]
"""A hyperparameter above 0."""
AtLeastOne: TypeAlias = Annotated[Numeric | Schedule, Range(ge=1)]
"""A hyperparameter that is at least 1."""
Decay: TypeAlias = Annotated[Numeric | Schedule, Range(ge=0, lt=1)]
"""The decay rate of a running mean: a hyperparameter in [0, 1)."""

UnitInterval: TypeAlias = Annotated[Numeric | Schedule, Range(ge=0, le=1)]
"""A hyperparameter in [0, 1]."""

Steps: TypeAlias = Annotated[Numeric, Range(gt=0, schedules=False, whole=True)]
"""The length of a schedule: a finite number above 0, no schedule."""
WarmupSteps: TypeAlias = Annotated[Numeric, Range(ge=0, schedules=False, whole=True)]
"""The length of the beginning of a schedule: a finite number of at least 0, no schedule."""
Boundaries: TypeAlias = Annotated[
    Sequence[Any], Several(Range(gt=0, schedules=False, whole=True), increasing=True)
]
"""Counts at which the parts of a schedule after the first begin: positive and increasing."""
Number: TypeAlias = Annotated[Numeric, Range(schedules=False)]
"""A number or a scalar array, where a schedule makes no sense: in a schedule."""
PositiveNumber: TypeAlias = Annotated[Numeric, Range(gt=0, schedules=False)]
"""A number above 0, no schedule."""
NonNegativeNumber: TypeAlias = Annotated[Numeric, Range(ge=0, schedules=False)]
"""A number of at least 0, no schedule."""
Portion: TypeAlias = Annotated[Numeric, Range(ge=0, le=1, schedules=False)]
"""A number in [0, 1], no schedule."""
Numbers: TypeAlias = Annotated[Sequence[Any], Several(Range(schedules=False))]
"""Several numbers, no schedules."""


@dataclasses.dataclass(frozen=True)
class _AsDtype(AbstractConverter):
    kind: Any
    rule: str

    def convert(self, label: str, value: Any) -> np.dtype:
        try:
            dtype = jnp.dtype(value)
        except TypeError:
            dtype = None
        if dtype is None or not jnp.issubdtype(dtype, self.kind):
            raise ValueError(f"{label} must be a {self.rule} dtype; got {value!r}.")
        return dtype


FloatDtype: TypeAlias = Annotated[DTypeLike, _AsDtype(jnp.floating, "real floating")]
"""The dtype of a part of a state: float32, bfloat16, ..."""
InexactDtype: TypeAlias = Annotated[DTypeLike, _AsDtype(jnp.inexact, "floating or complex")]
"""The dtype of a parameter: float32, complex64, ..."""


@functools.cache
def _fields_with(kind: type[Component], converter: type[AbstractConverter]) -> tuple[str, ...]:
    """The names of a class's fields whose annotation carries such a converter."""
    fields = dataclasses.fields(kind)
    return tuple(x.name for x in fields if isinstance(converter_of(x.type), converter))


def own_numbers(component: Component) -> dict[str, Any]:
    """The hyperparameters among a component's own fields, by name; `None`s left out."""
    return _held(component, Range)


def own_rows(component: Component) -> dict[str, Any]:
    """The rows of hyperparameters among a component's own fields, by name; `None`s left out."""
    return _held(component, Rows)


def _held(component: Component, converter: type[AbstractConverter]) -> dict[str, Any]:
    names = _fields_with(type(component), converter)
    return {name: x for name in names if (x := getattr(component, name)) is not None}


def _parts(component: Component) -> dict[str, Any]:
    """The numbers among the parts of what an operator or a list built."""
    return {
        field.name: tuple(x for x in value if not isinstance(x, Component))
        for field in dataclasses.fields(component)
        if isinstance(component, Schedule)
        and isinstance(value := getattr(component, field.name), tuple)
    }


def check_scalars(component: Component) -> None:
    """Batched hyperparameters belong under `filter_vmap`."""
    for name, value in (own_numbers(component) | own_rows(component) | _parts(component)).items():
        for x in jax.tree.leaves(value, is_leaf=lambda x: isinstance(x, Schedule)):
            if getattr(x, "ndim", 0):
                raise ValueError(
                    f"`{type(component).__name__}({name}=...)` must be a scalar where it is used; "
                    f"got shape {x.shape}. Use batched hyperparameters under `eqx.filter_vmap`."
                )
