"""Adding noise to the updates."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._core.arithmetic import safe_sqrt
from .._core.hyperparam import NonNegative
from .._core.keys import Key, RandomKey, seeded
from .._core.leafwise import leafwise
from .._core.leaves import widen
from .._core.transform import AbstractTransform
from .._core.types import Count, Leaf, Params, Updates


class AddNoiseState(eqx.Module):
    """- `key`: the random key that the noise of all steps comes from, as plain numbers."""

    key: Key


class AddNoise(AbstractTransform):
    r"""Adds Gaussian noise whose variance decays: $u = g + \mathcal N(0, \sigma_t^2)$,
    $\sigma_t^2 = \eta / (1 + t)^\gamma$, with $t = 0$ at the first update (Neelakantan et al. 2015,
    section 3).

    optax counts $t$ from 1 and leaves the 1 out, which is the same. The noise is drawn in at least
    float32; that of a complex leaf has half the variance in each part. Each leaf and each update
    has a key of its own, made from the state's key by `fold_in` with the count and then with the
    leaf's number, so that an update can be repeated.

    - `eta`: $\eta$, the variance at the first update, at least 0.
    - `gamma`: $\gamma$, at least 0; the paper has 0.55.
    - `key`: a random key of JAX, typed or old-style, kept as its data; or a seed in [0, 2^31).
      `init` copies it into the state.
    """

    eta: NonNegative
    gamma: NonNegative
    key: RandomKey

    def _init(self, params: Params) -> AddNoiseState:
        return AddNoiseState(seeded("`AddNoise(key=...)`", self.key))

    def _update(
        self, updates: Updates, state: AddNoiseState, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, AddNoiseState]:
        noise = _noise_like(updates, jax.random.fold_in(state.key.typed(), count))
        return leafwise(self._rule, count)(updates, noise), state

    def _rule(self, t: Int[Array, ""], g: Leaf, noise: Leaf) -> Leaf:
        decay = (1 + t.astype(jnp.result_type(self.gamma))) ** (-self.gamma / 2)
        return g + safe_sqrt(self.eta) * decay * noise


def _noise_like(tree: Updates, key: Array) -> Updates:
    """Standard normal numbers like the leaves, each with a key of its own."""
    leaves, treedef = jax.tree.flatten(tree)
    keys = [jax.random.fold_in(key, i) for i in range(len(leaves))]
    wide = [jax.eval_shape(widen, leaf) for leaf in leaves]
    noise = [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, wide, strict=True)]
    return jax.tree.unflatten(treedef, noise)
