"""Trajectories of the first members and of their optimizers; see `trajectories.py`."""

import numpy as np
import pytest
from trajectories import (
    IS_MATRIX,
    check_trajectory,
    constant,
    cosine,
    descent,
    gradient,
    linear,
    problem,
)

import eqopt
from eqopt import schedules, select


def test_the_gradients_are_hard_enough():
    """In every element the sign changes."""
    for is_complex in (False, True):
        _, grads = problem(is_complex)
        assert np.all(np.min(grads.real, axis=0) < 0)
        assert np.all(np.max(grads.real, axis=0) > 0)


def sign(t, g, p, memory):
    return np.where(g == 0, 0, g / np.where(g == 0, 1, np.abs(g)))


def momentum(mu):
    """Sutskever et al. 2013 with a learning rate of 1, and the sign turned."""

    def direction(t, g, p, memory):
        v = mu * memory.get("v", 0) - g  # (1)
        memory["v"] = v
        return -v  # (2)

    return direction


def nesterov(mu):
    """Sutskever et al. 2013 with a learning rate of 1, and the sign turned.

    The parameters are those at which the gradient is taken, theta + mu v.
    """

    def direction(t, g, p, memory):
        old = memory.get("v", 0)
        v = mu * old - g  # (3), g at theta + mu v
        memory["v"] = v
        # (4) theta becomes theta + v, so theta + mu v_old becomes theta + v + mu v.
        return -(v + mu * v - mu * old)

    return direction


def adam(b1, b2, eps, eps_root=0.0):
    """Kingma and Ba 2015, algorithm 1. Complex: the second moment is that of |g|."""

    def direction(t, g, p, memory):
        m = b1 * memory.get("m", 0) + (1 - b1) * g  # biased first moment
        v = b2 * memory.get("v", 0) + (1 - b2) * np.abs(g) ** 2  # biased second raw moment
        memory.update(m=m, v=v)
        m_hat = m / (1 - b1**t)  # bias-corrected first moment
        v_hat = v / (1 - b2**t)  # bias-corrected second raw moment
        return m_hat / (np.sqrt(v_hat + eps_root) + eps)  # of the update, without alpha

    return direction


def nadam(b1, b2, eps, eps_root=0.0):
    """Dozat 2016, algorithm 2, for constant mu (b1) and nu (b2); n_hat as in Adam."""

    def direction(t, g, p, memory):
        m = b1 * memory.get("m", 0) + (1 - b1) * g
        n = b2 * memory.get("n", 0) + (1 - b2) * np.abs(g) ** 2
        memory.update(m=m, n=n)
        m_hat = b1 * m / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
        n_hat = n / (1 - b2**t)
        return m_hat / (np.sqrt(n_hat + eps_root) + eps)

    return direction


def decayed(direction, decay, decays=True):
    """Loshchilov and Hutter 2019, algorithm 2, line 12: the direction plus lambda theta, in
    PyTorch's convention, where both are multiplied by the learning rate."""
    return lambda t, g, p, memory: direction(t, g, p, memory) + decay * p * decays


def independently_decayed(rate, direction, decay, decays=True):
    """Loshchilov and Hutter 2019, algorithm 2, line 12, to the letter: only the direction is
    multiplied by alpha, and lambda theta by the schedule's factor."""

    def update(t, g, p, memory):
        return -(rate(t) * direction(t, g, p, memory) + decay(t) * p * decays)

    return update


def clipped(bound):
    """Each element to modulus `bound`."""
    return lambda t, g, p, memory: g * np.minimum(1, bound / np.maximum(np.abs(g), bound))


def clipped_by_norm(threshold):
    """Pascanu et al. 2013, algorithm 1."""

    def direction(t, g, p, memory):
        norm = np.sqrt(np.sum(np.abs(g) ** 2))
        if norm >= threshold:
            g = threshold / norm * g
        return g

    return direction


def normalised(direction, scale=1.0, eps=0.0):
    """To length `scale`; 0 stays 0."""

    def unit(t, g, p, memory):
        u = direction(t, g, p, memory)
        norm = np.sqrt(np.sum(np.abs(u) ** 2))
        return scale * u / (norm + eps) if norm > 0 else u

    return unit


RATE = constant(0.1)
ADAM = (0.8, 0.95, 1e-3, 1e-2)  # b1, b2, eps, eps_root
LINEAR = schedules.Linear(0.1, 0.02, steps=6)
COSINE = schedules.CosineDecay(0.05, steps=8)

# name: the transform, and the reference of what it returns.
TRAJECTORIES = {
    "Trace": (eqopt.Trace(0.9), momentum(0.9)),
    "Trace[nesterov]": (eqopt.Trace(0.9, nesterov=True), nesterov(0.9)),
    "ScaleByAdam": (eqopt.ScaleByAdam(), adam(0.9, 0.999, 1e-8)),
    "ScaleByAdam[eps_root]": (eqopt.ScaleByAdam(*ADAM), adam(*ADAM)),
    "ScaleByAdam[nesterov]": (eqopt.ScaleByAdam(nesterov=True), nadam(0.9, 0.999, 1e-8)),
    "AddDecayedWeights": (eqopt.AddDecayedWeights(0.1), decayed(gradient, 0.1)),
    "AddDecayedWeights[where]": (
        eqopt.AddDecayedWeights(0.1, select.Ndim(2)),
        decayed(gradient, 0.1, IS_MATRIX),
    ),
    "Clip": (eqopt.Clip(0.5), clipped(0.5)),
    "ClipByGlobalNorm": (eqopt.ClipByGlobalNorm(2.0), clipped_by_norm(2.0)),
    "NormalizeByGlobalNorm": (eqopt.NormalizeByGlobalNorm(), normalised(gradient)),
    "NormalizeByGlobalNorm[eps]": (
        eqopt.NormalizeByGlobalNorm(2.0, 0.1),
        normalised(gradient, 2.0, 0.1),
    ),
    "ScaleBySign": (eqopt.ScaleBySign(), sign),
    "SGD": (eqopt.SGD(0.1), descent(RATE, gradient)),
    "SGD[schedule]": (eqopt.SGD(LINEAR), descent(linear(0.1, 0.02, 6), gradient)),
    "SGD[momentum]": (eqopt.SGD(0.1, 0.9), descent(RATE, momentum(0.9))),
    "SGD[nesterov]": (eqopt.SGD(0.1, 0.9, nesterov=True), descent(RATE, nesterov(0.9))),
    "Adam": (eqopt.Adam(0.1), descent(RATE, adam(0.9, 0.999, 1e-8))),
    "Adam[schedule]": (eqopt.Adam(LINEAR, *ADAM), descent(linear(0.1, 0.02, 6), adam(*ADAM))),
    "AdamW": (
        eqopt.AdamW(0.1, weight_decay=0.1),
        descent(RATE, decayed(adam(0.9, 0.999, 1e-8), 0.1)),
    ),
    "AdamW[where]": (
        eqopt.AdamW(0.1, *ADAM, 0.1, select.Matrices()),
        descent(RATE, decayed(adam(*ADAM), 0.1, IS_MATRIX)),
    ),
    "AdamW[independent]": (
        eqopt.AdamW(LINEAR, *ADAM, COSINE, select.Matrices(), independent_decay=True),
        independently_decayed(linear(0.1, 0.02, 6), adam(*ADAM), cosine(0.05, 8), IS_MATRIX),
    ),
    "NAdam": (eqopt.NAdam(0.1), descent(RATE, nadam(0.9, 0.999, 1e-8))),
    "NAdam[eps_root]": (eqopt.NAdam(0.1, *ADAM), descent(RATE, nadam(*ADAM))),
    "NAdamW": (
        eqopt.NAdamW(0.1, *ADAM, 0.1, select.Matrices()),
        descent(RATE, decayed(nadam(*ADAM), 0.1, IS_MATRIX)),
    ),
    "NAdamW[independent]": (
        eqopt.NAdamW(LINEAR, *ADAM, COSINE, independent_decay=True),
        independently_decayed(linear(0.1, 0.02, 6), nadam(*ADAM), cosine(0.05, 8)),
    ),
    "normalised Adam": (
        eqopt.ScaleByAdam() >> eqopt.NormalizeByGlobalNorm() >> eqopt.ScaleByLearningRate(0.1),
        descent(RATE, normalised(adam(0.9, 0.999, 1e-8))),
    ),
}


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("optim, reference", TRAJECTORIES.values(), ids=TRAJECTORIES.keys())
def test_trajectory(optim, reference, is_complex, x64):
    """The first members, and the named optimizers made of them."""
    check_trajectory(optim, reference, is_complex)
