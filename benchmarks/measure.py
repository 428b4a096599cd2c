"""Measuring: interleaved rounds, medians, and what the compiler reports."""

import gc
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import eqopt


class Timings(NamedTuple):
    """Medians in seconds over the rounds, and what the compiled program needs in bytes."""

    step: float
    lower: float
    compile: float
    temporary: int
    state: int


def our_step(optim: eqopt.AbstractTransform) -> Callable[..., Any]:
    """Update and apply with eqopt."""

    def step(params: Any, state: Any, grads: Any) -> Any:
        return optim.step(grads, state, params, value=1.0)

    return step


def their_step(tx: optax.GradientTransformation) -> Callable[..., Any]:
    """Update and apply with optax."""

    tx = optax.with_extra_args_support(tx)

    def step(params: Any, state: Any, grads: Any) -> Any:
        updates, state = tx.update(grads, state, params, value=1.0)
        return optax.apply_updates(params, updates), state

    return step


def projection_step(projection: Callable[[Any], Any]) -> Callable[..., Any]:
    """A projection as a step, of what stands for gradients, which stays the same."""

    def step(params: Any, state: Any, grads: Any) -> Any:
        return projection(grads), state

    return step


def _lower(step: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[float, Any]:
    jax.clear_caches()
    gc.collect()
    gc.disable()  # a collection that happens to fall in here is not the step's
    try:
        start = time.perf_counter()
        lowered = jax.jit(step, donate_argnums=(0, 1)).lower(*arguments)
        return time.perf_counter() - start, lowered
    finally:
        gc.enable()


def _bytes(tree: Any) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(tree))


def compare(
    steps: list[Callable[..., Any]],
    inits: list[Callable[[Any], Any]],
    make_tree: Callable[[], Any],
    rounds: int,
    compiles: int,
    together: int = 1,
) -> list[Timings]:
    """The timings of each step function on one tree, in interleaved rounds.

    - `rounds`: rounds of stepping.
    - `compiles`: rounds of tracing, lowering and compiling.
    - `together`: the number of steps in a round.
    """
    grads = jax.tree.map(lambda x: 0.01 * x, make_tree())
    # A copy of the state: some of optax's share buffers with the parameters.
    carries = [[p := make_tree(), jax.tree.map(jnp.copy, init(p))] for init in inits]
    state_bytes = [_bytes(state) for _, state in carries]
    lower: list[list[float]] = [[] for _ in steps]
    compiling: list[list[float]] = [[] for _ in steps]
    compiled: list[Any] = [None for _ in steps]
    for _ in range(compiles):
        for i, step in enumerate(steps):
            seconds, lowered = _lower(step, (*carries[i], grads))
            lower[i].append(seconds)
            start = time.perf_counter()
            compiled[i] = lowered.compile()
            compiling[i].append(time.perf_counter() - start)
    stepping: list[list[float]] = [[] for _ in steps]
    for number in range(rounds + 2):
        for i, run in enumerate(compiled):
            start = time.perf_counter()
            for _ in range(together):
                carries[i] = list(jax.block_until_ready(run(*carries[i], grads)))
            if number >= 2:  # the first rounds warm up
                stepping[i].append(time.perf_counter() - start)
    return [
        Timings(
            median(stepping[i]),
            median(lower[i]),
            median(compiling[i]),
            compiled[i].memory_analysis().temp_size_in_bytes,
            state_bytes[i],
        )
        for i in range(len(steps))
    ]
