"""What every public class of eqopt is: an immutable module whose fields check themselves.

The annotation of a field may carry a converter (see `Hyperparam` and `Where`). The value given
at construction goes through it, so that the rules of a hyperparameter stand once, in its type,
and an error names class, argument, rule and value.
"""

import dataclasses
import inspect
import types
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Any, get_args, get_origin

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import wadler_lindig as wl
from jax.core import Tracer


class AbstractConverter(ABC):
    """Annotation metadata: turns what the user gave for a field into what the field holds."""

    @abstractmethod
    def convert(self, label: str, value: Any) -> Any:
        """The field's value; raises an error that starts with `label` where `value` is not
        allowed."""


class Flag(AbstractConverter):
    """The converter of every field annotated `bool`."""

    def convert(self, label: str, value: Any) -> bool:
        """A bool of Python or NumPy; what is only true or false in effect is a mistake."""
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{label} must be True or False; got {value!r}.")
        return bool(value)


def converter_of(annotation: Any) -> AbstractConverter | None:
    """The converter that an annotation carries, also within a union."""
    # A string where the module defers the evaluation of annotations.
    return Flag() if annotation in (bool, "bool") else _carried(annotation)


def _carried(annotation: Any) -> AbstractConverter | None:
    if get_origin(annotation) is eqx.AbstractVar:  # a promise, not a field
        return None
    for part in get_args(annotation):
        if isinstance(part, AbstractConverter):
            return part
        if (found := _carried(part)) is not None:
            return found
    return None


def _inherited(cls: type) -> dict[str, dataclasses.Field[Any]]:
    """The fields with a converter that a class has from another one."""
    own = cls.__dict__.keys() | inspect.get_annotations(cls).keys()
    bases = [base for base in reversed(cls.__mro__[1:]) if dataclasses.is_dataclass(base)]
    fields = {field.name: field for base in bases for field in dataclasses.fields(base)}
    return {
        name: field
        for name, field in fields.items()
        if name not in own and converter_of(field.type) is not None
    }


def _optional(annotation: Any) -> bool:
    return type(None) in get_args(annotation)


def _convert(converter: AbstractConverter, label: str, optional: bool, value: Any) -> Any:
    if value is None and optional:
        return None
    return converter.convert(label, value)


class Component(eqx.Module):
    """Base of transforms, schedules, projections and selectors."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        again = _inherited(cls)  # declared anew, so that errors name the concrete class
        inherited = {name: field.type for name, field in again.items()}
        cls.__annotations__ = inspect.get_annotations(cls) | inherited
        for name, field in again.items():
            setattr(cls, name, copy(field))
        for name, annotation in inspect.get_annotations(cls).items():
            converter = converter_of(annotation)
            default = cls.__dict__.get(name, dataclasses.MISSING)
            if converter is None:
                continue
            label = f"`{cls.__name__}({name}=...)`"
            convert = partial(_convert, converter, label, _optional(annotation))
            if isinstance(default, dataclasses.Field):
                given = default.metadata.get("converter")
                if given is not None and getattr(given, "func", None) is not _convert:
                    continue  # one of the class's own
                default.metadata = types.MappingProxyType(
                    {**default.metadata, "converter": convert}
                )
                continue
            given = {} if default is dataclasses.MISSING else {"default": default}
            setattr(cls, name, eqx.field(converter=convert, **given))

    def __pdoc__(self, **kwargs: Any) -> wl.AbstractDoc:
        """How the instance prints: the fields that differ from their defaults, with the values
        of scalar arrays."""
        shown = [
            (field.name, _printable(value))
            for field in dataclasses.fields(self)
            if not _is_default(value := getattr(self, field.name), field.default)
        ]
        return wl.bracketed(
            begin=wl.TextDoc(f"{type(self).__name__}("),
            docs=wl.named_objs(shown, **kwargs),
            sep=wl.comma,
            end=wl.TextDoc(")"),
            indent=kwargs["indent"],
        )


def infix(operator: str, parts: Sequence[Any], **kwargs: Any) -> wl.AbstractDoc:
    """Prints `a >> b >> c`, one a line where they don't fit."""
    separator = wl.BreakDoc(" ") + wl.TextDoc(f"{operator} ")
    return wl.join(separator, [wl.pdoc(part, **kwargs) for part in parts])


def _is_default(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if type(value) is not type(default):
        return False
    if isinstance(value, tuple):
        return len(value) == len(default) and all(map(_is_default, value, default))
    return isinstance(value, bool | int | float | str) and value == default


class _Text:
    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _printable(value: Any) -> Any:
    if isinstance(value, jax.Array) and value.ndim == 0 and not isinstance(value, Tracer):
        if jnp.issubdtype(value.dtype, jax.dtypes.extended):
            return value
        return _Text(f"Array({np.asarray(value)[()]})")
    if type(value) is tuple:
        return tuple(map(_printable, value))
    if type(value) is list:
        return list(map(_printable, value))
    if type(value) is dict:
        return {key: _printable(x) for key, x in value.items()}
    if isinstance(value, np.dtype):
        return _Text(value.name)
    return value
