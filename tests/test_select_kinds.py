"""Selectors by layer type, by a function that points to leaves, and by dtype."""

import pickle
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from models import KEY, Block, chosen, decayed, nn, paths

import eqopt
from eqopt.select import At, Dtype, Layer, Ndim, Nothing, Path


def head(model):
    """A function at module level."""
    return model.mlp.layers[1]


NORM = {".norm.weight", ".norm.bias"}
HEAD = {".mlp.layers[1].weight", ".mlp.layers[1].bias"}


class TestLayer:
    def test_types(self):
        """All that is inside, at any depth; several types."""
        model = Block(KEY)
        assert chosen(Layer(nn.LayerNorm), model) == NORM
        attention = {path for path in paths(model) if path.startswith(".attention")}
        assert chosen(Layer((nn.LayerNorm, nn.MultiheadAttention)), model) == NORM | attention
        linear = {path for path in paths(model) if path.startswith((".attention", ".mlp"))}
        assert chosen(Layer(nn.Linear), model) == linear
        assert chosen(Layer(nn.Linear) & Ndim(1) & Path("mlp"), model) == {
            ".mlp.layers[0].bias",
            ".mlp.layers[1].bias",
        }

    def test_subclass_and_the_model_itself(self):
        """What a module is also counts, and a model may be one layer."""
        assert chosen(Layer(nn.Conv), nn.Conv2d(1, 1, 1, key=KEY)) == {".weight", ".bias"}
        assert chosen(Layer(eqx.Module), Block(KEY)) == paths(Block(KEY))

    def test_what_matches_nothing(self):
        """`init` raises and shows what there is."""
        optim = eqopt.AdamW(0.1, decay_where=Layer(nn.Conv2d))
        with pytest.raises(
            ValueError, match=r"`AdamW\(decay_where=...\)` must match a leaf; Layer"
        ):
            optim.init(Block(KEY))

    @pytest.mark.parametrize("types", ["Linear", (), (nn.Linear, 3), nn.Identity()])
    def test_what_is_no_class(self, types):
        """The error shows it."""
        message = rf"`Layer\(types=...\)` must be .*{re.escape(repr(types))}|types"
        with pytest.raises(TypeError, match=message):
            Layer(types)


class TestAt:
    def test_leaves_and_nodes(self):
        """A leaf, a node, several of both, and a list."""
        model = Block(KEY)
        assert chosen(At(lambda m: m.scale), model) == {".scale"}
        assert chosen(At(head), model) == HEAD
        assert chosen(At(lambda m: (m.norm, m.scale)), model) == NORM | {".scale"}
        assert chosen(At(lambda m: m.mlp.layers), model) == {
            path for path in paths(model) if path.startswith(".mlp")
        }
        assert chosen(At(lambda t: t["w"]), {"w": jnp.ones(2), "b": jnp.ones(2)}) == {"['w']"}

    def test_equal_arrays_are_told_apart(self):
        """By their place, not by their values or identity."""
        x = jnp.ones(2)
        assert chosen(At(lambda t: t[1]), [x, x, x]) == {"[1]"}

    def test_in_a_step(self):
        """The same decision when gradients are those of a part."""
        model = Block(KEY)
        assert decayed(At(head), model) == HEAD
        arrays = eqx.filter(model, eqx.is_inexact_array)
        part = eqx.tree_at(lambda m: m.mlp.layers[1].bias, arrays, None)
        assert decayed(At(head), model, jax.tree.map(jnp.zeros_like, part)) == {
            ".mlp.layers[1].weight"
        }

    @pytest.mark.parametrize(
        "where, message",
        [
            (lambda m: m.tail, "must point to parameters.*AttributeError"),
            (lambda m: m.mlp.layers[2], "must point to parameters.*IndexError"),
            (lambda m: m.scale[0], "must point to parameters.*TypeError"),
            (lambda m: m.norm.eps, "must point to parameters.*got 1e-05"),
            (lambda m: m.size, "must point to one of `.attention"),
            (lambda m: (), "must point to one of `.attention"),
        ],
    )
    def test_what_points_to_nothing(self, where, message):
        """`init` raises, names the argument and says what was found."""
        optim = eqopt.AdamW(0.1, decay_where=At(where))
        with pytest.raises(ValueError, match=r"`AdamW\(decay_where=...\)` " + message):
            optim.init(Block(KEY))

    def test_what_is_no_function(self):
        """A model is not one, though it can be called."""
        with pytest.raises(TypeError, match=r"`At\(where=...\)` must be a function|where"):
            At(nn.Identity())

    def test_equality(self):
        """By the function; one of a module survives pickling."""
        assert At(head) == At(head) == pickle.loads(pickle.dumps(At(head)))
        assert hash(At(head)) == hash(At(head))
        assert At(lambda m: m) != At(lambda m: m)


class TestDtype:
    def test_dtypes(self):
        """Exactly this dtype."""
        tree = {
            "a": jnp.ones(2),
            "b": jnp.ones(2, jnp.bfloat16),
            "c": jnp.ones(2, jnp.complex64),
            "d": jnp.arange(2),
        }
        assert chosen(Dtype(jnp.bfloat16), tree) == {"['b']"}
        assert chosen(Dtype("float32"), tree) == {"['a']"}
        assert chosen(Dtype(jnp.complex64), tree) == {"['c']"}
        assert chosen(Dtype(jnp.float16), tree) == set()

    @pytest.mark.parametrize("dtype", [jnp.int32, "float33", bool])
    def test_what_is_no_dtype_of_a_parameter(self, dtype):
        """The error shows it."""
        with pytest.raises(ValueError, match=r"`Dtype\(dtype=...\)` must be a floating or complex"):
            Dtype(dtype)


def test_nothing():
    """No leaf, and no complaint about it."""
    model = Block(KEY)
    assert chosen(Nothing(), model) == set()
    eqopt.AdamW(0.1, decay_where=Nothing()).init(model)
