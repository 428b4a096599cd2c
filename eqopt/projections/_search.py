"""What projections that search share: how exactly and how long."""

from typing import Any

import jax.numpy as jnp


def check_search(projection: Any) -> None:
    """The fields `tol` and `max_steps` hold numbers that make sense."""
    name = type(projection).__name__
    tol, steps = projection.tol, projection.max_steps
    if tol is not None and (isinstance(tol, bool) or not isinstance(tol, int | float)):
        raise TypeError(f"`{name}(tol=...)` must be a Python number or None; got {tol!r}.")
    if tol is not None and not 0 < tol < 1:
        raise ValueError(f"`{name}(tol=...)` must be in (0, 1); got {tol!r}.")
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise TypeError(f"`{name}(max_steps=...)` must be an integer; got {steps!r}.")
    if steps < 1:
        raise ValueError(f"`{name}(max_steps=...)` must be at least 1; got {steps}.")


def tolerance(tol: float | None, dtype: Any) -> float:
    """The tolerance in force in a dtype: never below 64 times its precision."""
    least = 64 * float(jnp.finfo(dtype).eps)
    return least if tol is None else max(tol, least)
