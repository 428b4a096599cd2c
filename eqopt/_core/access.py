"""Looking into optimizers and their states: find, replace, list hyperparameters."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from .boundary import check_state_type, snake_case
from .component import Component
from .hyperparam import is_whole, own_numbers, own_rows
from .leafwise import check_same_paths
from .leaves import paths_and_leaves, plain
from .optimizer import AbstractOptimizer
from .transform import AbstractTransform, Member, State, at_count, replace_fields
from .types import OptState

Found = TypeVar("Found")
Optim = TypeVar("Optim", bound=Component)


def find(state: OptState, kind: type[Found]) -> Found:
    """The one part of a state that is an instance of `kind`, such as `eqopt.ScaleByAdamState`.

    It works inside `eqx.tree_at` too. **Raises** `LookupError` if there is none or more than one.
    """
    found = find_all(state, kind)
    if len(found) != 1:
        how = "none" if not found else f"{len(found)}; use `eqopt.find_all`"
        raise LookupError(
            f"`find(kind={kind.__name__})` must match one part of the state; got {how}."
        )
    return found[0]


def find_all(state: OptState, kind: type[Found]) -> list[Found]:
    """All parts of a state that are instances of `kind`, in order; none inside another."""
    leaves = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, kind))
    return [leaf for leaf in leaves if isinstance(leaf, kind)]


def replace(state: OptState, kind: type[Any], **fields: Any) -> OptState:
    """The state with new values in some fields of its one part of type `kind`.

    `eqopt.replace(state, eqopt.TraceState, trace=zeros)`. **Raises** `LookupError` as `find` does,
    `ValueError` if a value does not have the structure, shapes and dtypes of the old one.
    """
    old = find(state, kind)
    for name, value in fields.items():
        if not hasattr(old, name):
            raise ValueError(f"`replace({name}=...)` must be a field of `{kind.__name__}`.")
        _check_like(f"`replace({name}=...)`", value, getattr(old, name))
    fields = {
        name: jax.tree.map(_as_typed, value, getattr(old, name)) for name, value in fields.items()
    }
    names = list(fields)
    return eqx.tree_at(
        lambda s: [getattr(find(s, kind), name) for name in names],
        state,
        [fields[name] for name in names],
        is_leaf=lambda x: x is None,
    )


def _as_typed(new: Any, old: Any) -> Any:
    """A number or NumPy array as an array of the old one's type."""
    return jnp.asarray(new, old.dtype) if isinstance(old, jax.Array) else new


def _check_like(label: str, new: Any, old: Any) -> None:
    check_same_paths(label, new, "the field", old)
    for (path, x), y in zip(paths_and_leaves(new), jax.tree.leaves(old), strict=True):
        if jnp.shape(x) != jnp.shape(y) or jnp.result_type(x) != jnp.result_type(y):
            raise ValueError(
                f"{label} must be like the field; at `{path}` it is {jax.typeof(x).str_short()}, "
                f"the field {jax.typeof(y).str_short()}."
            )


def hyperparameters(optim: AbstractTransform, state: OptState) -> dict[str, Any]:
    """The hyperparameters in force at the next update: a flat dict from path to value.

    A key is the name given to the member in its chain, else optax's name for it, and the field:
    `"adamw.learning_rate"`, `"clip_by_global_norm.max_norm"`; members of one name are told apart
    by `[0]`, `[1]`. Schedules are evaluated at the state's count. Traceable.

    - `optim`: the transformation.
    - `state`: its state.
    """
    check_state_type(optim, state, State)
    return dict(_listed("", [Member(None, optim, state.inner, state.count)]))


def _listed(prefix: str, members: list[Member]) -> Iterator[tuple[str, Any]]:
    names = [member.name or optax_name(member.transform) for member in members]
    seen: Counter[str] = Counter()
    for name, member in zip(names, members, strict=True):
        if names.count(name) > 1:
            name, index = f"{name}[{seen[name]}]", name
            seen[index] += 1
        numbers = own_numbers(member.transform)
        inside = list(member.transform._members(member.state, member.count))
        if isinstance(member.transform, AbstractOptimizer):
            inside = []  # its fields are all there is
        path = f"{prefix}{name}."
        for field, value in numbers.items():
            clock = member.transform._clocks.get(field)
            yield path + field, at_count(value, clock(member.state) if clock else member.count)
        for field, rows in own_rows(member.transform).items():
            for index, value in paths_and_leaves(at_count(rows, member.count)):
                yield f"{path}{field}{index}", value
        transparent = not prefix and len(members) == 1 and not member.name and not numbers
        yield from _listed("" if transparent else path, inside)


def optax_name(transform: AbstractTransform) -> str:
    """What optax calls a transformation."""
    return transform._name or snake_case(type(transform).__name__)


def dynamic(optim: Optim) -> Optim:
    """The same optimizer with every number an array of JAX: new values don't recompile, and
    `eqx.filter_grad` sees them.

    - `optim`: a transformation, a schedule or a projection.
    """

    values = {
        field.name: _array(value, is_whole(field))
        for field in dataclasses.fields(optim)
        if not field.metadata.get("static", False)
        for value in [getattr(optim, field.name)]
    }
    return replace_fields(optim, values)


def _array(x: Any, whole: bool) -> Any:
    """A number, or what holds numbers, as arrays of a fixed type; lengths and counts stay ints."""
    if isinstance(x, bool | str):
        return x
    if isinstance(x, int | float):
        is_int = whole and isinstance(x, int)
        return jnp.asarray(x, jnp.int32 if is_int else jnp.result_type(float))
    if isinstance(x, jax.Array):
        return plain(x)
    if isinstance(x, Component):
        return dynamic(x)
    if jax.tree_util.all_leaves([x]):
        return x
    return jax.tree.map(lambda y: _array(y, whole), x, is_leaf=lambda y: isinstance(y, Component))
