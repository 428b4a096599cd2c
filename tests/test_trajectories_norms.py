"""Trajectories, as in `trajectories.py`, of what rescales leaf by leaf, clips, accumulates,
adds noise or watches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trajectories import SIZE, check_trajectory, constant, descent, gradient, problem, tree
from trees import flat

import eqopt
from eqopt import schedules

BLOCKS = [slice(0, 2), slice(2, SIZE)]  # the leaves of a flat vector


def by_block(rule):
    """A reference for one leaf, `rule(t, g, p, memory)`, applied to each with a memory of its
    own."""

    def direction(t, g, p, memory):
        blocks = [rule(t, g[b], p[b], memory.setdefault(b.start, {})) for b in BLOCKS]
        return np.concatenate(blocks)

    return direction


def length(x):
    return np.sqrt(np.sum(np.abs(x) ** 2))


def trust(floor, coefficient, eps):
    """LARS, You et al. 2017, equation 6, with `coefficient` as eta, and both norms at least
    `floor` as by phi in LAMB, You et al. 2020; 1 at zero."""

    def rule(t, g, p, memory):
        w, v = max(length(p), floor), max(length(g), floor)
        return g * (coefficient * w / (v + eps) if w > 0 and v > 0 else 1)

    return by_block(rule)


def times_norm(least):
    return by_block(lambda t, g, p, memory: g * max(length(p), least))


def times_rms(least):
    """Shazeer and Stern 2018, section 8: alpha = max(eps_2, RMS(X))."""
    return by_block(lambda t, g, p, memory: g * max(length(p) / np.sqrt(len(p)), least))


def clipped_by_rms(threshold):
    """Shazeer and Stern 2018, section 6: U / max(1, RMS(U) / d)."""
    return by_block(lambda t, g, p, memory: g / max(1, length(g) / np.sqrt(len(g)) / threshold))


def distance_over_gradients(r_eps, eps, scale):
    """Ivgi et al. 2023, LDoG: for each layer eta_t = max_i |x_i - x_0| / sqrt(sum_i |g_i|^2 + eps),
    the distance at least r_eps (1 + |x_0|)."""

    def rule(t, g, p, memory):
        start = memory.setdefault("start", p.copy())
        least = memory.setdefault("r", r_eps * (1 + length(start)))
        r = memory["r"] = max(least, length(p - start))
        total = memory["G"] = memory.get("G", 0) + length(g) ** 2
        return scale * g * r / np.sqrt(total + eps)

    return by_block(rule)


def mean(decay, debias):
    """Kingma and Ba 2015, algorithm 1: the first moment, with or without its correction."""

    def direction(t, g, p, memory):
        m = memory["m"] = decay * memory.get("m", 0) + (1 - decay) * g
        return m / (1 - decay**t) if debias else m

    return direction


def every(lengths):
    """The sum of so many updates, in turn, with the last of them; 0 with the others."""
    ends = np.cumsum(lengths)

    def direction(t, g, p, memory):
        total = memory.get("sum", 0) + g
        if t in ends:
            memory["sum"] = 0
            return total
        memory["sum"] = total
        return np.zeros_like(g)

    return direction


DOG = (0.1, 1e-2, -0.5)
TRAJECTORIES = {
    "ScaleByTrustRatio": (eqopt.ScaleByTrustRatio(), trust(0, 1, 0)),
    "ScaleByTrustRatio[all]": (eqopt.ScaleByTrustRatio(1.5, 0.01, 0.1), trust(1.5, 0.01, 0.1)),
    "ScaleByParamBlockNorm": (eqopt.ScaleByParamBlockNorm(1.2), times_norm(1.2)),
    "ScaleByParamBlockRMS": (eqopt.ScaleByParamBlockRMS(0.8), times_rms(0.8)),
    "ClipByBlockRMS": (eqopt.ClipByBlockRMS(0.9), clipped_by_rms(0.9)),
    "ScaleByDistanceOverGradients": (
        eqopt.ScaleByDistanceOverGradients(global_scale=-1.0),
        distance_over_gradients(1e-6, 1e-8, -1.0),
    ),
    "ScaleByDistanceOverGradients[all]": (
        eqopt.ScaleByDistanceOverGradients(*DOG),
        distance_over_gradients(*DOG),
    ),
    "EMA": (eqopt.EMA(0.8), mean(0.8, True)),
    "EMA[biased]": (eqopt.EMA(0.8, debias=False), mean(0.8, False)),
    "ApplyEvery": (eqopt.ApplyEvery(3), every([3, 3, 3])),
    "ApplyEvery[1]": (eqopt.ApplyEvery(), every([1] * 10)),
    "ApplyEvery[array]": (eqopt.ApplyEvery(jnp.asarray(4)), every([4, 4])),
    "ApplyEvery[schedule]": (
        # k at counts 0, 1, ...: 4, 3, 2, 1, 1: full at counts 2, 3, 4, ...
        eqopt.ApplyEvery(schedules.Linear(4.0, 1.0, steps=3)),
        every([3] + [1] * 7),
    ),
    "ZeroNans": (eqopt.ZeroNans(), gradient),
    "Monitor": (eqopt.Monitor({"norm": eqopt.global_norm}, 0.9), gradient),
    "Snapshot": (eqopt.Snapshot(eqopt.global_norm), gradient),
}


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("optim, reference", TRAJECTORIES.values(), ids=TRAJECTORIES.keys())
def test_trajectory(optim, reference, is_complex, x64):
    """Each agrees with its paper, followed by a small step."""
    optim = optim >> eqopt.Scale(0.01)
    check_trajectory(optim, descent(constant(-0.01), reference), is_complex)


@pytest.mark.parametrize("variant", ["sps", "sps+"])
def test_polyak(variant, x64):
    """Loizou et al. 2021, SPS_max: min((f - f*) / (c |g|^2), gamma_b) with c = 1; SPS+ takes the
    positive part of the gap. Losses are above and below f*, and some steps are capped."""
    optim = eqopt.ScaleByPolyak(0.5, 0.2, 0.1, variant)
    params, grads = problem(False)
    losses = [1.0, 0.4, 3.0, 0.1, 2.0, 0.6, 0.5, 9.0, 0.3, 1.5]
    state = optim.init(tree(params))
    kinds = set()
    for loss, g in zip(losses, grads, strict=True):
        gap = loss - 0.5
        if variant == "sps+":
            gap = max(gap, 0)
        quotient = gap / (length(g) ** 2 + 0.1)
        kinds.add((quotient > 0.2, gap < 0))
        updates, state = optim(tree(g), state, value=loss)
        np.testing.assert_allclose(flat(updates), min(quotient, 0.2) * g, rtol=1e-12)
    assert len(kinds) == (3 if variant == "sps" else 2)


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
def test_noise(is_complex, x64):
    """Neelakantan et al. 2015, section 3: variance eta / (1 + t)^gamma with t from 0, the standard
    normal numbers being those of `jax.random`."""
    optim = eqopt.AddNoise(0.3, 0.55, 7)
    params, grads = problem(is_complex)
    state = optim.init(tree(params))
    dtype = complex if is_complex else float
    for t, g in enumerate(grads):
        key = jax.random.fold_in(jax.random.key(7), t)
        drawn = [
            jax.random.normal(jax.random.fold_in(key, i), shape, dtype)
            for i, shape in enumerate([(2,), (2, 2)])
        ]
        noise = np.concatenate([np.ravel(x) for x in drawn])
        updates, state = optim(tree(g), state)
        np.testing.assert_allclose(
            flat(updates), g + np.sqrt(0.3 / (1 + t) ** 0.55) * noise, rtol=1e-12
        )


def test_running_means_of_measures(x64):
    """A measure's running mean is that of Kingma and Ba 2015, algorithm 1, of its values; without
    a decay it is the last value."""
    measures = {"norm": eqopt.global_norm, "leaf": leaf_norms, "above": is_long}
    params, grads = problem(False)
    averaged, last = eqopt.Monitor(measures, 0.9), eqopt.Monitor(measures)
    snapshot = eqopt.Snapshot(projected)
    states = [optim.init(tree(params)) for optim in (averaged, last, snapshot)]
    memory = {name: {} for name in ("norm", "b", "w", "above")}
    for t, g in enumerate(grads, start=1):
        states = [
            optim(tree(g), state, tree(params))[1]
            for optim, state in zip((averaged, last, snapshot), states, strict=True)
        ]
        values = {"norm": length(g), "b": length(g[:2]), "w": length(g[2:])}
        values["above"] = float(length(g) > 2)
        means = {k: mean(0.9, True)(t, x, None, memory[k]) for k, x in values.items()}
        for state, wanted in zip(states, (means, values), strict=False):
            found = eqopt.find(state, eqopt.MonitorState).measurements
            np.testing.assert_allclose(found["norm"], wanted["norm"], rtol=1e-12)
            np.testing.assert_allclose(found["leaf"]["b"], wanted["b"], rtol=1e-12)
            np.testing.assert_allclose(found["leaf"]["w"], wanted["w"], rtol=1e-12)
            np.testing.assert_allclose(found["above"], wanted["above"], rtol=1e-6)
        found = eqopt.find(states[2], eqopt.SnapshotState).measurement
        np.testing.assert_allclose(found, np.sum(g * params), rtol=1e-12)
    assert eqopt.find(states[1], eqopt.MonitorState).measurements["above"].dtype == bool


def leaf_norms(updates):
    return jax.tree.map(jnp.linalg.norm, updates)


def is_long(updates):
    return eqopt.global_norm(updates) > 2


def projected(updates, params):
    products = jax.tree.map(lambda u, p: jnp.sum(u * p), updates, params)
    return sum(jax.tree.leaves(products))
