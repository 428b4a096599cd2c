"""Trajectories of orthogonalisation and Muon in float64 against plain NumPy.

The references import nothing from eqopt; see `trajectories.py`. Numbers in the comments are
those of the papers' lines or equations.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optax.contrib import _muon

import eqopt

STEPS = 10
KEY = jax.random.key(0)
JORDAN = (3.4445, -4.7750, 2.0315)
CONVERGENT = (2.0, -1.5, 0.5)


def problem(is_complex):
    """Parameters and gradients, a wide and a tall matrix: signs change, the fifth gradient is 0,
    the eighth 1e3 (but for a tenth of noise, without which it has few singular values)."""
    rng = np.random.default_rng(0)
    shapes = {"t": (4, 3), "w": (3, 5)}

    def draw():
        tree = {key: rng.normal(size=shape) for key, shape in shapes.items()}
        if is_complex:
            tree = {key: x + 1j * rng.normal(size=x.shape) for key, x in tree.items()}
        return tree

    params, grads = draw(), [draw() for _ in range(STEPS)]
    grads[4] = {key: 0 * x for key, x in grads[4].items()}
    grads[7] = {key: 1e3 * (np.sign(x.real) + 0.1 * x) for key, x in grads[7].items()}
    return params, grads


def test_the_gradients_are_hard_enough():
    """In every element the sign changes."""
    for is_complex in (False, True):
        _, grads = problem(is_complex)
        for key in grads[0]:
            found = np.stack([g[key].real for g in grads])
            assert np.all(found.min(0) < 0) and np.all(found.max(0) > 0)


def newton_schulz(g, rows, eps=1e-8):
    """Jordan et al. 2024, `newtonschulz5`: with G G^H on the short side."""
    x = g / (np.sqrt(np.sum(np.abs(g) ** 2)) + eps)
    if x.shape[0] > x.shape[1]:
        x = x.T
    for a, b, c in rows:
        gram = x @ x.conj().T  # A = X @ X.T
        x = a * x + (b * gram + c * gram @ gram) @ x  # B = b * A + c * A @ A; X = a * X + B @ X
    return x.T if g.shape[0] > g.shape[1] else x


def polar(g, eps=0.0):
    """U V^H of the singular value decomposition; with `eps`, of sigma / (sigma + eps)."""
    u, s, vh = np.linalg.svd(g, full_matrices=False)
    weights = np.divide(s, s + eps, out=np.zeros_like(s), where=s + eps > 0)
    return (u * weights) @ vh


def iterated(rows, eps=1e-8):
    """The orthogonalised gradient."""
    return lambda t, g, memory: newton_schulz(g, rows, eps)


def muon(beta, orthogonal, nesterov=True, adaptive=False):
    """Jordan et al. 2024, Muon, with the momentum as a mean whose bias is corrected."""

    def direction(t, g, memory):
        m = beta * memory.get("m", 0) + (1 - beta) * g  # B_t = mu B_(t-1) + G_t, as a mean
        memory["m"] = m
        m_hat = m / (1 - beta**t)
        if nesterov:
            m_hat = beta * m / (1 - beta ** (t + 1)) + (1 - beta) * g / (1 - beta**t)
        o = orthogonal(m_hat)  # O_t = NewtonSchulz5(B_t)
        if adaptive:  # Bernstein and Newhouse 2024, proposition 5: times the dual norm
            o = o * np.sum((m_hat.conj() * o).real)
        return o

    return direction


def shaped(factor):
    return lambda t, g, memory: factor(*g.shape) * g


DION = _muon._DION_NS_COEFFS
TRAJECTORIES = {
    "Orthogonalize": (eqopt.Orthogonalize(), iterated([JORDAN] * 5)),
    "Orthogonalize[dion]": (eqopt.Orthogonalize("dion"), iterated(DION)),
    "Orthogonalize[rows]": (
        eqopt.Orthogonalize([CONVERGENT, JORDAN], 2, 0.5),
        iterated([CONVERGENT, JORDAN], 0.5),
    ),
    "Orthogonalize[exact]": (
        eqopt.Orthogonalize(None, eps=0.0),
        lambda t, g, memory: polar(g),
    ),
    "Orthogonalize[exact, eps]": (
        eqopt.Orthogonalize(None, eps=0.5),
        lambda t, g, memory: polar(g, 0.5),
    ),
    "ScaleByMuon": (
        eqopt.ScaleByMuon(),
        muon(0.95, lambda m: newton_schulz(m, [JORDAN] * 5)),
    ),
    "ScaleByMuon[plain]": (
        eqopt.ScaleByMuon(decay=0.8, nesterov=False),
        muon(0.8, lambda m: newton_schulz(m, [JORDAN] * 5), nesterov=False),
    ),
    "ScaleByMuon[adaptive]": (
        eqopt.ScaleByMuon("dion", adaptive=True),
        muon(0.95, lambda m: newton_schulz(m, DION), adaptive=True),
    ),
    "ScaleByMuon[exact]": (eqopt.ScaleByMuon(None, eps=0.0), muon(0.95, polar)),
    "ScaleByShape": (
        eqopt.ScaleByShape(),
        shaped(lambda out, in_: np.sqrt(max(1, out / in_))),
    ),
    "ScaleByShape[rms]": (
        eqopt.ScaleByShape(0.2),
        shaped(lambda out, in_: 0.2 * np.sqrt(max(out, in_))),
    ),
}


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("optim, reference", TRAJECTORIES.values(), ids=TRAJECTORIES.keys())
def test_trajectory(optim, reference, is_complex, x64):
    """Ten updates, and the parameters after each, agree with the paper to 1e-11 of the largest
    element: each element is a sum over a matrix."""
    wanted, grads = problem(is_complex)
    params = jax.tree.map(jnp.asarray, wanted)
    state, memory = optim.init(params), {key: {} for key in wanted}
    for t, g in enumerate(grads, start=1):
        update = {key: reference(t, g[key], memory[key]) for key in g}
        wanted = {key: wanted[key] + update[key] for key in g}
        updates, _ = optim(jax.tree.map(jnp.asarray, g), state, params)
        params, state = optim.step(jax.tree.map(jnp.asarray, g), state, params)
        for key in g:
            for found, right in ((updates[key], update[key]), (params[key], wanted[key])):
                bound = 1e-11 * np.abs(right).max()
                np.testing.assert_allclose(found, right, rtol=0, atol=bound, err_msg=f"step {t}")
