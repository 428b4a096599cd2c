"""The axes of layers, and the matrices that follow from them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from models import KEY, Block, chosen, nn, stacked_linear

from eqopt import select
from eqopt.select import Axes, Matrices, Ndim, Path, axes

# name: model, its axes by path. Axes(out, in, spatial, stacked).
LAYERS = {
    "Linear": (
        lambda key: nn.Linear(2, 3, key=key),
        {".weight": Axes((0,), (1,)), ".bias": Axes((0,))},
    ),
    "Linear[square]": (
        lambda key: nn.Linear(3, 3, use_bias=False, key=key),
        {".weight": Axes((0,), (1,))},
    ),
    "Conv1d": (
        lambda key: nn.Conv1d(2, 3, 4, key=key),
        {".weight": Axes((0,), (1,), (2,)), ".bias": Axes((0,), (), (1,))},
    ),
    "Conv2d": (
        lambda key: nn.Conv2d(2, 3, 4, key=key),
        {".weight": Axes((0,), (1,), (2, 3)), ".bias": Axes((0,), (), (1, 2))},
    ),
    "ConvTranspose2d": (
        lambda key: nn.ConvTranspose2d(2, 3, 4, key=key),
        {".weight": Axes((0,), (1,), (2, 3)), ".bias": Axes((0,), (), (1, 2))},
    ),
    "Embedding": (
        lambda key: nn.Embedding(5, 3, key=key),
        {".weight": Axes((1,), (0,))},
    ),
    "GRUCell": (
        lambda key: nn.GRUCell(2, 3, key=key),
        {
            ".weight_ih": Axes((0,), (1,)),
            ".weight_hh": Axes((0,), (1,)),
            ".bias": Axes((0,)),
            ".bias_n": Axes((0,)),
        },
    ),
    "LSTMCell": (
        lambda key: nn.LSTMCell(2, 3, key=key),
        {".weight_ih": Axes((0,), (1,)), ".weight_hh": Axes((0,), (1,)), ".bias": Axes((0,))},
    ),
    "LayerNorm": (
        lambda key: nn.LayerNorm(4),
        {".weight": Axes((0,)), ".bias": Axes((0,))},
    ),
    "LayerNorm[matrix]": (
        lambda key: nn.LayerNorm((2, 3)),
        {".weight": Axes((0, 1)), ".bias": Axes((0, 1))},
    ),
    "LayerNorm[scalar]": (
        lambda key: nn.LayerNorm(()),
        {".weight": Axes(), ".bias": Axes()},
    ),
    "RMSNorm": (lambda key: nn.RMSNorm(4), {".weight": Axes((0,)), ".bias": Axes((0,))}),
    "GroupNorm": (
        lambda key: nn.GroupNorm(2, 4),
        {".weight": Axes((0,)), ".bias": Axes((0,))},
    ),
}


def behind(extra, given):
    """The axes behind some stacked ones."""

    def shift(axes):
        return tuple(axis + extra for axis in axes)

    return Axes(shift(given.out), shift(given.in_), shift(given.spatial), tuple(range(extra)))


def axes_by_path(tree):
    """The answers, by path; `None` where there is no float array."""
    found, _ = jax.tree_util.tree_flatten_with_path(
        axes(tree), is_leaf=lambda x: isinstance(x, Axes)
    )
    return {jax.tree_util.keystr(path): answer for path, answer in found}


each_layer = pytest.mark.parametrize("build, wanted", LAYERS.values(), ids=LAYERS.keys())


def test_axes_of_prelu():
    """One slope for all has no axis, one for each channel an axis out."""
    assert axes_by_path(nn.PReLU(0.25)) == {".negative_slope": Axes()}
    assert axes_by_path(nn.PReLU(jnp.ones(3))) == {".negative_slope": Axes((0,))}


def layers_of(build, *shape):
    """Layers stacked along leading axes, none without a shape; shapes are enough."""
    for _ in shape:
        build = eqx.filter_vmap(build)
    return eqx.filter_eval_shape(build, jax.random.split(KEY, shape) if shape else KEY)


@each_layer
def test_axes_of_layers(build, wanted):
    """As Equinox stores them."""
    assert axes_by_path(layers_of(build)) == wanted


@each_layer
def test_axes_of_stacked_layers(build, wanted):
    """Layers stacked with `filter_vmap` have the same axes behind the stacked one."""
    stacked = {path: behind(1, given) for path, given in wanted.items()}
    assert axes_by_path(layers_of(build, 2)) == stacked


@each_layer
def test_matrices_of_layers(build, wanted):
    """The leaves with an axis in and an axis out, stacked or not."""
    matrices = {path for path, given in wanted.items() if given.out and given.in_}
    assert chosen(Matrices(), layers_of(build)) == matrices
    assert chosen(Matrices(), layers_of(build, 2)) == matrices


def test_matrices_of_stacked_layers():
    """The weights and not the biases, though these have two axes: `Ndim(2)` picks them."""
    layers = stacked_linear()
    assert layers.weight.shape == (4, 3, 2)
    assert layers.bias.shape == (4, 3)
    assert chosen(Matrices(), layers) == {".weight"}
    assert chosen(Ndim(2), layers) == {".bias"}


def test_matrices_of_twice_stacked_layers():
    """Two stacked axes."""
    layers = layers_of(lambda key: nn.Linear(2, 3, key=key), 2, 3)
    assert axes_by_path(layers) == {
        ".weight": Axes((2,), (3,), (), (0, 1)),
        ".bias": Axes((2,), (), (), (0, 1)),
    }
    assert chosen(Matrices(), layers) == {".weight"}


BLOCK_MATRICES = {
    ".attention.query_proj.weight",
    ".attention.key_proj.weight",
    ".attention.value_proj.weight",
    ".attention.output_proj.weight",
    ".mlp.layers[0].weight",
    ".mlp.layers[1].weight",
}


def test_matrices_of_a_model():
    """Weights of attention and of an MLP; no bias, no norm, no scalar."""
    assert chosen(Matrices(), Block(KEY)) == BLOCK_MATRICES


def test_matrices_of_a_stacked_model():
    """The same when whole blocks are stacked."""
    assert chosen(Matrices(), layers_of(Block, 2)) == BLOCK_MATRICES


def test_axes_outside_layers():
    """A matrix is (out, in), a vector (out,); what has more axes has none that are known."""
    tree = {"m": jnp.ones((2, 3)), "s": jnp.ones(()), "t": jnp.ones((2, 3, 4)), "v": jnp.ones(2)}
    tree["table"] = jnp.arange(3)
    assert axes_by_path(tree) == {
        "['m']": Axes((0,), (1,)),
        "['s']": Axes(),
        "['t']": Axes(),
        "['v']": Axes((0,)),
    }


def test_explicit_axes():
    """Rules come first, and the first that matches counts."""
    tree = {"a": jnp.ones((4, 2, 3)), "b": jnp.ones((2, 3)), "c": nn.Linear(2, 3, key=KEY)}
    rules = (
        (Path(r"\['a'\]"), Axes(out=(2,), in_=(1,), stacked=(0,))),
        (Path(r"\['(a|b)'\]"), Axes(out=(0, 1))),
        (Path("weight"), Axes(out=(0,))),
    )
    found = axes(tree, rules)
    assert found["a"] == Axes(out=(2,), in_=(1,), stacked=(0,))
    assert found["b"] == Axes(out=(0, 1))
    assert found["c"].weight == Axes(out=(0,))
    assert chosen(Matrices(rules), tree) == {"['a']"}
    assert chosen(Matrices(), tree) == {"['b']", "['c'].weight"}


def test_axes_of_structs():
    """Shapes are enough."""
    model = eqx.filter_eval_shape(Block, KEY)
    assert chosen(Matrices(), model) == BLOCK_MATRICES


def test_describe_axes():
    """A line for each parameter: what it holds, and which axes are which; by rules too."""
    model = {
        "conv": nn.Conv2d(2, 4, 3, key=KEY),
        "layers": stacked_linear(),
        "table": jnp.arange(3),
        "tokens": jnp.ones((5, 2, 3)),
    }
    lines = [
        "['conv'].weight    (4, 2, 3, 3)  matrix 4 x 18 (out 0; in 1; spatial 2, 3)",
        "['conv'].bias      (4, 1, 1)     no matrix (out 0; spatial 1, 2)",
        "['layers'].weight  (4, 3, 2)     4 matrices 3 x 2 (out 1; in 2; stacked 0)",
        "['layers'].bias    (4, 3)        no matrix (out 1; stacked 0)",
        "['tokens']         (5, 2, 3)     no matrix (axes not known)",
    ]
    assert select.describe_axes(model) == "\n".join(lines)
    rules = ((Path("tokens"), Axes(out=(1, 2), in_=(0,))),)
    lines[-1] = "['tokens']         (5, 2, 3)     matrix 6 x 5 (out 1, 2; in 0)"
    assert select.describe_axes(model, rules) == "\n".join(lines)
    assert select.describe_axes({}) == ""
