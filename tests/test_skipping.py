"""Wrappers that leave out updates: what they record, and that nothing inside moves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import eqopt
from eqopt import schedules


def run(optim, grads, params=1.0, **extras):
    """The parameters and the states after each of the gradients."""
    start = jnp.asarray(params)

    def body(carry, inputs):
        g, extras = inputs
        carry = optim.step(g, carry[1], carry[0], **extras)
        return carry, carry

    extras = {name: jnp.asarray(values) for name, values in extras.items()}
    inputs = (jnp.asarray(grads, start.dtype), extras)
    return jax.jit(lambda x: jax.lax.scan(body, (start, optim.init(start)), x)[1])(inputs)


def negative(updates, params, **extras):
    return updates < 0


def value_is_high(updates, params, value, **extras):
    return value > params


def two_arguments(updates, params):
    return False


def with_keywords(updates, params, *, epoch, value=None):
    return epoch == 2


class TestSkipIf:
    def test_by_updates(self):
        """Negative gradients are left out and counted; momentum and schedule stand still."""
        rate = schedules.Linear(1.0, 3.0, 2)
        optim = eqopt.SkipIf(eqopt.SGD(rate, momentum=0.5), negative)
        params, state = run(optim, [1, -5, -6, 2], 0.0)
        # Rates 1 and 2; momentum 1 and 2.5.
        np.testing.assert_allclose(params, [-1, -1, -1, -6])
        np.testing.assert_array_equal(state.inner.skip_count, [0, 1, 2, 2])
        np.testing.assert_array_equal(state.inner.last_skip, [-1, 1, 2, 2])
        np.testing.assert_array_equal(state.inner.inner_state.count, [1, 1, 1, 2])

    def test_by_value_and_params(self):
        """The rule sees the keywords of the update and the parameters."""
        optim = eqopt.SkipIf(eqopt.SGD(0.5), value_is_high)
        params, _ = run(optim, [1, 1, 1], 1.0, value=[0.5, 0.7, 0.2])
        np.testing.assert_allclose(params, [0.5, 0.5, 0.0])

    @pytest.mark.parametrize("result", [jnp.ones(2, bool), 1.0, "yes"])
    def test_wrong_results(self, result):
        optim = eqopt.SkipIf(eqopt.SGD(0.5), lambda updates, params: result)
        p = jnp.zeros(2)
        with pytest.raises(TypeError, match=r"SkipIf\(predicate=...\)` must return a scalar bool"):
            optim(p, optim.init(p))

    def test_keywords_by_the_signature(self):
        """A rule gets the keywords that it names, and needs those without a default."""
        p = jnp.ones(2)
        for rule, given in (
            (two_arguments, {"value": 1.0}),
            (with_keywords, {"value": 1.0, "epoch": 2}),
            (with_keywords, {"epoch": 2}),
            (lambda *args, epoch: epoch == 2, {"value": 1.0, "epoch": 2}),
            (lambda updates, *rest, epoch: epoch == 2, {"epoch": 2}),
        ):
            optim = eqopt.SkipIf(eqopt.SGD(0.5), rule)
            _, state = optim.step(p, optim.init(p), p, **given)
            assert state.inner.skip_count == ("epoch" in given)
        with pytest.raises(TypeError, match="`SkipIf` needs `epoch`: pass"):
            optim.step(p, optim.init(p), p, value=1.0)
        with pytest.raises(TypeError, match="unexpected keyword `step`"):
            optim.step(p, optim.init(p), p, epoch=1, step=2)

    @pytest.mark.parametrize("rule", [lambda updates: True, lambda *, params: True, lambda: True])
    def test_of_other_arguments(self, rule):
        with pytest.raises(
            TypeError, match=r"`SkipIf\(predicate=...\)` must be a function of `updates` and `par"
        ):
            eqopt.SkipIf(eqopt.SGD(0.5), rule)

    def test_no_function(self):
        with pytest.raises(TypeError, match="predicate"):
            eqopt.SkipIf(eqopt.SGD(0.5), 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_skip_not_finite(bad):
    """However many in a row, parameters and state stay bit for bit."""
    optim = eqopt.SkipNotFinite(eqopt.AdamW(0.1))
    params, state = run(optim, [1, bad, bad, bad, 1])
    plain, plain_state = run(eqopt.AdamW(0.1), [1, 1])
    np.testing.assert_array_equal(params, plain[jnp.array([0, 0, 0, 0, 1])])
    last = jax.tree.map(lambda x: x[-1], (state.inner.inner_state, plain_state))
    trees.assert_equal(*last)
    assert state.inner.skip_count[-1] == 3


def test_skip_large_updates():
    """A norm of the bound is let through, one above is not, nor is NaN."""
    optim = eqopt.SkipLargeUpdates(eqopt.SGD(1.0), 5.0)
    grads = [[3, 4], [3, 4.1], [np.nan, 0], [np.inf, 0], [-1, 0]]
    params, state = run(optim, grads, [0.0, 0.0])
    np.testing.assert_allclose(params, [[-3, -4]] * 4 + [[-2, -4]])
    np.testing.assert_array_equal(state.inner.skip_count, [0, 1, 2, 3, 3])


def spikes(values, num_stds, decay, warmup):
    """Which values are left out, in plain Python."""
    mean = variance = 0.0
    seen, found = 0, []
    for value in values:
        if not np.isfinite(value):
            found.append(True)
            continue
        bound = np.inf
        if seen > 0 and seen >= warmup:
            bound = mean + num_stds * max(np.sqrt(variance), 1e-3 * abs(mean))
        found.append(value > bound)
        value, seen = min(value, bound), seen + 1
        weight = max(1 - decay, 1 / seen)
        off = value - mean
        mean = mean + weight * off
        variance = (1 - weight) * (variance + weight * off**2)
    return found


class TestSkipLossSpikes:
    @pytest.mark.parametrize("warmup", [0, 3])
    def test_against_its_rules(self, warmup):
        rng = np.random.default_rng(0)
        values = 2 + 0.1 * rng.normal(size=60)
        values[[1, 20, 21, 40]] = [9, 50, np.nan, 1]
        values[50:] += 3  # a rise that lasts
        optim = eqopt.SkipLossSpikes(eqopt.SGD(1.0), 4.0, 0.8, warmup)
        params, state = run(optim, np.ones(60), 0.0, value=values)
        wanted = np.array(spikes(values, 4.0, 0.8, warmup))
        np.testing.assert_array_equal(np.diff(np.asarray(params), prepend=0) == 0, wanted)
        assert wanted[20] and wanted[21] and wanted[50] and not wanted[59]
        np.testing.assert_array_equal(state.inner.skip_count, np.cumsum(wanted))

    def test_mean_and_variance_begin_as_the_plain_ones(self):
        values = [3.0, 1.0, 8.0, 2.0]
        _, state = run(eqopt.SkipLossSpikes(eqopt.SGD(1.0)), np.ones(4), value=values)
        np.testing.assert_allclose(state.inner.mean[-1], np.mean(values), rtol=1e-6)
        np.testing.assert_allclose(state.inner.variance[-1], np.var(values), rtol=1e-6)

    def test_a_loss_that_stood_still_may_rise_for_good(self):
        """No spread is no reason to skip for ever."""
        values = [2.0] * 5 + [2.5] * 40
        optim = eqopt.SkipLossSpikes(eqopt.SGD(1.0), warmup_steps=5, decay=0.9)
        _, state = run(optim, np.ones(45), value=values)
        assert 0 < state.inner.skip_count[-1] < 35

    def test_needs_the_loss(self):
        optim = eqopt.SkipLossSpikes(eqopt.SGD(1.0))
        p = jnp.zeros(2)
        with pytest.raises(TypeError, match="`SkipLossSpikes` needs `value`"):
            optim(p, optim.init(p))


def test_lanes_skip_alone():
    """Under vmap one bad lane is skipped; the others take their step, and NaN stays where it is."""
    optim = eqopt.SkipNotFinite(eqopt.Adam(0.1))
    p = jnp.ones(3)
    state = jax.vmap(optim.init)(p)
    new, new_state = jax.jit(jax.vmap(optim.step))(jnp.array([1.0, jnp.nan, 1.0]), state, p)
    np.testing.assert_array_equal(new == 1, [False, True, False])
    trees.assert_equal(
        *(jax.tree.map(lambda x: x[1], s.inner.inner_state) for s in (state, new_state))
    )
    np.testing.assert_array_equal(new_state.inner.skip_count, [0, 1, 0])


def test_extras_reach_the_inner_transformation():
    """A keyword that only the inner transformation knows goes through; an unknown one raises."""
    optim = eqopt.SkipNotFinite(eqopt.ReduceOnPlateau(patience=1))
    p = jnp.ones(2)
    state = optim.init(p)
    with pytest.raises(TypeError, match="`ReduceOnPlateau` needs `value`"):
        optim(p, state)
    updates, _ = optim(p, state, value=1.0)
    np.testing.assert_array_equal(updates, p)
    with pytest.raises(TypeError, match="`SkipNotFinite` got an unexpected keyword `loss`"):
        optim(p, state, value=1.0, loss=1.0)


@pytest.mark.parametrize("losses", [[1e20, 1.0, 1.1], [1.0, 1e20, 1.1]])
def test_a_loss_whose_square_overflows_is_left_out(losses):
    """Mean and variance stay finite, and later spikes are seen."""
    optim, params = eqopt.SkipLossSpikes(eqopt.SGD(1.0), warmup_steps=2), jnp.ones(2)
    state = optim.init(params)
    for value in (*losses, 0.9, 1e6):
        _, state = optim.step(params, state, params, value=value)
    assert state.inner.skip_count == 2
    assert jnp.isfinite(state.inner.variance)
