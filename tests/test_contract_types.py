"""Contract type check: wrong structures, shapes, kinds of numbers and swapped arguments give an
error that names the argument, with jaxtyping's hook and without it; what is right passes."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
import trees

import eqopt
from eqopt._core.boundary import keywords

# ---- wrong arguments of updates


PATH = "['layers'][0]['w']"


def _change(tree, to):
    """The tree with another leaf at `PATH`."""
    return {**tree, "layers": [{"w": to}]}


def _as_complex(tree):
    return jax.tree.map(lambda x: x + 1j, tree)


def _wrong_grads(grads):
    """Gradients that don't fit the parameters, each with the path where."""
    w = grads["layers"][0]["w"]
    return {
        "a leaf too many": ({**grads, "z": w}, "['z']"),
        "another container": ({**grads, "layers": {"w": w}}, "['layers']['w']"),
        "another shape": (_change(grads, w[:2]), PATH),
        "another rank": (_change(grads, w[0]), PATH),
        "complex": (_change(grads, w + 1j), PATH),
    }


def _misuses(name):
    """Wrong calls of one transform: what is wrong, the call, and the words of its error."""
    case = cases.TRANSFORMS[name]
    optim, params = case.optim, trees.params()
    grads, state = trees.grads(params, 0), case.optim.init(params)
    label = type(optim).__name__

    def update(grads=grads, state=state, params=params):
        return lambda: optim(grads, state, params, **case.extras(params, grads))

    def step(grads=grads, state=state, params=params):
        return lambda: optim.step(grads, state, params, **case.extras(params, grads))

    for what, (wrong, where) in _wrong_grads(grads).items():
        for call in (update, step):
            yield f"updates: {what}", call(grads=wrong), (label, "`updates`", "`params`", where)
    complex_params = _change(params, params["layers"][0]["w"] + 1j)
    yield "params: complex", update(params=complex_params), (label, "`params`", PATH)
    for what, wrong in {
        "the parameters": params,
        "the inner state": state.inner,
        "nothing": None,
        "the optimizer": optim,
    }.items():
        for call in (update, step):
            yield f"state: {what}", call(state=wrong), (label, "`state`")
    yield "params: the state", update(params=state), (label, "`params`")
    yield "updates and state swapped", update(grads=state, state=grads), (label, "`state`")
    yield "all turned round", update(state, params, grads), (label, "`state`")
    yield "eval_params: swapped", lambda: optim.eval_params(params, state), (label, "`state`")
    another = _trace_of(params)
    yield "state: another transform's", update(state=another), (label, "`state`")
    for what, wrong, path in _wrong_states(optim, params):
        yield f"state: {what}", update(state=wrong), (label, "`state`", path)
        if "params" not in keywords(optim)[0]:
            call = update(state=wrong, params=None)
            yield f"state: {what}, no params", call, (label, "`state`", path)


def _trace_of(params):
    """A state that none of the cases has."""
    return (eqopt.Trace(0.5) >> eqopt.ScaleByAdam() >> eqopt.Trace(0.5)).init(params)


def _wrong_states(optim, params):
    """States of other parameters, for transforms that have one, with the path of the difference."""
    state = jax.tree.leaves_with_path(optim.init(params))
    if not any(eqx.is_inexact_array(x) and x.ndim for _, x in state):  # nothing like the parameters
        return
    paths = [jax.tree_util.keystr(path) for path, _ in state]
    # A leaf that the state knows, by itself or in a joined vector: a group may have no state.
    place = next(x for x in (PATH, "['b']", "['float32']") if any(x in path for path in paths))
    key = "b" if place == "['b']" else "layers"
    leaf = jax.tree.leaves(params[key])[0]

    def with_leaf(to):
        return {**params, key: jax.tree.map(lambda _: to, params[key])}

    yield "of another shape", optim.init(with_leaf(leaf[:2])), place
    yield "of a part", optim.init({**params, key: None}), place
    if not optim._real_only:
        state = optim.init(with_leaf(leaf + 1j))
        if any(map(jnp.iscomplexobj, jax.tree.leaves(state))):  # not where it keeps sizes alone
            wanted = "['complex64']" if place == "['float32']" else place
            yield "of complex parameters", state, wanted


def _found_wrong(name):
    """What is not right about the errors of one transform's wrong calls."""
    for what, call, words in _misuses(name):
        try:
            call()
        except (TypeError, ValueError) as error:
            if missing := [word for word in words if word not in str(error)]:
                yield f"{name}: {what}: the error does not name {missing}: {error}"
        else:
            yield f"{name}: {what}: no error"


def _hooked(module):
    """Whether jaxtyping's hook checks a module."""
    return "jaxtyping" in type(module.__spec__.loader).__module__


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_wrong_arguments(name):
    """Updates, states and parameters that don't fit, or are given in each other's place, raise
    before anything is computed and are named."""
    assert not list(_found_wrong(name))


@pytest.mark.slow
def test_wrong_arguments_without_the_hook():
    """The same where eqopt is imported without run-time type checks, in another process."""
    program = (
        "import test_contract_construction as c, test_contract_types as t;"
        "assert not t._hooked(t.eqopt);"
        "wrong = [w for name in t.cases.REPORTED for w in t._found_wrong(name)];"
        "wrong += [w for cls, field in c.FIELDS.values() for w in c._accepted(cls, field)];"
        "print(*wrong, sep='\\n'); raise SystemExit(bool(wrong))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_module_is_checked():
    """The suite runs with jaxtyping's hook on every module of eqopt."""
    root = Path(eqopt.__file__).parent
    files = [file.relative_to(root.parent).with_suffix("") for file in root.rglob("*.py")]
    names = [".".join(file.parts).removesuffix(".__init__") for file in files]
    assert "eqopt._core.transform" in names
    assert not [name for name in names if not _hooked(importlib.import_module(name))]


# ---- what is needed, and keywords


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_parameters_that_are_needed(name):
    """An update without `params` raises and names who needs them; without need it works."""
    case = cases.TRANSFORMS[name]
    params = trees.params()
    grads, state = trees.grads(params, 0), case.optim.init(params)
    extras = case.extras(params, grads)
    needs, _ = keywords(case.optim)
    if "params" in needs:
        with pytest.raises(TypeError, match=f"`{needs['params']}` needs `params`"):
            case.optim(grads, state, **extras)
    else:
        with_params, _ = case.optim(grads, state, params, **extras)
        trees.assert_equal(case.optim(grads, state, **extras)[0], with_params)
    for keyword in sorted(set(needs) - {"params"}):
        given = {key: value for key, value in extras.items() if key != keyword}
        with pytest.raises(TypeError, match=f"`{needs[keyword]}` needs `{keyword}`"):
            case.optim(grads, state, params, **given)


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_keywords(name):
    """`value`, `grad` and `value_fn` are always accepted; a keyword that nobody knows raises and
    is named, unless a member takes all."""
    case = cases.TRANSFORMS[name]
    params = trees.params()
    grads, state = trees.grads(params, 0), case.optim.init(params)
    extras = case.extras(params, grads)
    known = {"value": 1.5, "grad": grads, "value_fn": eqopt.global_norm, **extras}
    for call in (case.optim, case.optim.update, case.optim.step):
        found, _ = call(grads, state, params, **known)
        if not extras:
            trees.assert_equal(found, call(grads, state, params)[0])
        if keywords(case.optim)[1] is None:
            call(grads, state, params, **extras, learning_rat=0.1)
            continue
        with pytest.raises(TypeError, match="`learning_rat`") as caught:
            call(grads, state, params, **extras, learning_rat=0.1)
        assert type(case.optim).__name__ in str(caught.value)


# ---- what is right passes


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_tracers_shapes_and_none_pass(name):
    """Abstract values, tracers and trees with `None` are as good as arrays."""
    case = cases.TRANSFORMS[name]
    params = {"w": trees.params(), "frozen": None}
    grads = {"w": trees.grads(params["w"], 0), "frozen": None}
    state = case.optim.init(params)

    def update(grads, state, params):
        return case.optim(grads, state, params, **case.extras(params, grads))

    updates, after = update(grads, state, params)
    traced = jax.make_jaxpr(update)(grads, state, params)
    assert len(traced.out_avals) == len(jax.tree.leaves((updates, after)))
    structs = jax.eval_shape(update, *jax.eval_shape(lambda *args: args, grads, state, params))
    trees.assert_same_type(structs, (updates, after))


def _batched_one_by_one(optim):
    """The optimizer with two values in place of one of its numbers, for each."""
    numbers, treedef = jax.tree.flatten(eqopt.dynamic(optim))
    for i, number in enumerate(numbers):
        two = jnp.stack([number, number])
        yield jax.tree.unflatten(treedef, [*numbers[:i], two, *numbers[i + 1 :]])


@pytest.mark.parametrize("name", cases.TRANSFORMS)
def test_batched_numbers(name):
    """Batched hyperparameters pass under `eqx.filter_vmap`; outside each of them raises an error
    that names class and argument."""
    case = cases.TRANSFORMS[name]
    params = trees.params()
    grads = trees.grads(params, 0)

    def update(optim):
        return optim(grads, optim.init(params), params, **case.extras(params, grads))[0]

    for optim in _batched_one_by_one(case.optim):
        axes = jax.tree.map(lambda x: 0 if x.ndim else None, optim)
        found = eqx.filter_eval_shape(eqx.filter_vmap(update, in_axes=(axes,)), optim)
        assert all(x.shape[0] == 2 for x in jax.tree.leaves(found))
        with pytest.raises((TypeError, ValueError)) as caught:
            update(optim)
        assert re.search(r"`\w+\(\w+=\.\.\.\)`.*`eqx\.filter_vmap`", str(caught.value)), optim
