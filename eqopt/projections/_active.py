"""Which inequalities hold with equality at the nearest point of a polyhedron."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_HALVINGS = 20


class _Carry(NamedTuple):
    step: Any
    multipliers: Any
    going: Any


def active_rows(
    gram: Float[Array, "m m"], slack: Float[Array, " m"], tol: float, max_steps: int
) -> Bool[Array, " m"]:
    r"""The positive ones among the multipliers $\mu \ge 0$ that minimise
    $\frac12 \mu^T G \mu + s^T \mu$.

    This is the dual of the projection onto $\{y : C y \le s\}$ of zero, for $G = C C^T$, with the
    rows of $C$ of length 1 and a largest slack about 1; $G \mu + s$ is the slack that is left.

    The method is the projected Newton method (Bertsekas 1982, SIAM J. Control Optim. 20(2)): a
    Newton step in the multipliers that are not held at 0, along the bent path that keeps them
    non-negative. The search tries the bends and halves of the step.

    - `tol`: stops once $\max |\min(\mu, G \mu + s)|$ is at most this.
    - `max_steps`: the most Newton steps.
    """
    ridge = 4 * len(slack) * jnp.finfo(slack.dtype).eps
    bound = jnp.max(jnp.sum(jnp.abs(gram), axis=1), initial=1)
    halves = 2.0 ** -jnp.arange(_HALVINGS, dtype=slack.dtype)

    def body(carry: _Carry) -> _Carry:
        step, mu, _ = carry
        left = gram @ mu + slack
        residual = jnp.max(jnp.abs(jnp.minimum(mu, left)))
        held = (mu <= jnp.minimum(residual, 1e-3)) & (left > 0)
        newton = _newton(gram, left, held, ridge)
        bends = jnp.where(newton < 0, mu / -jnp.where(newton < 0, newton, -1), 1)
        sizes = jnp.concatenate([halves, jnp.minimum(bends, 1)])
        paths = jnp.concatenate([sizes[:, None] * newton, -left[None] / bound])
        moves = jnp.maximum(mu + paths, 0) - mu
        gains = moves @ left + 0.5 * jnp.sum((moves @ gram) * moves, axis=1)
        best = jnp.argmin(gains)
        better = gains[best] < 0
        mu = jnp.where(better, jnp.maximum(mu + paths[best], 0), mu)
        return _Carry(step + 1, mu, (residual > tol) & better)

    start = _Carry(0, jnp.zeros_like(slack), jnp.any(slack < 0))
    end = jax.lax.while_loop(lambda c: c.going & (c.step < max_steps), body, start)
    return end.multipliers > 0


def _newton(
    gram: Float[Array, "m m"], left: Float[Array, " m"], held: Bool[Array, " m"], ridge: Any
) -> Float[Array, " m"]:
    """The Newton step in the multipliers that are free, and that of steepest descent in those
    that are held."""
    free = jnp.where(held, 0, 1)
    matrix = gram * free[:, None] * free[None] + jnp.diag(jnp.where(held, 1, ridge))
    factor = jax.scipy.linalg.cho_factor(matrix, lower=True)
    return -jax.scipy.linalg.cho_solve(factor, left)
