"""Contract type check, at construction: a number or flag of a wrong type or value raises an error
that names class, argument, rule and value; what is right is kept as it was given."""

import dataclasses
import re

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt
from eqopt import schedules
from eqopt._core.component import converter_of
from eqopt._core.hyperparam import Range


def _instances():
    """Of each class in the table the instance with the most numbers."""
    tables = [case.optim for case in cases.TRANSFORMS.values()]
    tables += [case.schedule for case in cases.SCHEDULES.values()]
    tables += [case.projection for case in cases.PROJECTIONS.values()]
    tables.sort(key=lambda instance: len(jax.tree.leaves(instance)))
    return {type(instance): instance for instance in tables}


INSTANCES = _instances()
FIELDS = {
    f"{cls.__module__}.{cls.__name__}.{field.name}": (cls, field)
    for cls in INSTANCES
    for field in dataclasses.fields(cls)
    if isinstance(converter_of(field.type), Range)
}


def _build(cls, name, value):
    """The instance of the table with another value in one field."""
    instance = INSTANCES[cls]
    fields = {field.name: getattr(instance, field.name) for field in dataclasses.fields(cls)}
    return cls(**{**fields, name: value})


def _plain_function(count):
    return 0.1


def _wrong_types():
    return [
        True,
        "0.1",
        _plain_function,
        jnp.sin,
        [0.1],
        (0.1,),
        {"a": 0.1},
        1j,
        object(),
        eqopt.Adam,
        np.bool_(True),
        np.ones(2),
        jnp.ones((1,)),
        jnp.asarray(True),
        jnp.asarray(1j),
    ]


def _wrong_values(bounds):
    """Numbers that the bounds forbid, as Python and NumPy scalars; NaN is always one."""
    wrong = [float("nan")]
    if bounds.ge is not None:
        wrong += [bounds.ge - 1, bounds.ge - 1e-3, float("-inf")]
    if bounds.gt is not None:
        wrong += [bounds.gt, float(bounds.gt), bounds.gt - 1]
    if bounds.lt is not None:
        wrong += [bounds.lt, float(bounds.lt), bounds.lt + 0.5, float("inf")]
    if bounds.le is not None:
        wrong += [bounds.le + 1, bounds.le + 1e-3, float("inf")]
    return wrong + [np.float32(x) for x in wrong] + [np.asarray(x) for x in wrong[:2]]


def _accepted(cls, field):
    """What is not right about the errors of one field's wrong values."""
    bounds = converter_of(field.type)
    label = f"`{cls.__name__}({field.name}=...)` must "
    forbidden = [(value, TypeError, "be a") for value in _wrong_types()]
    if not bounds.schedules:
        forbidden.append((schedules.Constant(0.1), TypeError, "be a"))
    if type(None) not in getattr(field.type, "__args__", ()):
        forbidden.append((None, TypeError, "be a"))
    forbidden += [(value, ValueError, bounds.rule) for value in _wrong_values(bounds)]
    for value, kind, rule in forbidden:
        shown = repr(value.item() if isinstance(value, np.generic) else value)
        if isinstance(value, jax.Array | np.ndarray | np.bool_):
            shown = "" if kind is ValueError else f"shape {np.shape(value)}"
        try:
            _build(cls, field.name, value)
        except kind as error:
            words = (label, rule, shown)
            if missing := [word for word in words if word not in str(error)]:
                yield f"{label}{value!r}: the error does not name {missing}: {error}"
        except Exception as error:
            yield f"{label}{value!r}: {type(error).__name__}, not {kind.__name__}: {error}"
        else:
            yield f"{label}{value!r}: no error"


@pytest.mark.parametrize("field", FIELDS)
def test_wrong_values_at_construction(field):
    """A value of a wrong type, or out of the field's range, raises at construction; the error
    names class, argument, rule and value."""
    assert not list(_accepted(*FIELDS[field]))


@pytest.mark.parametrize("field", FIELDS)
def test_right_values_at_construction(field):
    """A number of Python or NumPy, a scalar array, a tracer and, where they make sense, a schedule
    are taken, and kept as what they are."""
    cls, field = FIELDS[field]
    value = getattr(INSTANCES[cls], field.name)
    number = 0.5 if not isinstance(value, int | float) else value
    assert getattr(_build(cls, field.name, number), field.name) is number
    for given in (np.float32(number), np.asarray(number), jnp.asarray(number)):
        kept = getattr(_build(cls, field.name, given), field.name)
        assert isinstance(kept, jax.Array) and kept.shape == () and kept == given
    jax.eval_shape(lambda x: getattr(_build(cls, field.name, x), field.name), number)
    if converter_of(field.type).schedules:
        schedule = schedules.Linear(number, number, steps=3)
        assert getattr(_build(cls, field.name, schedule), field.name) is schedule


FLAGS = {
    f"{cls.__module__}.{cls.__name__}.{field.name}": (cls, field)
    for cls in INSTANCES
    for field in dataclasses.fields(cls)
    if field.type is bool
}


@pytest.mark.parametrize("field", FLAGS)
def test_flags_at_construction(field):
    """A flag is a bool of Python or NumPy, no number, no word and no array; the error names class,
    argument, rule and value."""
    cls, field = FLAGS[field]
    kept = getattr(_build(cls, field.name, np.bool_(False)), field.name)
    assert kept is False
    label = re.escape(f"`{cls.__name__}({field.name}=...)` must be True or False; got ")
    for wrong in (1, "no", None, jnp.asarray(True)):
        with pytest.raises(TypeError, match=label + re.escape(f"{wrong!r}.")):
            _build(cls, field.name, wrong)


class Mixin(eqx.Module):
    """A base of a user's that is no part of eqopt."""

    label: str = "x"


class Mixed(Mixin, eqopt.ScaleByAdam):
    """A user's class with another base first, and a flag with a converter of its own."""

    flag: bool = eqx.field(static=True, default=False, converter=bool)


class Deferred(eqopt.SGD):
    """As in a module with `from __future__ import annotations`."""

    nesterov: "bool" = True


def test_classes_of_users():
    """Errors name the class, a converter of its own is left alone, also further down, and deferred
    annotations are read."""

    class Below(Mixed):
        pass

    for cls in (Mixed, Below):
        assert cls(flag=1).flag is True
        with pytest.raises(ValueError, match=rf"`{cls.__name__}\(b1=...\)` must be"):
            cls(b1=2.0)
    assert Deferred(0.1).nesterov is True
    with pytest.raises(
        TypeError, match=r"`Deferred\(nesterov=...\)` must be True or False; got 'no'"
    ):
        Deferred(0.1, nesterov="no")


def test_functions_are_told_where_they_belong():
    """A plain function in the place of a schedule is answered with `FromFunction`."""
    with pytest.raises(
        TypeError, match=r"`SGD\(learning_rate=...\)`.*`eqopt.schedules.FromFunction"
    ):
        eqopt.SGD(_plain_function)
