"""`gate`: do something, or leave everything as it is, bit for bit and without copies."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from jax.sharding import PartitionSpec as P

import eqopt
from eqopt._core.gate import gate

# Values that arithmetic would not keep: a signed zero, NaN, infinity, the smallest subnormal.
ODD = np.array([-0.0, np.nan, -np.inf, 1e-45, 1.5], np.float32)


def bits(x):
    return np.asarray(x).tobytes()


def double(carry):
    return jax.tree.map(lambda x: 2 * x, carry)


@pytest.mark.parametrize("true", [True, jnp.array(True)])
@pytest.mark.parametrize("false", [False, jnp.array(False)])
def test_concrete(true, false):
    """A concrete predicate decides in Python: `fn` runs or doesn't, and the carry itself comes
    back."""

    def fail(carry):
        raise AssertionError("called")

    carry = {"x": jnp.ones(2)}
    assert gate(false, fail, carry) is carry
    trees.assert_equal(gate(true, double, carry), {"x": jnp.full(2, 2.0)})


@pytest.mark.parametrize("transformed", [jax.jit, lambda fn: jax.jit(jax.vmap(fn))])
def test_untouched_carry_is_bit_equal(transformed):
    """Where a traced predicate does not hold, each bit of the carry stays; where it holds, `fn`
    was applied."""
    batched = transformed is not jax.jit
    carry = {"odd": jnp.asarray(ODD), "n": jnp.int32(3), "none": None}
    if batched:
        carry = jax.tree.map(lambda x: jnp.stack([x, x]), carry)
    skip = jnp.array([False, False]) if batched else jnp.array(False)
    gated = transformed(lambda predicate, carry: gate(predicate, double, carry))
    out = gated(skip, carry)
    trees.assert_same_type(out, carry)
    assert bits(out["odd"]) == bits(carry["odd"]) and bits(out["n"]) == bits(carry["n"])
    trees.assert_equal(gated(~skip, carry), double(carry))


def test_lanes_select_their_own():
    """Under `vmap` each lane takes its own side, and NaN of the side not taken stays out."""

    def bad(x):
        return jnp.log(x) / jnp.zeros(())  # NaN or infinite everywhere

    predicate = jnp.array([True, False, True])
    out = jax.vmap(lambda p, x: gate(p, bad, x))(predicate, jnp.array([-1.0, -2.0, 1.0]))
    assert np.isnan(out[0]) and out[1] == -2.0 and np.isnan(out[2])
    out = jax.vmap(lambda p, x: gate(p, lambda x: x + 1, x))(
        predicate, jnp.array([1.0, np.nan, 3.0])
    )
    assert out[0] == 2.0 and np.isnan(out[1]) and out[2] == 4.0


def test_batched_carry_under_one_predicate():
    """Under `vmap` with one predicate for all lanes only one side runs, for all of them."""
    gated = jax.vmap(lambda p, x: gate(p, double, x), in_axes=(None, 0))
    jaxpr = jax.make_jaxpr(gated)(True, jnp.arange(3.0))
    assert "cond" in str(jaxpr)
    assert "cond" not in str(jax.make_jaxpr(jax.vmap(gated, (0, None)))(np.ones(2, bool), ODD))


def test_derivative():
    """The derivative is that of the side taken, finite also where the other side's is not."""
    slope = jax.grad(lambda x, p: gate(p, jnp.sqrt, x), argnums=0)
    x, take = jnp.array([0.0, 4.0]), jnp.array([False, True])
    for transformed in (slope, jax.jit(slope)):
        assert [float(transformed(a, p)) for a, p in zip(x, take, strict=True)] == [1.0, 0.25]
    np.testing.assert_array_equal(jax.vmap(slope)(x, take), [1.0, 0.25])


def accumulate(emit, grads, total, state, params, *, optim, in_carry):
    """Adds gradients up and, where `emit` holds, makes a step; the sum is closed over, or in the
    carry as it must not be."""
    total = jax.tree.map(jnp.add, total, grads)
    if in_carry:

        def step_and_reset(carry):
            total, state, params = carry
            params, state = optim.step(total, state, params)
            return jax.tree.map(jnp.zeros_like, total), state, params

        return gate(emit, step_and_reset, (total, state, params))

    def step(carry):
        state, params = carry
        params, state = optim.step(total, state, params)
        return state, params

    state, params = gate(emit, step, (state, params))
    total = jax.tree.map(lambda x: jnp.where(emit, 0, x), total)
    return total, state, params


def test_no_copies():
    """Donated gradient accumulation, written as the docstring of the module says, copies no
    buffer of the size of the parameters; with the new sum in the carry it does."""
    size = 2**16
    params = {"w": jnp.ones(size), "v": jnp.ones(size)}
    optim = eqopt.AdamW(1e-3)
    arguments = (jnp.array(True), params, params, optim.init(params), params)

    def copies(in_carry):
        fn = partial(accumulate, optim=optim, in_carry=in_carry)
        text = jax.jit(fn, donate_argnums=(2, 3, 4)).lower(*arguments).compile().as_text()
        assert f"f32[{size}]" in text and "conditional" in text
        return re.findall(rf"= f32\[{size}\]\S* copy\(.*", text)

    assert copies(in_carry=False) == []
    assert copies(in_carry=True)


def test_accumulation_in_either_form_is_right():
    """Both forms of accumulation above give the same numbers, so that they can be compared."""
    params = trees.params()
    optim = eqopt.SGD(0.1, 0.9)
    total = jax.tree.map(jnp.zeros_like, params)
    plain = (total, optim.init(params), params)
    forms = [
        jax.jit(partial(accumulate, optim=optim, in_carry=in_carry)) for in_carry in (False, True)
    ]
    outs = [plain, plain]
    for t in range(3):
        grads = trees.grads(params, t)
        outs = [form(t == 1, grads, *out) for form, out in zip(forms, outs, strict=True)]
    trees.assert_close(*outs)
    moved = jax.tree.leaves(jax.tree.map(lambda x, y: jnp.any(x != y), outs[0][2], params))
    assert all(moved)


@pytest.fixture(params=["Auto", "Explicit"])
def mesh(request):
    """Eight devices along "data", in both modes of sharding."""
    kind = getattr(jax.sharding.AxisType, request.param)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        yield mesh


def varying(x):
    """The axes of the mesh over which a value varies inside `shard_map`."""
    return jax.typeof(x).manual_axis_type.varying


def sharded(fn, take, x):
    """`fn` of a traced bool, the same on all devices, and of each device's part of a vector."""
    x = jax.device_put(x, P("data"))
    return jax.jit(jax.shard_map(fn, in_specs=(P(), P("data")), out_specs=P("data")))(take, x)


@pytest.mark.usefixtures("mesh")
@pytest.mark.parametrize("take", [True, False])
def test_shard_map_makes_the_carry_vary(take):
    """Where `fn` makes a value vary over an axis, the other side gives it the same type."""

    def inside(predicate, x):
        out = gate(predicate, lambda same: same + x, jnp.zeros(1))
        assert varying(out) == {"data"}
        return out

    x = jnp.arange(8.0) + 1
    trees.assert_equal(sharded(inside, take, x), x if take else jnp.zeros(8))


@pytest.mark.usefixtures("mesh")
@pytest.mark.parametrize("take", [True, False])
def test_shard_map_in_scan(take):
    """What `fn` leaves the same on all devices stays so, also as the carry of a `scan`."""

    def inside(predicate, x):
        def body(carry, predicate):
            carry = gate(predicate, lambda c: {"x": c["x"] + c["n"], "n": c["n"] + 1}, carry)
            assert (varying(carry["x"]), varying(carry["n"])) == ({"data"}, frozenset())
            return carry, None

        start = {"x": x, "n": jnp.ones(())}
        return jax.lax.scan(body, start, jnp.stack([predicate, False, predicate]))[0]["x"]

    x = jnp.arange(8.0)
    trees.assert_equal(sharded(inside, take, x), x + 3 if take else x)


@pytest.mark.usefixtures("mesh")
def test_shard_map_each_device_decides():
    """A predicate that differs from device to device: each takes its own side."""

    def inside(_, x):
        return gate(jnp.all(x > 3), double, {"x": x})["x"]

    x = jnp.arange(8.0)
    trees.assert_equal(sharded(inside, True, x), jnp.where(x > 3, 2 * x, x))
