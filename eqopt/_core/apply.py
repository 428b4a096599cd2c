"""Adding updates to parameters, and averaging parameters."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .boundary import check_kinds, match_params
from .leafwise import check_same_paths, leafwise
from .leaves import trained
from .types import Leaf, Params, Updates


def _add(param: Leaf, update: Leaf) -> Leaf:
    return param + update


def apply_updates(params: Params, updates: Updates) -> Params:
    """`params + updates`, added in the wider of the two dtypes and rounded once to the
    parameter's. Leaves without an update, or that are no float arrays, stay as they are.

    **Raises** `ValueError` or `TypeError` if the updates don't match the parameters.
    """
    changes = trained(updates)
    check_kinds("apply_updates", updates, changes, params)
    kept = match_params("apply_updates", changes, trained(params))
    return eqx.combine(leafwise(_add)(kept, changes), params)


def _second(first: Leaf, second: Leaf) -> Leaf:
    return second


def substituted(values: Params, params: Params) -> Params:
    """The parameters with the values that a state keeps for them, in their own dtypes; where it
    has none, for a part of a model, as they are."""
    kept = match_params("eval_params", values, params, "the state")
    return eqx.combine(leafwise(_second)(kept, values), params)


def _mix(step_size: Any, new: Leaf, old: Leaf) -> Leaf:
    return step_size * new + (1 - step_size) * old


def incremental_update(new: Params, old: Params, step_size: Any) -> Params:
    """`step_size * new + (1 - step_size) * old`, such as an average of parameters (Polyak and
    Juditsky 1992); what is no float array comes from `new`.

    - `step_size`: the weight of `new`, in [0, 1].
    """
    check_same_paths("`incremental_update`: `new`", trained(new), "`old`", trained(old))
    mixed = leafwise(_mix, jnp.asarray(step_size, float))(trained(new), trained(old))
    return eqx.combine(mixed, new)


def _pick(take: Bool[Array, ""], new: Leaf, old: Leaf) -> Leaf:
    return jnp.where(take, new, old)


def periodic_update(
    new: Params, old: Params, steps: int | Int[Array, ""], update_period: int | Int[Array, ""]
) -> Params:
    """`new` where `steps` is a multiple of `update_period` (so at 0 too), else `old`; what is no
    float array comes from `new`.

    - `steps`: the number of updates so far.
    - `update_period`: positive.
    """
    check_same_paths("`periodic_update`: `new`", trained(new), "`old`", trained(old))
    take = jnp.asarray(steps) % update_period == 0
    return eqx.combine(leafwise(_pick, take)(trained(new), trained(old)), new)
