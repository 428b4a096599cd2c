"""The contracts scan, pmap, shard_map and sharded: on 8 simulated devices everything equals the
plain run, and states keep the shardings and varying axes of the parameters they are made from."""

from functools import cache

import cases
import jax
import jax.numpy as jnp
import pytest
import trees
from jax.sharding import AxisType, PartitionSpec as P

from eqopt import projections
from eqopt._core.gate import gate

# The third of four steps is skipped by a gate: the plain run makes three.
TAKEN = (True, True, False, True)
CLOSE = {"rtol": 1e-6, "atol": 1e-6}


def params(seed=0):
    """A matrix of which both sides are divisible by those of the mesh, and a scalar."""
    like = {"layers": [{"w": jnp.zeros((8, 2))}], "s": jnp.zeros(())}
    return trees.grads(like, 100 + seed)


def stacked_grads(like):
    """Gradients for each of the four steps, stacked along the first axis."""
    return trees.stack([trees.grads(like, t) for t in range(len(TAKEN))])


def step_of(name):
    """One step of a case, `(grads, state, params) -> (params, state)`."""
    case = cases.TRANSFORMS[name]
    return lambda g, state, p: case.optim.step(g, state, p, **case.extras(p, g))


@cache
def plain(name):
    """The parameters and the state after three eager steps on one device."""
    with jax.set_mesh(None):
        p = params()
        state = cases.TRANSFORMS[name].optim.init(p)
        for t, taken in enumerate(TAKEN):
            if taken:
                p, state = step_of(name)(trees.grads(params(), t), state, p)
        assert p["s"].sharding.num_devices == 1
        return p, state


def scanned(name, p, state, grads, taken):
    """The same steps as a `scan` with a gate in its body, which fails where a type changes."""
    step = step_of(name)

    def body(carry, inputs):
        taken, g = inputs
        return gate(taken, lambda c: step(g, c[1], c[0]), carry), None

    return jax.lax.scan(body, (p, state), (taken, grads))[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_scan(name):
    """Steps in a `scan`, one of them skipped by a gate, equal eager steps."""
    p = params()
    state = cases.TRANSFORMS[name].optim.init(p)
    run = trees.quick_jit(lambda *args: scanned(name, *args))
    out = run(p, state, stacked_grads(p), jnp.array(TAKEN))
    trees.assert_close(out, plain(name), **CLOSE)
    trees.assert_same_type(out, (p, state))


@pytest.fixture
def grid(request):
    """Eight devices as 4 by 2, "data" by "model", in the mode of sharding asked for."""
    kind = getattr(AxisType, request.param)
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(kind, kind))
    with jax.set_mesh(mesh):
        yield mesh


@pytest.fixture
def line():
    """Eight devices along "data"."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        yield mesh


def spec_of(shape):
    """Each of the first two axes along one of the mesh, where it can be divided."""
    axes = zip(shape, (("data", 4), ("model", 2)), strict=False)
    return [name if size % parts == 0 else None for size, (name, parts) in axes]


def put(tree, *leading):
    """The tree, sharded by `spec_of` behind leading axes."""

    def sharded(x):
        return jax.device_put(x, P(*leading, *spec_of(x.shape[len(leading) :])))

    return jax.tree.map(sharded, tree)


def for_projection(case, seed=0):
    """The parameters, or a tree that the set fits."""
    return params(seed) if case.free else trees.grads(case.tree(), 100 + seed)


def assert_sharded_alike(tree, p):
    """Each array that has the shape of a parameter has its sharding, in its type too."""
    like = {x.shape: x for x in jax.tree.leaves(p)}
    for x in jax.tree.leaves(tree):
        if x.shape in like:
            y = like[x.shape]
            assert x.sharding.is_equivalent_to(y.sharding, x.ndim), (x.sharding, y.sharding)
            assert jax.typeof(x).sharding == jax.typeof(y).sharding


@pytest.mark.slow
@pytest.mark.parametrize("grid", ["Auto"], indirect=True)
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_sharded(name, grid):
    """Sharded parameters: `init` keeps the shardings, steps equal those on one device."""
    p = put(params())
    state = cases.TRANSFORMS[name].optim.init(p)
    assert_sharded_alike(state, p)
    run = trees.quick_jit(lambda *args: scanned(name, *args))
    out = run(p, state, put(stacked_grads(params()), None), jnp.array(TAKEN))
    trees.assert_close(out, plain(name), **CLOSE)


@pytest.mark.parametrize("grid", ["Explicit"], indirect=True)
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_explicit_sharding(name, grid):
    """Shardings in the types: `init`, eager and compiled, and steps in gates in a `scan` keep
    them, and equal those on one device."""
    optim = cases.TRANSFORMS[name].optim
    p = put(params())
    state = optim.init(p)
    assert_sharded_alike(state, p)

    @trees.quick_jit
    def run(p, grads):
        return scanned(name, p, optim.init(p), grads, jnp.array(TAKEN))

    new_p, new_state = run(p, put(stacked_grads(params()), None))
    assert_sharded_alike((new_p, new_state), p)
    for x, y in zip(jax.tree.leaves(new_state), jax.tree.leaves(state), strict=True):
        assert jax.typeof(x) == jax.typeof(y)
    trees.assert_close((new_p, new_state), plain(name), **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("grid", ["Explicit"], indirect=True)
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_explicit_sharding_eager(name, grid):
    """Shardings in the types: eager updates and steps keep them too."""
    case = cases.TRANSFORMS[name]
    p = put(params())
    g = put(trees.grads(params(), 0))
    updates, state = case.optim(g, case.optim.init(p), p, **case.extras(p, g))
    new_p, _ = case.optim.step(g, case.optim.init(p), p, **case.extras(p, g))
    assert_sharded_alike((updates, new_p, state), p)


def varying(x):
    """The axes of the mesh over which a value varies inside `shard_map`."""
    return jax.typeof(x).manual_axis_type.varying


def vary(x):
    """A value as one that varies over "data", so that it can be returned as such."""
    return x if varying(x) else jax.lax.pcast(x, "data", to="varying")


def apart(x):
    """Eight arrays, one for each device, of which `x` is the mean."""
    factors = 1 + 0.1 * jnp.array([-4, -3, -2, -1, 1, 2, 3, 4])
    return jnp.moveaxis(x[..., None] * factors, -1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_shard_map_of_independent_runs(name, line):
    """Each device trains parameters of its own: arrays of the state vary as they do, through
    `init` and steps in gates in a `scan`, and each run equals the plain one, whatever the
    neighbours do."""
    optim = cases.TRANSFORMS[name].optim

    def inside(p, grads):
        p, grads = jax.tree.map(lambda x: x[0], (p, grads))
        state = optim.init(p)
        out = scanned(name, p, state, grads, jnp.array(TAKEN))
        for x in jax.tree.leaves((state, out)):
            assert x.shape != p["layers"][0]["w"].shape or varying(x) == {"data"}
        return jax.tree.map(lambda x: vary(x)[None], out)

    lanes = [(params(i % 2), stacked_grads(params(i % 2))) for i in range(8)]
    spread = jax.tree.map(lambda x: jax.device_put(x, P("data")), trees.stack(lanes))
    out = trees.quick_jit(jax.shard_map(inside, in_specs=P("data"), out_specs=P("data")))(*spread)
    out = jax.device_get(out)
    for i in range(0, 8, 2):
        trees.assert_close(jax.tree.map(lambda x, i=i: x[i], out), plain(name), **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_shard_map_of_data(name, line):
    """Gradients differ from device to device and are averaged: the state stays the same on all
    devices, in its type too, and the run equals the plain one."""
    optim = cases.TRANSFORMS[name].optim

    def inside(p, grads):
        grads = jax.lax.pmean(jax.tree.map(lambda x: x[0], grads), "data")
        out = scanned(name, p, optim.init(p), grads, jnp.array(TAKEN))
        assert not any(varying(x) for x in jax.tree.leaves(out))
        return out

    grads = jax.tree.map(apart, stacked_grads(params()))
    grads = jax.tree.map(lambda x: jax.device_put(x, P("data")), grads)
    out = trees.quick_jit(jax.shard_map(inside, in_specs=(P(), P("data")), out_specs=P()))(
        params(), grads
    )
    trees.assert_close(out, plain(name), **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_pmap(name):
    """The same by `jax.pmap`: gradients averaged over the devices, equal results on all."""
    optim = cases.TRANSFORMS[name].optim

    def inside(p, grads):
        grads = jax.lax.pmean(grads, "data")
        return scanned(name, p, optim.init(p), grads, jnp.array(TAKEN))

    grads = jax.tree.map(apart, stacked_grads(params()))
    out = jax.pmap(inside, axis_name="data", in_axes=(None, 0))(params(), grads)
    trees.assert_close(out, trees.stack([plain(name)] * 8), **CLOSE)


@pytest.mark.parametrize("grid", ["Auto", "Explicit"], indirect=True)
@pytest.mark.parametrize("name", cases.PROJECTIONS)
def test_projection_sharded(name, grid):
    """A projection of sharded parameters equals that on one device and keeps the shardings."""
    case = cases.PROJECTIONS[name]
    projection, plain = case.projection, for_projection(case)
    p = put(plain)
    for out in (projection(p), trees.quick_jit(lambda tree: projection(tree))(p)):
        trees.assert_close(out, projection(plain), **CLOSE)
        assert_sharded_alike(out, p)


@pytest.mark.parametrize("name", cases.PROJECTIONS)
def test_projection_shard_map(name, line):
    """Each device projects a tree of its own, with its derivatives, and a tree that all share."""
    case = cases.PROJECTIONS[name]
    projection = case.projection

    def value_and_slopes(tree):
        """What one is given back, and the derivatives of the sum of its squares."""

        def squares(tree):
            out = projection(tree)
            return sum(jnp.sum(x**2) for x in jax.tree.leaves(out)), out

        slopes, out = jax.grad(squares, has_aux=True)(tree)
        return out, slopes

    def inside(own, shared):
        own = value_and_slopes(jax.tree.map(lambda x: x[0], own))
        return jax.tree.map(lambda x: x[None], own), projection(shared)

    lanes = [for_projection(case, i % 2) for i in range(8)]
    spread = jax.tree.map(lambda x: jax.device_put(x, P("data")), trees.stack(lanes))
    mapped = jax.shard_map(inside, in_specs=(P("data"), P()), out_specs=(P("data"), P()))
    own, shared = trees.quick_jit(mapped)(spread, lanes[0])
    alone = [value_and_slopes(x) for x in lanes[:2]]
    trees.assert_close(own, trees.stack(alone * 4), **CLOSE)
    trees.assert_close(shared, alone[0][0], **CLOSE)


class Sort(projections.AbstractVectorProjection):
    """Needs the leaves in one array."""

    def _project_vector(self, x):
        return jnp.sort(x)


@pytest.mark.parametrize("grid", ["Auto", "Explicit"], indirect=True)
@pytest.mark.parametrize("kwargs", [{}, {"per_leaf": True}, {"axis": 0}], ids=str)
def test_vectors_sharded(kwargs, grid):
    """Sharded leaves that are joined to one vector, and each or its columns for itself."""
    plain = {"a": jnp.arange(16.0)[::-1].reshape(8, 2), "b": jnp.asarray([5.5])}
    p, sort = put(plain), Sort(**kwargs)
    for out in (sort(p), trees.quick_jit(sort)(p)):
        trees.assert_equal(out, sort(plain))
        assert_sharded_alike(out, p)
