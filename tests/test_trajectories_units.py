"""Trajectories of what treats units by themselves, in float64, against plain NumPy.

The references import nothing from eqopt; see `trajectories.py`. Numbers in the comments are
those of the papers' equations.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import eqopt
from eqopt.select import Axes, Path

STEPS = 10
KEY = jax.random.key(0)


def problem(is_complex):
    """Parameters and gradients, a dict of a vector, a scalar and a matrix (3, 4): signs change,
    the fifth gradient is 0, the eighth 1e3; one row of the first is 0."""
    rng = np.random.default_rng(0)
    shapes = {"b": (3,), "s": (), "w": (3, 4)}

    def draw():
        tree = {key: np.asarray(rng.normal(size=shape)) for key, shape in shapes.items()}
        if is_complex:
            tree = {key: x + 1j * rng.normal(size=x.shape) for key, x in tree.items()}
        return tree

    params, grads = draw(), [draw() for _ in range(STEPS)]
    grads[0]["w"][1] = 0.0
    grads[4] = {key: 0 * x for key, x in grads[4].items()}
    grads[7] = {key: (1e3 * np.sign(x.real)).astype(x.dtype) for key, x in grads[7].items()}
    return params, grads


def test_the_gradients_are_hard_enough():
    """In every element the sign changes."""
    for is_complex in (False, True):
        _, grads = problem(is_complex)
        for key in grads[0]:
            found = np.stack([g[key].real for g in grads])
            assert np.all(found.min(0) < 0) and np.all(found.max(0) > 0)


def length(x):
    return np.sqrt(np.sum(np.abs(x) ** 2))


def per_unit(function):
    """`function(g, p)` on each row of a matrix, and on any other array as a whole."""

    def direction(g, p):
        if g.ndim == 2:
            return np.stack([function(*rows) for rows in zip(g, p, strict=True)])
        return function(g, p)

    return direction


def normalised(scale, eps):
    return lambda g, p: scale * g / (length(g) + eps) if length(g) > 0 else g


def clipped(clipping, eps):
    """Brock et al. 2021, equation 3, of one unit i."""

    def unit(g, p):
        bound = clipping * max(length(p), eps)  # lambda ||W_i||*, with ||W||* = max(||W||, eps)
        return bound * g / length(g) if length(g) > bound else g

    return unit


def centred(g, p):
    """Yong et al. 2020, equation 1: the mean of each unit's weights is subtracted."""
    return np.stack([row - np.sum(row) / len(row) for row in g]) if g.ndim == 2 else g


TRAJECTORIES = {
    "NormalizeByGlobalNorm[leaf]": (
        eqopt.NormalizeByGlobalNorm(2.0, 0.1, "leaf"),
        normalised(2.0, 0.1),
    ),
    "NormalizeByGlobalNorm[matrix]": (
        eqopt.NormalizeByGlobalNorm(2.0, 0.1, "matrix"),
        normalised(2.0, 0.1),
    ),
    "NormalizeByGlobalNorm[row]": (
        eqopt.NormalizeByGlobalNorm(axis="row"),
        per_unit(normalised(1.0, 0.0)),
    ),
    "AdaptiveGradClip": (eqopt.AdaptiveGradClip(0.5), per_unit(clipped(0.5, 1e-3))),
    "AdaptiveGradClip[eps]": (eqopt.AdaptiveGradClip(0.5, 1.0), per_unit(clipped(0.5, 1.0))),
    "Centralize": (eqopt.Centralize(), centred),
}


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("optim, reference", TRAJECTORIES.values(), ids=TRAJECTORIES.keys())
def test_trajectory(optim, reference, is_complex, x64):
    """Ten updates, and the parameters after each, agree with the formulas to 1e-12."""
    wanted, grads = problem(is_complex)
    params = jax.tree.map(jnp.asarray, wanted)
    state = optim.init(params)
    for t, g in enumerate(grads):
        update = {key: reference(g[key], wanted[key]) for key in g}
        wanted = {key: wanted[key] + update[key] for key in g}
        updates, _ = optim(jax.tree.map(jnp.asarray, g), state, params)
        params, state = optim.step(jax.tree.map(jnp.asarray, g), state, params)
        for key in g:
            for found, right in ((updates[key], update[key]), (params[key], wanted[key])):
                np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-14, err_msg=f"{t}")


# ---- which axes


ALL = {
    "matrix": eqopt.NormalizeByGlobalNorm(0.7, 0.1, "matrix"),
    "row": eqopt.NormalizeByGlobalNorm(0.7, 0.1, "row"),
    "Centralize": eqopt.Centralize(),
    "AdaptiveGradClip": eqopt.AdaptiveGradClip(0.1),
}
each = pytest.mark.parametrize("optim", ALL.values(), ids=ALL.keys())
by_unit = pytest.mark.parametrize("name", ["row", "Centralize", "AdaptiveGradClip"])


def like(tree, seed):
    """Normal numbers in the structure of a model."""
    arrays, rest = eqx.partition(tree, eqx.is_inexact_array)
    leaves, treedef = jax.tree.flatten(arrays)
    rng = np.random.default_rng(seed)
    drawn = [jnp.asarray(rng.normal(size=x.shape), x.dtype) for x in leaves]
    return eqx.combine(jax.tree.unflatten(treedef, drawn), rest)


def updated(optim, grads, params):
    return optim(grads, optim.init(params), params)[0]


@pytest.mark.parametrize("dims", [1, 2, 3])
@by_unit
def test_convolutions_are_treated_as_matrices(name, dims):
    """The kernel (O, I, ...) of a convolution of any rank gives what (O, I * ...) gives."""
    optim = ALL[name]
    conv = like(eqx.nn.Conv(dims, 2, 3, 3, key=KEY), 1)
    grads = like(conv, 2)
    flat_params, flat_grads = (x.weight.reshape(3, -1) for x in (conv, grads))
    found = updated(optim, grads, conv).weight
    wanted = updated(optim, flat_grads, flat_params)
    np.testing.assert_allclose(found.reshape(3, -1), wanted, rtol=1e-6, atol=1e-7)


def test_biases_of_convolutions_stay_whole():
    """A bias (O, 1, 1) is no matrix: it isn't centred away, and is clipped as one unit."""
    conv = like(eqx.nn.Conv2d(2, 3, 3, key=KEY), 1)
    grads = like(conv, 2)
    np.testing.assert_array_equal(updated(eqopt.Centralize(), grads, conv).bias, grads.bias)
    bias = updated(eqopt.AdaptiveGradClip(0.1), grads, conv).bias
    np.testing.assert_allclose(length(bias), 0.1 * length(conv.bias), rtol=1e-6)
    row = updated(eqopt.NormalizeByGlobalNorm(axis="row"), grads, conv).bias
    np.testing.assert_allclose(length(row), 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    "build",
    [
        lambda key: eqx.nn.Linear(2, 3, key=key),
        lambda key: eqx.nn.Conv2d(2, 3, 3, key=key),
        lambda key: eqx.nn.GRUCell(2, 3, key=key),
    ],
    ids=["Linear", "Conv2d", "GRUCell"],
)
@each
def test_stacked_layers_are_treated_one_by_one(optim, build):
    """Four layers in one give what each gives alone, also where the gradients are given without
    parameters."""
    layers = like(eqx.filter_vmap(build)(jax.random.split(KEY, 4)), 1)
    grads = like(layers, 2)
    found = updated(optim, grads, layers)
    for i in range(4):
        g, p = (
            jax.tree.map(lambda x, i=i: x[i] if eqx.is_array(x) else x, tree)
            for tree in (grads, layers)
        )
        alone = updated(optim, g, p)
        for x, y in zip(jax.tree.leaves(alone), jax.tree.leaves(found), strict=True):
            np.testing.assert_allclose(x, y[i], rtol=1e-6, atol=1e-7)
    if not isinstance(optim, eqopt.AdaptiveGradClip):
        without, _ = optim(grads, optim.init(layers))
        for x, y in zip(jax.tree.leaves(without), jax.tree.leaves(found), strict=True):
            np.testing.assert_array_equal(x, y)


def test_axes_of_normalisation_differ():
    """Each `axis` gives norm 1 to its own parts."""
    layers = like(eqx.filter_vmap(lambda k: eqx.nn.Linear(2, 3, key=k))(jax.random.split(KEY)), 1)

    def squares(axis):
        return np.square(updated(eqopt.NormalizeByGlobalNorm(axis=axis), layers, layers).weight)

    assert squares("tree").sum() < 0.99
    np.testing.assert_allclose(squares("leaf").sum(), 1, rtol=1e-6)
    np.testing.assert_allclose(squares("matrix").sum((1, 2)), np.ones(2), rtol=1e-6)
    np.testing.assert_allclose(squares("row").sum(2), np.ones((2, 3)), rtol=1e-6)


@by_unit
def test_rules_say_what_other_arrays_are(name):
    """A kernel with the out axis last, as optax and Flax have it, with a rule for it."""
    rules = ((Path("k"), Axes(out=(3,), in_=(2,), spatial=(0, 1))),)
    optim = ALL[name]
    other = type(optim)(**{**vars(optim), "rules": rules})
    kernel, grads = (np.random.default_rng(i).normal(size=(3, 3, 2, 4)) for i in range(2))

    def as_rows(x):
        return jnp.asarray(np.moveaxis(x, 3, 0).reshape(4, -1), jnp.float32)

    found = updated(
        other, {"k": jnp.asarray(grads, jnp.float32)}, {"k": jnp.asarray(kernel, jnp.float32)}
    )
    wanted = updated(optim, as_rows(grads), as_rows(kernel))
    np.testing.assert_allclose(as_rows(np.asarray(found["k"])), wanted, rtol=1e-5, atol=1e-6)


def test_centring_arrays_that_are_no_matrices():
    """Vectors, scalars and arrays whose axes nobody knows stay as they are, bit for bit."""
    params = {"b": jnp.arange(3.0), "s": jnp.asarray(2.0), "t": jnp.ones((2, 3, 4))}
    found = updated(eqopt.Centralize(), params, params)
    for key in params:
        np.testing.assert_array_equal(found[key], params[key])


# ---- bad input


def test_axis_that_does_not_exist():
    """The error names the argument and what it may be."""
    with pytest.raises((ValueError, TypeError), match="axis"):
        eqopt.NormalizeByGlobalNorm(axis="column")


@each
def test_rules_that_match_nothing_or_do_not_fit(optim):
    """At `init` for a path that matches nothing, at the update for axes that are none; the error
    names the path."""
    kind = type(optim)
    given = {k: v for k, v in vars(optim).items() if k != "rules"}
    params = {"w": jnp.ones((2, 3))}
    with pytest.raises(ValueError, match=rf"`{kind.__name__}\(rules=...\)` must match a leaf"):
        kind(**given, rules=((Path("nothing"), Axes(out=(0,))),)).init(params)
    for wrong in (Axes(out=(2,)), Axes(out=(-1,)), Axes(out=(0,), in_=(0,))):
        other = kind(**given, rules=((Path("w"), wrong),))
        with pytest.raises(
            ValueError, match=r"`rules` must name axes .* `\['w'\]` of shape \(2, 3"
        ):
            updated(other, params, params)


def test_adaptive_clipping_needs_parameters():
    """It names itself."""
    params = jnp.ones(3)
    optim = eqopt.AdaptiveGradClip(0.1)
    with pytest.raises(TypeError, match="`AdaptiveGradClip` needs `params`"):
        optim(params, optim.init(params))


# ---- acceptance cases


def test_case_I11_five_axes():
    """A kernel (3, 3, 3, 2, 4) of ones works and keeps its shape. With a rule for optax's layout
    the units are along the last axis; of Equinox's `Conv3d` they are along the first."""
    kernel = jnp.ones((3, 3, 3, 2, 4))
    optim = eqopt.AdaptiveGradClip(0.1)
    assert updated(optim, kernel, kernel).shape == (3, 3, 3, 2, 4)
    rules = ((Path(""), Axes(out=(4,), in_=(3,), spatial=(0, 1, 2))),)
    grads = kernel * jnp.arange(4.0)  # the units differ
    found = updated(eqopt.AdaptiveGradClip(0.1, rules=rules), grads, kernel)
    tx = optax.adaptive_grad_clip(0.1)
    np.testing.assert_allclose(found, tx.update(grads, tx.init(kernel), kernel)[0], rtol=1e-6)
    np.testing.assert_allclose(found[..., 0], 0.0)
    np.testing.assert_allclose(found[..., 1:], 0.1, rtol=1e-6)

    conv = eqx.nn.Conv3d(2, 4, 3, use_bias=False, key=KEY)
    conv = eqx.tree_at(lambda c: c.weight, conv, jnp.ones((4, 2, 3, 3, 3)))
    grads = eqx.tree_at(lambda c: c.weight, conv, jnp.moveaxis(grads, (4, 3), (0, 1)))
    weight = updated(optim, grads, conv).weight
    np.testing.assert_allclose(weight, jnp.moveaxis(found, (4, 3), (0, 1)), rtol=1e-6)


@pytest.mark.parametrize("axis", ["leaf", "matrix", "row"])
def test_case_A3_norm_in_float16(axis):
    """300^2 is beyond float16; the norm is not."""
    leaf = jnp.asarray([300.0, 400.0], jnp.float16)
    for x in (leaf, leaf[None]):
        found = updated(eqopt.NormalizeByGlobalNorm(axis=axis), x, x)
        assert found.dtype == jnp.float16
        np.testing.assert_allclose(found.astype(float).ravel(), [0.6, 0.8], rtol=1e-3)
    found = updated(eqopt.AdaptiveGradClip(1.0), leaf, jnp.asarray([1.0, 0.0], jnp.float16))
    np.testing.assert_allclose(found.astype(float), [0.6, 0.8], rtol=1e-3)


@pytest.mark.parametrize("axis", ["leaf", "matrix", "row"])
def test_case_A8_normalise_at_zero(axis):
    """Zeros stay zeros, and [3, 4] gets norm 1."""
    optim = eqopt.NormalizeByGlobalNorm(axis=axis)
    for shape in ((2,), (1, 2)):
        zeros = jnp.zeros(shape)
        np.testing.assert_array_equal(updated(optim, zeros, zeros), np.zeros(shape))
        x = jnp.asarray([3.0, 4.0]).reshape(shape)
        np.testing.assert_allclose(updated(optim, x, x).ravel(), [0.6, 0.8], rtol=1e-6)
