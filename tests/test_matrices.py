"""Orthogonalisation and Muon beyond their trajectories: exact factors, batches and layouts, the
acceptance cases, numbers, and bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax.contrib import _muon
from test_trajectories_matrix import CONVERGENT, DION, JORDAN, polar

import eqopt
from eqopt import schedules
from eqopt.select import Axes, Matrices, Path

KEY = jax.random.key(0)


# ---- the factor itself


def updated(optim, grads, params=None):
    """One update from a new state."""
    return optim(grads, optim.init(grads if params is None else params), params)[0]


def normal(shape, seed=0, dtype=jnp.float32):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        x = x + 1j * rng.normal(size=shape)
    return jnp.asarray(x, dtype)


@pytest.mark.parametrize("preconditioning", ["frobenius", "spectral", "aol", "schatten"])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_convergent_iteration_gives_the_polar_factor(preconditioning, shape, dtype, x64):
    """Whatever the norm at the start, but for `"aol"`: it scales the rows (of the short side) one
    by one, and so gives the factor of what it scaled."""
    x = np.asarray(normal(shape, dtype=jnp.dtype(dtype)))
    found = updated(eqopt.Orthogonalize(CONVERGENT, 60, 0.0, preconditioning), jnp.asarray(x))
    if preconditioning == "aol":
        wide = x.T if shape[0] > shape[1] else x
        rows = np.sqrt(np.abs(wide @ wide.conj().T).sum(1, keepdims=True))
        wide = polar(wide / rows)
        np.testing.assert_allclose(found, wide.T if shape[0] > shape[1] else wide, atol=1e-12)
        return
    np.testing.assert_allclose(found, polar(x), atol=1e-12)
    exact = updated(eqopt.Orthogonalize(None, eps=0.0), jnp.asarray(x))
    np.testing.assert_allclose(exact, polar(x), atol=1e-12)


@pytest.mark.parametrize("coefficients", ["standard", "dion"])
@pytest.mark.parametrize("preconditioning", ["aol", "schatten"])
def test_preconditioning_as_in_optax(preconditioning, coefficients, x64):
    """Without `eps`, which optax does not pass on, the four agree."""
    g = normal((3, 5), dtype=jnp.float64)
    rows = jnp.asarray(JORDAN if coefficients == "standard" else DION)
    wanted = _muon.orthogonalize_via_newton_schulz(g, rows, 5, preconditioning)
    found = updated(eqopt.Orthogonalize(coefficients, 5, 0.0, preconditioning), g)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("preconditioning", ["frobenius", "spectral", "aol", "schatten"])
def test_eps_reaches_every_preconditioning(preconditioning, x64):
    """A gradient far below `eps` gives an update far below 1."""
    g = 1e-6 * normal((3, 5), dtype=jnp.float64)
    small = updated(eqopt.Orthogonalize(CONVERGENT, 2, 1.0, preconditioning), g)
    large = updated(eqopt.Orthogonalize(CONVERGENT, 2, 0.0, preconditioning), g)
    assert 0 < np.abs(small).max() < 1e-4 < 0.1 < np.abs(large).max()


@pytest.mark.parametrize(
    "optim",
    [
        *(eqopt.Orthogonalize(preconditioning=p) for p in _muon._PRECONDITIONINGS),
        eqopt.Orthogonalize(eps=0.0),
        eqopt.Orthogonalize(None),
        eqopt.Orthogonalize(None, eps=0.0),
        eqopt.ScaleByMuon(),
        eqopt.ScaleByMuon(None, adaptive=True),
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_zero_matrices(optim, dtype):
    """A zero matrix gives zero, beside another too, and so does one with a row of zeros, with
    finite derivatives in every case."""
    zeros, other = jnp.zeros((2, 3), dtype), normal((2, 3), dtype=jnp.dtype(dtype))
    found = updated(optim, {"a": zeros, "b": other})
    np.testing.assert_array_equal(found["a"], zeros)
    assert np.abs(np.asarray(found["b"])).max() > 0.3

    def loss(g):
        return jnp.sum(jnp.abs(updated(optim, g) - 0.1) ** 2).astype(jnp.float32).real

    if dtype != "float16":  # where 1 / eps is infinite
        for g in (zeros, other.at[0].set(0)):
            assert np.all(np.isfinite(jax.grad(loss)(g)))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("eps", [0.0, 0.3])
def test_derivative_of_the_exact_factor(dtype, eps, x64):
    """Agrees with finite differences, and where singular values are equal with those of the
    converged iteration, whose derivative has no such trouble."""
    x, dx = (normal((3, 4), seed, jnp.dtype(dtype)) for seed in (1, 2))
    optim = eqopt.Orthogonalize(None, eps=eps)

    def factor(x):
        return updated(optim, x)

    _, slope = jax.jvp(factor, (x,), (dx,))
    step = 1e-6
    wanted = (factor(x + step * dx) - factor(x - step * dx)) / (2 * step)
    np.testing.assert_allclose(slope, wanted, atol=1e-8)
    if eps == 0.0:
        equal = jnp.eye(3, 4, dtype=x.dtype)
        iterated = eqopt.Orthogonalize(CONVERGENT, 60, 0.0)
        _, slope = jax.jvp(factor, (equal,), (dx,))
        _, wanted = jax.jvp(lambda x: updated(iterated, x), (equal,), (dx,))
        np.testing.assert_allclose(slope, wanted, atol=1e-10)


# ---- batches and layouts


EACH = {
    "Orthogonalize": eqopt.Orthogonalize(),
    "Orthogonalize[exact]": eqopt.Orthogonalize(None),
    "ScaleByMuon[adaptive]": eqopt.ScaleByMuon(adaptive=True),
}
each = pytest.mark.parametrize("optim", EACH.values(), ids=EACH.keys())
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@each
def test_a_batch_equals_a_loop(optim):
    """Matrices of equal shape, tall ones among wide ones, and one of another dtype give what each
    gives alone."""
    shapes = [(3, 5), (5, 3), (3, 5), (4, 4), (5, 3), (4, 4), (2, 2)]
    grads = [normal(shape, i) for i, shape in enumerate(shapes)]
    grads.append(normal((3, 5), 9, jnp.bfloat16))
    together = updated(optim, grads)
    for g, found in zip(grads, together, strict=True):
        assert found.dtype == g.dtype
        alone = updated(optim, g)
        np.testing.assert_allclose(found.astype(float), alone.astype(float), **CLOSE)


def test_matrices_of_equal_shape_are_multiplied_together():
    """The compiled step of 12 matrices has the products of one."""

    def products(count):
        grads = [jnp.ones((4, 4))] * count
        optim = eqopt.ScaleByMuon()
        lowered = jax.jit(optim.step).lower(grads, optim.init(grads), grads)
        return lowered.as_text().count("dot_general")

    assert products(12) == products(1) == 3


@each
def test_case_G5_stacked_layers(optim):
    """(L, out, in), as a stacked `Linear` and as an array with a rule, equals the slices."""
    layers = eqx.filter_vmap(lambda k: eqx.nn.Linear(5, 3, use_bias=False, key=k))(
        jax.random.split(KEY, 4)
    )
    x = normal((4, 3, 5))
    grads = eqx.tree_at(lambda m: m.weight, layers, x)
    wanted = jnp.stack([updated(optim, x[i]) for i in range(4)])
    np.testing.assert_allclose(updated(optim, grads, layers).weight, wanted, **CLOSE)
    rules = ((Path(""), Axes(out=(1,), in_=(2,), stacked=(0,))),)
    other = type(optim)(**{**vars(optim), "rules": rules})
    np.testing.assert_allclose(updated(other, x), wanted, **CLOSE)


@each
def test_case_G5_convolutions(optim):
    """(O, I, kh, kw) equals (O, I * kh * kw); with (kh, kw, I, O) and a rule as well."""
    conv = eqx.nn.Conv2d(2, 4, 3, use_bias=False, key=KEY)
    x = normal((4, 2, 3, 3))
    wanted = updated(optim, x.reshape(4, -1)).reshape(x.shape)
    found = updated(optim, eqx.tree_at(lambda c: c.weight, conv, x), conv).weight
    np.testing.assert_allclose(found, wanted, **CLOSE)
    rules = ((Path(""), Axes(out=(3,), in_=(2,), spatial=(0, 1))),)
    other = type(optim)(**{**vars(optim), "rules": rules})
    found = updated(other, jnp.moveaxis(x, (0, 1), (3, 2)))
    np.testing.assert_allclose(jnp.moveaxis(found, (3, 2), (0, 1)), wanted, **CLOSE)


def test_case_G5_factors():
    """Those of the slices, and of O and I * kh * kw; 1-D and 0-d leaves are no matrices."""
    layers = eqx.filter_vmap(lambda k: eqx.nn.Linear(2, 8, key=k))(jax.random.split(KEY, 4))
    conv = eqx.nn.Conv2d(2, 72, 3, key=KEY)
    model = {"linear": layers, "conv": conv, "scale": jnp.ones(())}
    ones = jax.tree.map(lambda x: jnp.ones_like(x) if eqx.is_array(x) else x, model)
    found = updated(eqopt.ScaleByShape(where=Matrices()), ones)
    np.testing.assert_allclose(found["linear"].weight, 2.0, rtol=1e-6)
    np.testing.assert_allclose(found["conv"].weight, 2.0, rtol=1e-6)
    for untouched in (found["linear"].bias, found["conv"].bias, found["scale"]):
        np.testing.assert_array_equal(untouched, 1.0)
    found = updated(eqopt.ScaleByShape(0.2, where=Matrices()), ones)
    np.testing.assert_allclose(found["conv"].weight, 0.2 * 72**0.5, rtol=1e-6)


def test_case_G1_factor_follows_the_layer():
    """`Linear(2 -> 8)` has 2, `Linear(8 -> 2)` has 1; with optax's axes it is the other way."""
    for (in_, out), factor in (((2, 8), 2.0), ((8, 2), 1.0)):
        layer = eqx.nn.Linear(in_, out, use_bias=False, key=KEY)
        grads = eqx.tree_at(lambda m: m.weight, layer, jnp.ones_like(layer.weight))
        found = updated(eqopt.ScaleByShape(), grads, layer).weight
        np.testing.assert_allclose(found, factor, rtol=1e-6)
        rules = ((Path(""), Axes(out=(1,), in_=(0,))),)
        turned = updated(eqopt.ScaleByShape(rules=rules), grads.weight)
        np.testing.assert_allclose(turned, 2.0 / factor, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_case_G3_convergent_coefficients(dtype):
    """Thirty steps with (2, -1.5, 0.5) give U V^H of a 4x3 matrix: `Q^H Q = I`."""
    x = normal((4, 3), dtype=jnp.dtype(dtype))
    q = np.asarray(updated(eqopt.Orthogonalize((2.0, -1.5, 0.5), 30), x))
    np.testing.assert_allclose(q.conj().T @ q, np.eye(3), atol=1e-4)
    np.testing.assert_allclose(q, polar(np.asarray(x)), atol=1e-4)


def test_root_mean_square_after_scaling():
    """`consistent_rms` is what the elements of an orthogonal update then have."""
    grads = [normal((4, 16), 1), normal((32, 8), 2)]
    optim = eqopt.Orthogonalize(None) >> eqopt.ScaleByShape(0.2)
    for u in updated(optim, grads):
        np.testing.assert_allclose(np.sqrt(np.mean(np.square(u))), 0.2, rtol=1e-4)


# ---- numbers


def test_coefficients_are_swept_scheduled_and_differentiated():
    """Rows of a batch under `filter_vmap`, schedules for single coefficients, derivatives."""
    g = normal((3, 5))
    batch = jnp.asarray([[JORDAN] * 2, [CONVERGENT] * 2])
    optims = eqx.filter_vmap(lambda rows: eqopt.Orthogonalize(rows, 2))(batch)
    found = eqx.filter_vmap(lambda o: updated(o, g))(optims)
    for i, rows in enumerate((JORDAN, CONVERGENT)):
        np.testing.assert_allclose(found[i], updated(eqopt.Orthogonalize(rows, 2), g), rtol=1e-5)

    optim = eqopt.Orthogonalize((schedules.Linear(2.0, 3.0, steps=2), -1.5, 0.5), 1)
    state = optim.init(g)
    for a in (2.0, 2.5, 3.0):
        assert float(eqopt.hyperparameters(optim, state)["orthogonalize.ns_coeffs[0][0]"]) == a
        u, state = optim(g, state)
        np.testing.assert_allclose(u, updated(eqopt.Orthogonalize((a, -1.5, 0.5), 1), g), rtol=1e-5)

    slopes = eqx.filter_grad(lambda o: jnp.sum(jnp.abs(updated(o, g))))(
        eqopt.dynamic(eqopt.Orthogonalize())
    )
    assert all(float(x) != 0 for x in jax.tree.leaves(slopes.ns_coeffs))


def test_presets_and_arrays_are_numbers():
    """A preset, its rows and an array of them are the same; the default is not printed."""
    assert eqopt.Orthogonalize("standard") == eqopt.Orthogonalize(JORDAN)
    assert eqopt.Orthogonalize("dion").ns_coeffs == tuple(map(tuple, DION))
    given = eqopt.Orthogonalize(np.asarray(DION)).ns_coeffs
    np.testing.assert_allclose(given, DION, rtol=1e-6)
    assert repr(eqopt.Orthogonalize("standard")) == "Orthogonalize()"
    assert eqopt.Orthogonalize((2, -1.5, 0.5)).ns_coeffs == ((2.0, -1.5, 0.5),)


def test_the_state_is_the_momentum():
    """`mu` alone, of the selected leaves, in its own dtype if that is given."""
    params = {"b": jnp.ones(3), "w": jnp.ones((2, 3))}
    state = eqopt.ScaleByMuon(where=Matrices(), mu_dtype=jnp.bfloat16).init(params)
    assert state.inner.mu["b"] is None
    assert state.inner.mu["w"].dtype == jnp.bfloat16
    assert len(jax.tree.leaves(state)) == 2


# ---- bad input


@pytest.mark.parametrize("kind", [eqopt.Orthogonalize, eqopt.ScaleByMuon], ids=lambda k: k.__name__)
@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"ns_steps": 0}, "`ns_steps=...` must be positive; got 0"),
        ({"ns_coeffs": "dion", "ns_steps": 3}, "one row .* `ns_steps=3`; got 5 rows"),
        ({"ns_coeffs": "dion", "ns_steps": 6}, "one row .* `ns_steps=6`; got 5 rows"),
        ({"ns_coeffs": "muon"}, "numbers or one of 'standard', 'dion'; got 'muon'"),
        ({"ns_coeffs": (1.0, 2.0)}, "a row of 3 numbers"),
        ({"ns_coeffs": ()}, "a row of 3 numbers"),
        ({"ns_coeffs": ((1.0, 2.0, 3.0), (1.0, 2.0))}, "a row of 3 numbers"),
        ({"ns_coeffs": np.ones((2, 2, 3))}, "a row of 3 numbers"),
        ({"ns_coeffs": (1.0, 2.0, float("nan"))}, "not NaN"),
        ({"eps": -1.0}, "at least 0"),
    ],
)
def test_wrong_arguments(kind, arguments, words):
    """At construction, naming the class, the argument and the rule."""
    words = words.replace("`ns_steps=...`", rf"`{kind.__name__}\(ns_steps=...\)`")
    with pytest.raises(ValueError, match=words) as caught:
        kind(**arguments)
    assert f"`{kind.__name__}(" in str(caught.value)


@pytest.mark.parametrize("arguments", [{"preconditioning": "l2"}, {"ns_steps": 2.0}], ids=str)
def test_wrong_static_arguments(arguments):
    """The error names the argument."""
    with pytest.raises((ValueError, TypeError), match=next(iter(arguments))):
        eqopt.Orthogonalize(**arguments)


@pytest.mark.parametrize(
    "optim", [eqopt.Orthogonalize(), eqopt.ScaleByMuon(), eqopt.ScaleByShape()], ids=repr
)
def test_what_is_no_matrix(optim):
    """`init` names the leaf, and says how to leave it out or describe it; so does an update."""
    model = {"linear": eqx.nn.Linear(2, 3, key=KEY), "t": jnp.ones((2, 3, 4))}
    message = rf"(?s)`{type(optim).__name__}` needs matrices; got the leaf `(.*)` of shape .*"
    message += r"where=eqopt\.select\.Matrices\(\).*rules="
    with pytest.raises(ValueError, match=message) as caught:
        optim.init(model)
    assert "`['linear'].bias` of shape (3,)" in str(caught.value)
    with pytest.raises(ValueError, match=message) as caught:
        optim.init({"t": model["t"]})
    assert "`['t']` of shape (2, 3, 4)" in str(caught.value)
    if not isinstance(optim, eqopt.ScaleByMuon):
        state = optim.init(jnp.ones((2, 2)))
        with pytest.raises(ValueError, match=message):
            optim(model, state, model)
    rules = ((Path("t"), Axes(out=(0,), in_=(1,))),)  # what is the last axis?
    with pytest.raises(ValueError, match=message):
        type(optim)(where=Matrices(rules), rules=rules).init(model)
    where = Matrices()
    type(optim)(where=where).init(model)


def test_muon_of_optax_takes_the_same_steps(x64):
    """Ten steps with the defaults, of stacked and convolutional leaves, told their axes."""
    rules = (
        (Path("stacked"), Axes(out=(1,), in_=(2,), stacked=(0,))),
        (Path("conv"), Axes(out=(0,), in_=(1,), spatial=(2, 3))),
    )
    shapes = {"conv": (4, 2, 3, 3), "stacked": (2, 3, 5), "w": (5, 3)}
    dims = {
        "conv": _muon.MuonDimensionNumbers((1, 2, 3), (0,)),
        "stacked": _muon.MuonDimensionNumbers(2, 1),
        "w": _muon.MuonDimensionNumbers(1, 0),
    }
    optim = eqopt.ScaleByMuon(rules=rules) >> eqopt.ScaleByShape(rules=rules)
    tx = optax.chain(
        optax.contrib.scale_by_muon(weight_dimension_numbers=dims), _muon.scale_by_shape(dims)
    )
    params = {key: normal(shape, 0, jnp.float64) for key, shape in shapes.items()}
    state, theirs = optim.init(params), tx.init(params)
    for t in range(10):
        grads = {key: normal(shape, 1 + t, jnp.float64) for key, shape in shapes.items()}
        ours, state = optim(grads, state, params)
        wanted, theirs = tx.update(grads, theirs, params)
        for key in shapes:
            np.testing.assert_allclose(ours[key], wanted[key], rtol=1e-9, atol=1e-12)
