"""Selectors: how they combine, trees of bools, and what goes wrong loudly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import KEY, Block, chosen, decayed, nn, paths, stacked_linear

import eqopt
from eqopt import select
from eqopt.select import Everything, Matrices, Ndim, Nothing, Path, describe

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
    assert chosen(Everything(), tree) == {m, v, w} == chosen(~Nothing(), tree)
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


HALF = select.Dtype(jnp.bfloat16)


@pytest.mark.parametrize(
    "optim",
    [
        eqopt.Masked(eqopt.Scale(2.0), HALF),
        eqopt.Masked(eqopt.Scale(2.0), ~(~HALF | {"a": False, "b": False})),
        eqopt.Partition([(HALF & select.Ndim(1), eqopt.Scale(2.0))], default=eqopt.Identity()),
    ],
    ids=["Masked", "combined", "Partition"],
)
def test_dtypes_are_those_of_the_parameters(optim):
    """Gradients of another dtype change no decision; without parameters there is none, also where
    something is around."""
    params = {"a": jnp.ones(2), "b": jnp.ones(2, jnp.bfloat16)}
    grads = {"a": jnp.ones(2, jnp.bfloat16), "b": jnp.ones(2)}
    updates, _ = optim(grads, optim.init(params), params)
    assert updates["a"][0] == 1 and updates["b"][0] == 2
    for around in (optim, eqopt.Clip(1.0) >> eqopt.SkipNotFinite(optim)):
        with pytest.raises(TypeError, match=rf"`{type(optim).__name__}` needs `params`: pass"):
            around(grads, around.init(params))


def test_dtypes_in_the_rules_of_axes():
    """They are looked at where matrices are."""
    rules = ((select.Dtype(jnp.float32), select.Axes((0,), (1,))),)
    optim = eqopt.Masked(eqopt.Scale(2.0), select.Matrices(rules))
    params = {"w": jnp.ones((2, 2))}
    with pytest.raises(TypeError, match="`Masked` needs `params`"):
        optim(params, optim.init(params))


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
            "['layer'].weight  (30, 40)  float32  yes",
            "['layer'].bias    (30,)     float32  no",
            "['scale']         ()        float32  no",
            "1 of 3 leaves, 1,200 of 1,231 parameters selected",
        ]
    )


def test_describe_of_nothing():
    """An empty tree, and a tree of bools."""
    assert describe(Matrices(), {}) == "0 of 0 leaves, 0 of 0 parameters selected"
    assert describe({"a": False}, {"a": jnp.ones(2)}) == (
        "['a']  (2,)  float32  no\n0 of 1 leaves, 0 of 2 parameters selected"
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
