"""Selectors: which leaves of which layers, how they combine, and what goes wrong loudly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqopt
from eqopt import select
from eqopt.select import Axes, Everything, Matrices, Ndim, Path, axes, describe

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


# ---- matrices and axes

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


def stacked_linear():
    """Four layers in one, as for `lax.scan`: weights (L, out, in), biases (L, out)."""
    return eqx.filter_vmap(lambda key: nn.Linear(2, 3, key=key))(jax.random.split(KEY, 4))


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


# ---- the other selectors, and combinations


def test_path():
    """A regular expression, anywhere in the path."""
    model = Block(KEY)
    assert chosen(Path("norm"), model) == {".norm.weight", ".norm.bias"}
    assert chosen(Path(r"^\.mlp\.layers\[0\]"), model) == {
        ".mlp.layers[0].weight",
        ".mlp.layers[0].bias",
    }
    assert chosen(Path("scale$"), model) == {".scale"}
    assert chosen(Path(r"\['w'\]"), {"w": jnp.ones(2), "b": jnp.ones(2)}) == {"['w']"}


@pytest.mark.parametrize("pattern", ["(", "[a", "*"])
def test_path_that_is_no_expression(pattern):
    """The error shows the pattern."""
    with pytest.raises(ValueError, match=r"`Path\(pattern=...\)` must be a regular expression"):
        Path(pattern)


def test_ndim():
    """By the number of axes."""
    tree = {"m": jnp.ones((2, 3)), "s": jnp.ones(()), "v": jnp.ones(2)}
    assert chosen(Ndim(0), tree) == {"['s']"}
    assert chosen(Ndim(1), tree) == {"['v']"}
    assert chosen(Ndim(2), tree) == {"['m']"}


@pytest.mark.parametrize("ndim", [-1, True, 2.0])
def test_ndim_that_is_no_number_of_axes(ndim):
    """A wrong type or a negative number."""
    with pytest.raises((ValueError, TypeError), match="ndim"):
        Ndim(ndim)


def test_combinations():
    """And, or, not, nested, with trees of bools on either side."""
    tree = {"m": jnp.ones((2, 3)), "v": jnp.ones(2), "w": jnp.ones((2, 2))}
    m, v, w = "['m']", "['v']", "['w']"
    assert chosen(Ndim(2) & Path("w"), tree) == {w}
    assert chosen(Ndim(1) | Path("w"), tree) == {v, w}
    assert chosen(~Ndim(2), tree) == {v}
    assert chosen(~(Ndim(2) & ~Path("w")) & Everything(), tree) == {v, w}
    assert chosen(Everything(), tree) == {m, v, w}
    bools = {"m": True, "v": True, "w": False}
    assert chosen(Ndim(2) & bools, tree) == chosen(bools & Ndim(2), tree) == {m}
    assert chosen(Path("w") | bools, tree) == chosen(bools | Path("w"), tree) == {m, v, w}


def test_a_selector_gives_the_structure_of_the_model():
    """A bool for each parameter and `None` for all else."""
    model = Block(KEY)
    result = Matrices()(model)
    assert isinstance(result, Block)
    assert result.mlp.layers[0].weight is True
    assert result.norm.bias is False
    assert result.mlp.activation is None
    assert result.size is None


# ---- trees of bools


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


def test_bools_like_the_model():
    """Of a dict and of a model."""
    tree = {"a": jnp.ones(2), "b": {"c": jnp.ones(2), "d": jnp.ones(2)}}
    assert decayed({"a": True, "b": {"c": False, "d": True}}, tree) == {"['a']", "['b']['d']"}
    model = Block(KEY)
    bools = jax.tree.map(lambda x: x.ndim == 1, eqx.filter(model, eqx.is_inexact_array))
    assert decayed(bools, model) == chosen(Ndim(1), model)


def test_prefixes():
    """A bool stands for all below it; a single one for the whole tree."""
    tree = {"a": jnp.ones(2), "b": [jnp.ones(2), {"d": jnp.ones(2)}], "ba": jnp.ones(2)}
    assert decayed({"a": False, "b": True, "ba": False}, tree) == {"['b'][0]", "['b'][1]['d']"}
    assert decayed({"a": True, "b": [False, True], "ba": False}, tree) == {
        "['a']",
        "['b'][1]['d']",
    }
    assert decayed(True, tree) == paths(tree)
    assert decayed(False, tree) == set()
    assert decayed(True, jnp.ones(2)) == {""}


def test_prefixes_end_at_the_end_of_a_name():
    """`.layer` is no prefix of `.layers`."""

    class Model(eqx.Module):
        layer: object
        layers: object

    tree = Model({"w": jnp.ones(2)}, [jnp.ones(2)])
    assert decayed(Model(True, False), tree) == {".layer['w']"}


def test_bools_of_numpy():
    """NumPy's bools are bools."""
    tree = {"a": jnp.ones(2), "b": jnp.ones(2)}
    assert decayed({"a": np.True_, "b": np.False_}, tree) == {"['a']"}


class Called(eqx.Module):
    """A tree of bools that must not be called."""

    weight: object
    bias: object

    def __call__(self, *args, **kwargs):
        raise AssertionError("a tree of bools was called")


def test_a_callable_tree_of_bools_is_not_called():
    """It is a PyTree, whatever else it is; alone and combined."""
    tree = Called(jnp.ones((2, 2)), jnp.ones(2))
    assert decayed(Called(True, False), tree) == {".weight"}
    assert decayed(Ndim(1) | Called(True, False), tree) == {".weight", ".bias"}
    assert "1 of 2 leaves" in describe(Called(True, False), tree)


def test_bools_are_static_and_hashable():
    """They are no leaves of the optimizer, and equal trees give equal optimizers."""
    one, two = (eqopt.AdamW(0.1, decay_where={"a": True, "b": False}) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert not any(isinstance(x, bool) for x in jax.tree.leaves(one))
    assert one != eqopt.AdamW(0.1, decay_where={"a": True, "b": True})


# ---- errors


@pytest.mark.parametrize(
    "where, message",
    [
        (lambda params: params, "got <function"),
        (jnp.ones_like, "got "),
        ({"a": 1, "b": True}, r"got 1 at `\['a'\]`"),
        ({"a": "yes", "b": True}, r"got 'yes' at `\['a'\]`"),
        ({"a": jnp.asarray(True), "b": True}, r"got Array.* at `\['a'\]`"),
        (1.0, "got 1.0"),
    ],
    ids=["function", "jax function", "number", "string", "array", "scalar"],
)
@pytest.mark.parametrize(
    "build, label",
    [
        (lambda where: eqopt.AdamW(0.1, decay_where=where), r"`AdamW\(decay_where=...\)`"),
        (lambda where: eqopt.AddDecayedWeights(0.1, where), r"`AddDecayedWeights\(where=...\)`"),
        (lambda where: Ndim(1) & where, "`&`"),
    ],
    ids=["AdamW", "AddDecayedWeights", "&"],
)
def test_what_is_no_selector(build, label, where, message):
    """The error names class and argument, and the leaf."""
    with pytest.raises(
        TypeError, match=rf"{label} must be a selector .*or a PyTree of bools; {message}"
    ):
        build(where)


def test_missing_entry():
    """A leaf that the tree of bools says nothing about is named, at init or at the update."""
    params = {"a": jnp.ones(2), "b": jnp.ones(2)}
    optim = eqopt.AdamW(0.1, decay_where={"a": True})
    with pytest.raises(ValueError, match=r"no entry for the leaf `\['b'\]`"):
        optim(params, optim.init(params), params)
    optim = eqopt.AdamW(0.1, decay_where={"a": True, "b": None})
    with pytest.raises(ValueError, match=r"no entry for the leaf `\['b'\]`"):
        optim(params, optim.init(params), params)


@pytest.mark.parametrize(
    "build, owner",
    [
        (lambda where: eqopt.AdamW(0.1, decay_where=where), r"`AdamW\(decay_where=...\)`"),
        (
            lambda where: eqopt.Clip(1.0) >> eqopt.AddDecayedWeights(0.1, where),
            r"`AddDecayedWeights\(where=...\)`",
        ),
        (
            lambda where: eqopt.Project(eqopt.projections.NonNegative(), where),
            r"`Project\(where=...\)`",
        ),
    ],
    ids=["AdamW", "Chain", "Project"],
)
@pytest.mark.parametrize(
    "combine",
    [
        lambda path: path,
        lambda path: Ndim(1) | path,
        lambda path: ~path,
        lambda path: (path & Ndim(1)) | Ndim(2),
    ],
    ids=["alone", "or", "not", "and"],
)
def test_a_path_that_matches_nothing(build, owner, combine):
    """`init` raises, names the field, the path and some leaves that there are."""
    params = {"weight": jnp.ones((2, 2)), "bias": jnp.ones(2)}
    optim = build(combine(Path("wieght")))
    message = rf"{owner} must match a leaf; Path\(pattern='wieght'\) matches none of `\['bias'\]`"
    with pytest.raises(ValueError, match=message):
        optim.init(params)
    with pytest.raises(ValueError, match=message):
        optim.init(jax.eval_shape(lambda: params))


# ---- the same decision at init and at every update


@pytest.mark.parametrize(
    "where",
    [
        Matrices(),
        Ndim(1),
        Path(r"mlp|norm"),
        ~Path("bias"),
        Matrices() & Path("mlp") | Path("scale"),
    ],
    ids=repr,
)
def test_decisions_do_not_depend_on_what_is_trained(where):
    """With gradients for a part only, each leaf that has one is decided as in the whole model."""
    model = Block(KEY)
    whole = chosen(where, model)
    assert decayed(where, model) == whole
    trained = eqx.tree_at(
        lambda m: (m.mlp.layers[0].weight, m.norm.bias, m.attention.query_proj),
        eqx.filter(model, eqx.is_inexact_array),
        (None, None, None),
    )
    grads = jax.tree.map(jnp.zeros_like, trained)
    assert decayed(where, model, grads) == whole & paths(trained)


def test_decisions_in_a_compiled_step():
    """Tracing changes none."""
    model = stacked_linear()
    grads = jax.tree.map(jnp.zeros_like, model)
    optim = eqopt.AdamW(0.1, weight_decay=0.1, decay_where=Matrices())

    @eqx.filter_jit
    def step(model, state):
        return optim.step(grads, state, model)

    new, _ = step(model, optim.init(model))
    np.testing.assert_allclose(new.weight, model.weight * 0.99, rtol=1e-5)
    np.testing.assert_array_equal(new.bias, model.bias)


# ---- describe


def test_describe():
    """A line for each parameter, aligned, and the totals."""
    model = {"layer": nn.Linear(40, 30, key=KEY), "scale": jnp.ones(()), "table": jnp.arange(3)}
    assert describe(Matrices(), model) == "\n".join(
        [
            "['layer'].weight  (30, 40)  yes",
            "['layer'].bias    (30,)     no",
            "['scale']         ()        no",
            "1 of 3 leaves, 1,200 of 1,231 parameters selected",
        ]
    )


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


def test_describe_of_nothing():
    """An empty tree, and a tree of bools."""
    assert describe(Matrices(), {}) == "0 of 0 leaves, 0 of 0 parameters selected"
    assert describe({"a": False}, {"a": jnp.ones(2)}) == (
        "['a']  (2,)  no\n0 of 1 leaves, 0 of 2 parameters selected"
    )


def test_describe_errors():
    """What is no selector is named."""
    with pytest.raises(TypeError, match=r"`describe\(where=...\)` must be a selector"):
        describe(lambda model: model, {"a": jnp.ones(2)})


def test_public_names():
    """A user's own selector has a base class in `eqopt.select`."""

    class Large(select.AbstractSelector):
        def _select(self, tree):
            return [leaf.size > 3 for leaf in jax.tree.leaves(tree)]

    tree = {"a": jnp.ones((2, 2)), "b": jnp.ones(2)}
    assert chosen(Large() & ~Path("b"), tree) == {"['a']"}
