"""Models for the tests of selectors, and what is selected in them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import eqopt

KEY = jax.random.key(0)
nn = eqx.nn


def chosen(where, model):
    """The paths of the leaves that are selected."""
    found, _ = jax.tree_util.tree_flatten_with_path(where(model))
    assert all(isinstance(hit, bool) for _, hit in found)
    return {jax.tree_util.keystr(path) for path, hit in found if hit}


def paths(model):
    """The paths of all float arrays."""
    found, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(model, eqx.is_inexact_array))
    return {jax.tree_util.keystr(path) for path, _ in found}


class Block(eqx.Module):
    """A transformer's block, with layers inside layers and a parameter of its own."""

    attention: nn.MultiheadAttention
    norm: nn.LayerNorm
    mlp: nn.MLP
    scale: jax.Array
    size: int

    def __init__(self, key):
        keys = jax.random.split(key)
        self.attention = nn.MultiheadAttention(2, 4, use_query_bias=True, key=keys[0])
        self.norm = nn.LayerNorm(4)
        self.mlp = nn.MLP(4, 4, 3, 1, key=keys[1])
        self.scale = jnp.asarray(0.5)
        self.size = 3


def stacked_linear():
    """Four layers in one, as for `lax.scan`: weights (L, out, in), biases (L, out)."""
    return eqx.filter_vmap(lambda key: nn.Linear(2, 3, key=key))(jax.random.split(KEY, 4))


def decayed(where, params, grads=None):
    """The paths of the leaves that decay, by what an update does to parameters of 1."""
    optim = eqopt.AddDecayedWeights(1.0, where)
    ones = jax.tree.map(jnp.ones_like, eqx.filter(params, eqx.is_inexact_array))
    if grads is None:
        grads = jax.tree.map(jnp.zeros_like, ones)
    params = eqx.combine(ones, params)
    updates, _ = optim(grads, optim.init(params), params)
    found, _ = jax.tree_util.tree_flatten_with_path(updates)
    for _, update in found:
        assert np.all(update == 0) or np.all(update == 1)
    return {jax.tree_util.keystr(path) for path, update in found if np.all(update == 1)}
