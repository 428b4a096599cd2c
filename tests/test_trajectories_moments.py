"""Trajectories of what rescales by moments, by signs and by memory; see `trajectories.py`."""

import numpy as np
import pytest
from trajectories import check_trajectory

import eqopt
from eqopt import schedules


def ratio(m, v, eps, eps_root=0.0):
    """What Adam's relatives end with; without gradients so far there is no direction."""
    bottom = np.sqrt(v + eps_root) + eps
    return np.where(bottom == 0, 0, m / np.where(bottom == 0, 1, bottom))


def amsgrad(b1, b2, eps, eps_root=0.0, convention="paper"):
    """Reddi et al. 2018, algorithm 2; Kingma and Ba's corrections are not in it."""

    def direction(t, g, p, memory):
        m = b1 * memory.get("m", 0) + (1 - b1) * g
        v = b2 * memory.get("v", 0) + (1 - b2) * np.abs(g) ** 2
        largest = memory.get("largest", 0)
        if convention == "optax":
            largest = np.maximum(largest, v / (1 - b2**t))
            result = m / (1 - b1**t) / (np.sqrt(largest + eps_root) + eps)
        else:
            largest = np.maximum(largest, v)
            if convention == "torch":
                result = m / (1 - b1**t) / (np.sqrt(largest / (1 - b2**t) + eps_root) + eps)
            else:
                result = m / (np.sqrt(largest + eps_root) + eps)
        memory.update(m=m, v=v, largest=largest)
        return result

    return direction


def adamax(b1, b2, eps):
    """Kingma and Ba 2015, algorithm 2, with eps beside the gradient."""

    def direction(t, g, p, memory):
        m = b1 * memory.get("m", 0) + (1 - b1) * g  # biased first moment
        u = np.maximum(b2 * memory.get("u", 0), np.abs(g) + eps)  # infinity norm
        memory.update(m=m, u=u)
        return m / (1 - b1**t) / u  # of the update, without alpha

    return direction


def look_ahead(m, g, b1, t, nesterov):
    """The corrected first moment; Dozat 2016, algorithm 2, where it looks ahead."""
    if nesterov:
        return b1 * m / (1 - b1 ** (t + 1)) + (1 - b1) * g / (1 - b1**t)
    return m / (1 - b1**t)


def belief(b1, b2, eps, eps_root, nesterov=False):
    """Zhuang et al. 2020, algorithm 2, whose epsilon stands in both places."""

    def direction(t, g, p, memory):
        m = b1 * memory.get("m", 0) + (1 - b1) * g
        s = b2 * memory.get("s", 0) + (1 - b2) * np.abs(g - m) ** 2 + eps_root
        memory.update(m=m, s=s)
        return look_ahead(m, g, b1, t, nesterov) / (np.sqrt(s / (1 - b2**t)) + eps)

    return direction


def yogi(b1, b2, eps, eps_root, start, corrected):
    """Zaheer et al. 2018, algorithm 2."""

    def direction(t, g, p, memory):
        m = b1 * memory.get("m", 0) + (1 - b1) * g
        v = memory.get("v", start)
        v = v - (1 - b2) * np.sign(v - np.abs(g) ** 2) * np.abs(g) ** 2
        memory.update(m=m, v=v)
        if corrected:
            m, v = m / (1 - b1**t), v / (1 - b2**t)
        return ratio(m, v, eps, eps_root)

    return direction


def radam(b1, b2, eps, eps_root, threshold, nesterov=False):
    """Liu et al. 2020, algorithm 2."""
    rho_inf = 2 / (1 - b2) - 1  # line 3

    def direction(t, g, p, memory):
        v = b2 * memory.get("v", 0) + (1 - b2) * np.abs(g) ** 2  # line 6
        m = b1 * memory.get("m", 0) + (1 - b1) * g  # line 7
        memory.update(m=m, v=v)
        m_hat = look_ahead(m, g, b1, t, nesterov)  # line 8
        rho = rho_inf - 2 * t * b2**t / (1 - b2**t)  # line 9
        if rho < threshold:  # line 10
            return m_hat  # line 14
        r = np.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))  # 12
        return r * ratio(m_hat, v / (1 - b2**t), eps, eps_root)  # lines 11 and 13

    return direction


def optimistic(alpha, beta):
    """Mokhtari et al. 2020, equation 7, the generalised method, without the step size."""

    def direction(t, g, p, memory):
        old = memory.get("g", g)
        memory["g"] = g
        return (alpha + beta) * g - beta * old

    return direction


def adan(b1, b2, b3, eps, eps_root=0.0):
    """Xie et al. 2022, algorithm 1, with beta = 1 - b, and with the corrections of their code."""
    beta1, beta2, beta3 = 1 - b1, 1 - b2, 1 - b3

    def direction(t, g, p, memory):
        difference = g - memory.get("g", g)
        m = (1 - beta1) * memory.get("m", 0) + beta1 * g  # line 4
        v = (1 - beta2) * memory.get("v", 0) + beta2 * difference  # line 5
        ahead = np.abs(g + (1 - beta2) * difference) ** 2
        n = (1 - beta3) * memory.get("n", 0) + beta3 * ahead  # line 6
        memory.update(m=m, v=v, n=n, g=g)
        m_hat, v_hat, n_hat = m / (1 - b1**t), v / (1 - b2**t), n / (1 - b3**t)
        return ratio(m_hat + (1 - beta2) * v_hat, n_hat, eps, eps_root)  # lines 7 and 8

    return direction


def leaf_by_leaf(direction):
    """A direction for each leaf on its own: the vector of 2 and the matrix of 2 x 2."""

    def together(t, g, p, memory):
        vector = direction(t, g[:2], p[:2], memory.setdefault("vector", {}))
        matrix = direction(
            t, g[2:].reshape(2, 2), p[2:].reshape(2, 2), memory.setdefault("matrix", {})
        )
        return np.concatenate([vector, matrix.ravel()])

    return together


def novograd(b1, b2, eps, eps_root, decay):
    """Ginsburg et al. 2019, algorithm 1, for one layer, with epsilon at the first step too."""

    def direction(t, g, p, memory):
        squared = np.sum(np.abs(g) ** 2)
        if t == 1:
            v, m = squared, 0
        else:
            v = b2 * memory["v"] + (1 - b2) * squared
            m = b1 * memory["m"]
        m = m + (g / (np.sqrt(v + eps_root) + eps) + decay * p)
        memory.update(v=v, m=m)
        return m

    return direction


def lion(b1, b2, bounded):
    """Chen et al. 2023, algorithm 2."""

    def direction(t, g, p, memory):
        m = memory.get("m", 0)
        c = b1 * m + (1 - b1) * g
        memory["m"] = b2 * m + (1 - b2) * g
        return bounded(c)

    return direction


def sign(x):
    """x / |x|, and 0 at 0."""
    return np.where(x == 0, 0, x / np.where(x == 0, 1, np.abs(x)))


def smooth(beta):
    """The hyperbolic tangent of the modulus, in the direction of x."""
    return lambda x: sign(x) * np.tanh(beta * np.abs(x))


def refined(x):
    """x within the unit circle, else the sign."""
    return np.where(np.abs(x) < 1, x, sign(x))


def rprop(start, eta_minus, eta_plus, smallest, largest):
    """Igel and Huesken 2000, algorithm iRprop-, element by element, with the sign turned."""

    def direction(t, g, p, memory):
        delta = memory.setdefault("delta", np.full(g.shape, start))
        old = memory.get("g", np.zeros(g.shape))
        g, u = g.copy(), np.zeros(g.shape)
        for i in range(g.size):
            if old[i] * g[i] > 0:
                delta[i] = min(delta[i] * eta_plus, largest)
            elif old[i] * g[i] < 0:
                delta[i] = max(delta[i] * eta_minus, smallest)
                g[i] = 0
            u[i] = np.sign(g[i]) * delta[i]
        memory["g"] = g
        return u

    return direction


def rms(decay, eps, start, inside, corrected):
    """Tieleman and Hinton 2012, slide 29; eps and the correction as the flags say."""

    def direction(t, g, p, memory):
        v = decay * memory.get("v", start) + (1 - decay) * np.abs(g) ** 2
        memory["v"] = v
        if corrected:
            v = v / (1 - decay**t)
        return g / np.sqrt(v + eps) if inside else ratio(g, v, eps)

    return direction


def stddev(decay, eps, start, inside, corrected):
    """Graves 2013, equations 38 to 40, without the momentum."""

    def direction(t, g, p, memory):
        n = decay * memory.get("n", start) + (1 - decay) * np.abs(g) ** 2  # (38)
        mean = decay * memory.get("g", 0) + (1 - decay) * g  # (39)
        memory.update(n=n, g=mean)
        if corrected:
            n, mean = n / (1 - decay**t), mean / (1 - decay**t)
        variance = np.maximum(n - np.abs(mean) ** 2, 0)
        return g / np.sqrt(variance + eps) if inside else ratio(g, variance, eps)  # (40)

    return direction


def rss(start, eps):
    """Duchi et al. 2011, figure 1, with the diagonal matrix."""

    def direction(t, g, p, memory):
        s = memory.get("s", start) + np.abs(g) ** 2
        memory["s"] = s
        return ratio(g, s + eps, 0)

    return direction


def adadelta(rho, eps):
    """Zeiler 2012, algorithm 1, with the sign turned."""

    def direction(t, g, p, memory):
        e_g = rho * memory.get("e_g", 0) + (1 - rho) * np.abs(g) ** 2  # line 4
        e_x = memory.get("e_x", np.zeros(g.shape))
        u = np.sqrt(e_x + eps) / np.sqrt(e_g + eps) * g  # line 5
        memory.update(e_g=e_g, e_x=rho * e_x + (1 - rho) * np.abs(u) ** 2)  # line 6
        return u

    return direction


def adafactor(beta, epsilon, factored):
    """Shazeer and Stern 2018, algorithm 4 (a matrix) and 5 (a vector), lines 1 to 6, without the
    clipping; beta is a function of the step."""

    def direction(t, g, p, memory):
        squared = np.abs(g) ** 2 + epsilon
        if not factored or g.ndim < 2:
            v = beta(t) * memory.get("v", 0) + (1 - beta(t)) * squared
            memory["v"] = v
            return g / np.sqrt(v)
        # The sums of the paper; the common factor of rows and columns cancels.
        r = beta(t) * memory.get("r", 0) + (1 - beta(t)) * squared.sum(axis=1)
        c = beta(t) * memory.get("c", 0) + (1 - beta(t)) * squared.sum(axis=0)
        memory.update(r=r, c=c)
        return g / np.sqrt(np.outer(r, c) / r.sum())

    return leaf_by_leaf(direction)


def falling(exponent, offset=0):
    """Shazeer and Stern 2018, section 7.2."""
    return lambda t: 1 - max(t - offset, 1) ** -exponent


def sm3(b1, b2, eps):
    """Anil et al. 2019, algorithm SM3-II with momentum, element by element: the sets are the rows
    and columns of a matrix, the elements of a vector."""

    def direction(t, g, p, memory):
        old = memory.get("mu", [np.zeros(n) for n in g.shape])
        mu = [np.zeros(n) for n in g.shape]
        u = np.zeros_like(g)
        for index in np.ndindex(g.shape):
            least = min(old[axis][i] for axis, i in enumerate(index))
            gain = 1 if b2 == 1 else 1 - b2
            nu = b2 * least + gain * np.abs(g[index]) ** 2
            u[index] = g[index] / np.sqrt(nu + eps) if nu + eps > 0 else 0
            for axis, i in enumerate(index):
                mu[axis][i] = max(mu[axis][i], nu)
        m = b1 * memory.get("m", 0) + (1 - b1) * u
        memory.update(mu=mu, m=m)
        return m

    return leaf_by_leaf(direction)


ADAM = (0.8, 0.95, 1e-3, 1e-2)  # b1, b2, eps, eps_root
UNCORRECTED = {"bias_correction_mu": False, "bias_correction_nu": False}
OUTSIDE = {"eps_in_sqrt": False, "bias_correction": True}

# name: the transform, and the reference of what it returns.
TRAJECTORIES = {
    "AMSGrad": (eqopt.ScaleByAMSGrad(*ADAM), amsgrad(*ADAM, "optax")),
    "AMSGrad[torch]": (
        eqopt.ScaleByAMSGrad(*ADAM, max_of_corrected=False),
        amsgrad(*ADAM, "torch"),
    ),
    "AMSGrad[paper]": (eqopt.ScaleByAMSGrad(*ADAM, **UNCORRECTED), amsgrad(*ADAM, "paper")),
    "AdaMax": (eqopt.ScaleByAdaMax(0.8, 0.9, 1e-3), adamax(0.8, 0.9, 1e-3)),
    "Belief": (eqopt.ScaleByBelief(*ADAM), belief(*ADAM)),
    "Belief[defaults]": (eqopt.ScaleByBelief(), belief(0.9, 0.999, 1e-16, 1e-16)),
    "Belief[nesterov]": (eqopt.ScaleByBelief(*ADAM, nesterov=True), belief(*ADAM, True)),
    "Yogi": (eqopt.ScaleByYogi(*ADAM, 0.1), yogi(*ADAM, 0.1, True)),
    "Yogi[paper]": (
        eqopt.ScaleByYogi(*ADAM, 0.1, bias_correction=False),
        yogi(*ADAM, 0.1, False),
    ),
    "RAdam": (eqopt.ScaleByRAdam(*ADAM, 5.0), radam(*ADAM, 5.0)),
    "RAdam[threshold]": (eqopt.ScaleByRAdam(*ADAM, 6.5), radam(*ADAM, 6.5)),
    "RAdam[defaults]": (eqopt.ScaleByRAdam(b2=0.99), radam(0.9, 0.99, 1e-8, 0.0, 5.0)),
    "RAdam[nesterov]": (eqopt.ScaleByRAdam(*ADAM, nesterov=True), radam(*ADAM, 5.0, True)),
    "OptimisticGradient": (eqopt.ScaleByOptimisticGradient(0.7, 0.4), optimistic(0.7, 0.4)),
    "Adan": (eqopt.ScaleByAdan(), adan(0.98, 0.92, 0.99, 1e-8)),
    "Adan[eps_root]": (
        eqopt.ScaleByAdan(0.9, 0.7, 0.8, 1e-3, 1e-2),
        adan(0.9, 0.7, 0.8, 1e-3, 1e-2),
    ),
    "NovoGrad": (
        eqopt.ScaleByNovoGrad(0.9, 0.25, 1e-3, 1e-2, 0.1),
        leaf_by_leaf(novograd(0.9, 0.25, 1e-3, 1e-2, 0.1)),
    ),
    "Lion": (eqopt.ScaleByLion(), lion(0.9, 0.99, sign)),
    "Lion[smooth]": (
        eqopt.ScaleByLion(0.8, 0.7, mode="smooth", smooth_beta=0.5),
        lion(0.8, 0.7, smooth(0.5)),
    ),
    "Lion[refined]": (eqopt.ScaleByLion(0.8, 0.7, mode="refined"), lion(0.8, 0.7, refined)),
    "RProp": (
        eqopt.ScaleByRProp(0.1, 0.4, 1.3, 0.05, 0.15),
        rprop(0.1, 0.4, 1.3, 0.05, 0.15),
    ),
    "RMS": (eqopt.ScaleByRMS(0.8, 1e-2, 0.1), rms(0.8, 1e-2, 0.1, True, False)),
    "RMS[outside]": (
        eqopt.ScaleByRMS(0.8, 1e-2, **OUTSIDE),
        rms(0.8, 1e-2, 0.0, False, True),
    ),
    "StdDev": (eqopt.ScaleByStdDev(0.8, 1e-2, 0.1), stddev(0.8, 1e-2, 0.1, True, False)),
    "StdDev[outside]": (
        eqopt.ScaleByStdDev(0.8, 1e-2, 0.1, **OUTSIDE),
        stddev(0.8, 1e-2, 0.1, False, True),
    ),
    "RSS": (eqopt.ScaleByRSS(0.1, 1e-2), rss(0.1, 1e-2)),
    "RSS[from 0]": (eqopt.ScaleByRSS(0.0, 0.0), rss(0.0, 0.0)),
    "AdaDelta": (eqopt.ScaleByAdaDelta(0.8, 1e-2), adadelta(0.8, 1e-2)),
    "FactoredRMS": (
        eqopt.ScaleByFactoredRMS(0.7, 0, 1e-3, min_dim_size_to_factor=2),
        adafactor(falling(0.7), 1e-3, True),
    ),
    "FactoredRMS[offset]": (
        eqopt.ScaleByFactoredRMS(0.7, 3, 1e-3, min_dim_size_to_factor=2),
        adafactor(falling(0.7, 3), 1e-3, True),
    ),
    "FactoredRMS[full]": (
        eqopt.ScaleByFactoredRMS(0.7, 0, 1e-3, factored=False),
        adafactor(falling(0.7), 1e-3, False),
    ),
    "FactoredRMS[decay]": (
        eqopt.ScaleByFactoredRMS(
            epsilon=1e-3, decay=schedules.Linear(0.0, 0.9, steps=4), min_dim_size_to_factor=2
        ),
        adafactor(lambda t: 0.9 * min((t - 1) / 4, 1), 1e-3, True),
    ),
    "SM3": (eqopt.ScaleBySM3(0.8, 1.0, 1e-2), sm3(0.8, 1.0, 1e-2)),
    "SM3[decaying]": (eqopt.ScaleBySM3(0.8, 0.7, 0.0), sm3(0.8, 0.7, 0.0)),
}
REAL_ONLY = {"RProp"}
RUNS = [(name, False) for name in TRAJECTORIES]
RUNS += [(name, True) for name in TRAJECTORIES if name not in REAL_ONLY]


@pytest.mark.parametrize("name, is_complex", RUNS)
def test_trajectory(name, is_complex, x64):
    """Each agrees with its paper, also for complex parameters, where |g| stands for g's size."""
    check_trajectory(*TRAJECTORIES[name], is_complex)
