"""`Partition`: groups, rules, labels, and what is inside them."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import trees

import eqopt
from eqopt import schedules, select

PARAMS = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([10.0]), "c": jnp.array([1.0])}
GRADS = {"a": jnp.array([3.0, 4.0]), "b": jnp.array([12.0]), "c": jnp.array([2.0])}
SGD, CLIPPED = eqopt.SGD(0.1), eqopt.ClipByGlobalNorm(1.0) >> eqopt.SGD(1.0)


def check(optim):
    """Group `x` is `a` and `c`, of norm sqrt(29), clipped; `b` takes plain steps."""
    state = optim.init(PARAMS)
    updates, _ = optim(GRADS, state, PARAMS)
    new, _ = optim.step(GRADS, state, PARAMS)
    wanted = {
        "a": -np.array([3.0, 4.0]) / np.sqrt(29.0),
        "b": np.array([-1.2]),
        "c": np.array([-2.0]) / np.sqrt(29.0),
    }
    for name, update in wanted.items():
        np.testing.assert_allclose(updates[name], update, rtol=1e-6)
        np.testing.assert_allclose(new[name], PARAMS[name] + update, rtol=1e-6)


def test_each_way_to_say_it():
    """Named groups, a sequence, labels, a prefix of them, and a default."""
    where = select.Path("a|c")
    check(eqopt.Partition({"x": (where, CLIPPED), "y": (select.Path("b"), SGD)}))
    check(eqopt.Partition({"x": (where, CLIPPED)}, default=SGD))
    check(eqopt.Partition([(where, CLIPPED)], default=SGD))
    check(eqopt.Partition([({"a": True, "b": False, "c": True}, CLIPPED)], default=SGD))
    labels = {"a": "x", "b": "y", "c": "x"}
    check(eqopt.Partition({"x": CLIPPED, "y": SGD}, labels))
    check(eqopt.Partition({"x": CLIPPED}, {"a": "x", "c": "x"}, default=SGD))
    check(eqopt.Partition({"x": CLIPPED}, {"a": "x", "b": "default", "c": "x"}, default=SGD))
    check(eqopt.Partition({"x": CLIPPED, "y": optax.sgd(0.1)}, labels))
    nested = eqopt.Partition({"x": CLIPPED}, {"model": "x"}, default=SGD)
    params = {"model": PARAMS["a"], "other": {"b": PARAMS["b"]}}
    assert eqopt.Partition({"x": SGD}, "x").init(params).inner.inner_states.keys() == {"x"}
    assert nested.init(params).inner.inner_states.keys() == {"x", "default"}


def test_the_first_rule_wins():
    """`a` is in the first of two groups that select it."""
    optim = eqopt.Partition(
        [(select.Path("a"), SGD), (select.Everything(), eqopt.SGD(1.0))], default=CLIPPED
    )
    updates, _ = optim(GRADS, optim.init(PARAMS), PARAMS)
    np.testing.assert_allclose(updates["a"], [-0.3, -0.4], rtol=1e-6)
    np.testing.assert_allclose(updates["b"], [-12.0])


def test_one_count():
    """Schedules in all groups go by the one count."""
    rate = schedules.Linear(1.0, 0.0, steps=2)
    optim = eqopt.Partition({"x": (select.Path("a"), eqopt.SGD(rate))}, default=eqopt.SGD(rate))
    state = optim.init(PARAMS)
    for factor in (1.0, 0.5, 0.0):
        numbers = eqopt.hyperparameters(optim, state)
        assert float(numbers["x.learning_rate"]) == factor
        assert float(numbers["default.learning_rate"]) == factor
        updates, state = optim(GRADS, state, PARAMS)
        trees.assert_close(updates, jax.tree.map(lambda g, c=factor: -c * g, GRADS))


def test_looking_inside():
    """Groups by name and by number; names in `hyperparameters`; a print, a hash and a pickle."""
    adam = eqopt.Adam(0.1)
    optim = eqopt.Partition({"x": (select.Path("a"), SGD)}, default=adam)
    assert optim["x"] is SGD and optim[0] is SGD and optim["default"] is adam is optim[1]
    with pytest.raises(KeyError, match=r"no group named 'z'; its names are: 'x', 'default'"):
        optim["z"]
    chain = eqopt.Clip(1.0) >> optim
    numbers = eqopt.hyperparameters(chain, chain.init(PARAMS))
    assert numbers["partition.x.learning_rate"] == 0.1
    assert numbers["partition.default.b1"] == 0.9
    assert repr(optim) == (
        "Partition(\n  {'x': (Path(pattern='a'), SGD(learning_rate=0.1))},\n"
        "  default=Adam(learning_rate=0.1)\n)"
    )
    labelled = eqopt.Partition({"x": SGD, "y": adam}, {"a": "x", "b": "y", "c": "y"})
    assert "labels=" in repr(labelled) and "default" not in repr(labelled)
    for kept in (optim, labelled):
        again = pickle.loads(pickle.dumps(kept))
        assert again == kept and hash(again) == hash(kept) and repr(again) == repr(kept)
    faster = eqx.tree_at(lambda o: o["x"].learning_rate, optim, 0.5)
    assert faster["x"].learning_rate == 0.5


@pytest.mark.parametrize(
    ("build", "kind", "words"),
    [
        (lambda: eqopt.Partition({"x": SGD}), TypeError, r"groups=\{'x': ...\}.*a pair"),
        (lambda: eqopt.Partition({"x": optax.sgd(0.1)}), TypeError, "a pair"),
        (lambda: eqopt.Partition(SGD), TypeError, "a dict from names"),
        (lambda: eqopt.Partition({1: (select.Everything(), SGD)}), TypeError, "strings.*1"),
        (lambda: eqopt.Partition([(select.Everything(), 3)]), TypeError, "a transformation"),
        (lambda: eqopt.Partition([(jnp.sin, SGD)]), TypeError, "a selector"),
        (lambda: eqopt.Partition({}, default=3), TypeError, r"default=...\)` must be a transf"),
        (lambda: eqopt.Partition({"x": SGD}, {"a": "z"}), ValueError, r"'x'; got 'z' at `\['a'\]`"),
        (lambda: eqopt.Partition({"x": SGD}, {"a": 1}), TypeError, "names; got 1"),
        (lambda: eqopt.Partition({"x": SGD}, lambda p: p), TypeError, "PyTree of names"),
        (
            lambda: eqopt.Partition({"default": (select.Everything(), SGD)}, default=SGD),
            ValueError,
            "beside `default=...`",
        ),
    ],
)
def test_errors_at_construction(build, kind, words):
    """They name the class, the argument and what was given."""
    with pytest.raises(kind, match=rf"`Partition\(.*{words}"):
        build()


def test_errors_at_init():
    """A leaf without a group is named, and so is a rule that matches nothing."""
    for optim in (
        eqopt.Partition([(select.Path("a|c"), SGD)]),
        eqopt.Partition({"x": SGD}, {"a": "x", "c": "x"}),
    ):
        with pytest.raises(ValueError, match=r"`Partition\(groups=...\)`.*`\['b'\]`.*default"):
            optim.init(PARAMS)
    with pytest.raises(ValueError, match=r"`Partition\(rules=...\)` must match a leaf.*'z'"):
        eqopt.Partition([(select.Path("z"), SGD)], default=SGD).init(PARAMS)


def test_labels_where_no_model_is():
    """A label at a path that exists nowhere is named, also inside other wrappers; one of what is
    not trained is fine."""
    labels = {"a": "x", "model": {"typo": "x"}}
    partition = eqopt.Partition({"x": SGD}, labels, default=CLIPPED)
    for optim in (partition, eqopt.Clip(1.0) >> eqopt.Freeze(partition, select.Path("a"))):
        with pytest.raises(ValueError, match=r"`Partition\(labels=...\)`.*\['model'\]\['typo'\]"):
            optim.init(PARAMS)
    eqopt.Partition({"x": SGD}, {"a": "x", "n": "x"}, default=SGD).init({**PARAMS, "n": 3})


def test_value_fn_sees_the_others_as_they_were():
    """In a step, no group sees what another has made of its parameters."""

    class Watches(eqopt.AbstractTransform):
        _needs = frozenset({"value_fn"})

        def _init(self, params):
            return None

        def _update(self, updates, state, params, count, value_fn, **extras):
            return jax.tree.map(lambda _: value_fn(params)[None], updates), None

    optim = eqopt.Partition([(select.Path("b"), SGD), (select.Path("c"), Watches())], default=SGD)
    state = optim.init(PARAMS)
    loss = lambda p: jnp.sum(p["b"]) + jnp.sum(p["c"])  # noqa: E731 - one line
    new, _ = optim.step(GRADS, state, PARAMS, value_fn=loss)
    np.testing.assert_allclose(new["c"], [1.0 + 11.0])
