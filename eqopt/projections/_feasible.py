"""Whether linear equations and inequalities contradict each other, found at construction."""

import numpy as np

_MOST_ROWS = 200


def check_consistent(name: str, a: np.ndarray | None, b: np.ndarray | None) -> None:
    """Equations whose numbers are known have a common solution."""
    if a is None or b is None or not len(a):
        return
    given = np.broadcast_to(b, len(a))
    a, b = _scaled(a, b)
    residual = b - a @ np.linalg.lstsq(a, b, rcond=None)[0]
    row = int(np.argmax(np.abs(residual)))
    if abs(residual[row]) > 1e-6 * np.max(np.abs(b)):
        found = "is zero" if not np.any(a[row]) else "contradicts the others"
        raise ValueError(
            f"`{name}(b=...)` must make equations that have a common solution; row {row} of `A` "
            f"{found}, with {given[row]:g} on the other side."
        )


def check_not_empty(name: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> None:
    """Equations a x = b and inequalities c x <= d, whose numbers are known, have a common point.

    They have none exactly if some combination of them, with weights for the inequalities that are
    not negative, says 0 <= -1 (Farkas' lemma). The weights of the best such combination are looked
    for by least squares.
    """
    if len(b) + len(d) > _MOST_ROWS:
        return
    a, b = _scaled(a, b)
    c, d = _scaled(c, d)
    largest = max(np.max(np.abs(b), initial=0), np.max(np.abs(d), initial=0))
    if largest == 0:  # zero is in the set
        return
    system = np.concatenate(
        [np.concatenate([a, c]).T, np.concatenate([b, d])[None] / largest], axis=0
    )
    goal = np.concatenate([np.zeros(a.shape[1]), [-1.0]])
    weights = _non_negative_least_squares(system, goal, np.arange(len(b) + len(d)) < len(b))
    if np.linalg.norm(system @ weights - goal) < 1e-7 and np.max(np.abs(weights)) < 1e6:
        used = np.abs(weights) > 1e-9
        raise ValueError(
            f"`{name}` must be given equations and inequalities that have a common point; got none "
            f"for the rows {np.flatnonzero(used[: len(b)]).tolist()} of `A` and "
            f"{np.flatnonzero(used[len(b) :]).tolist()} of `C` together."
        )


def _scaled(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of length 1, and what is on their other side; zero rows stay."""
    lengths = np.linalg.norm(a, axis=1)
    lengths = np.where(lengths > 0, lengths, 1)
    return a / lengths[:, None], np.broadcast_to(b, lengths.shape) / lengths


def _non_negative_least_squares(
    system: np.ndarray, goal: np.ndarray, free: np.ndarray
) -> np.ndarray:
    """Weights w that minimise |system w - goal|, not negative where they are not `free` (Lawson
    and Hanson 1974, algorithm 23.10)."""
    passive = free.copy()
    weights = np.zeros(len(free))
    for step in range(3 * len(free) + 1):
        if step or not free.any():
            gradient = system.T @ (goal - system @ weights)
            gradient[passive] = -np.inf
            if np.max(gradient, initial=-np.inf) <= 1e-12:
                break
            passive[np.argmax(gradient)] = True
        while passive.any():
            best = np.zeros(len(free))
            best[passive] = np.linalg.lstsq(system[:, passive], goal, rcond=None)[0]
            below = passive & ~free & (best <= 0)
            if not below.any():
                weights = best
                break
            steps = weights[below] / np.maximum(weights[below] - best[below], 1e-300)
            weights = weights + np.min(steps) * (best - weights)
            passive &= free | (weights > 1e-14)
            weights[~passive] = 0
    return weights
