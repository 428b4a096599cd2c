"""Optimizers that keep the parameters in a set."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from cases import FREE_PROJECTIONS
from trees import flat

import eqopt
from eqopt import select
from eqopt.projections import Box, L2Ball, NonNegative, Simplex

each_free = pytest.mark.parametrize("case", FREE_PROJECTIONS.values(), ids=FREE_PROJECTIONS.keys())


def tree(flat):
    """Six numbers as a tree."""
    return {"b": jnp.asarray(flat[:2]), "w": jnp.asarray(np.reshape(flat[2:], (2, 2)))}


def gradients(step):
    """Signs change from step to step, so that bounds are met and left again."""
    return tree(np.asarray([1.0, -1.0, 2.0, -0.5, 0.3, -3.0]) * (-1.0) ** (step // 3))


class TestInOptimizers:
    @each_free
    @pytest.mark.parametrize("optim", [eqopt.Adam(0.3), eqopt.SGD(0.3)], ids=["Adam", "SGD"])
    def test_step_projects_exactly(self, case, optim):
        """Each step equals a step without the projection, projected by hand, bit for bit."""
        projected = optim >> case.projection
        params = by_hand = case.projection(tree(np.asarray([0.5, 0.1, -0.2, 0.3, 0.0, 0.7])))
        state, state_by_hand = projected.init(params), optim.init(params)
        for t in range(8):
            params, state = projected.step(gradients(t), state, params)
            by_hand, state_by_hand = optim.step(gradients(t), state_by_hand, by_hand)
            by_hand = case.projection(by_hand)
            np.testing.assert_array_equal(flat(params), flat(by_hand))
            assert case.contains(params)

    def test_non_negative_is_kept_exactly(self):
        """Not one element is below 0, at any step, and some are at 0."""
        optim = eqopt.Adam(0.3) >> NonNegative()
        params = tree(np.full(6, 0.5))
        state = optim.init(params)
        touched = 0
        for t in range(8):
            params, state = optim.step(gradients(t), state, params)
            assert np.all(flat(params) >= 0)
            touched += np.sum(flat(params) == 0)
        assert touched > 0

    @each_free
    def test_call_returns_the_difference(self, case):
        """`proj(params + updates) - params`."""
        params, updates = tree(np.full(6, 0.5, np.float32)), gradients(0)
        optim = eqopt.Project(case.projection)
        result, _ = optim(updates, optim.init(params), params)
        wanted = flat(case.projection(eqopt.apply_updates(params, updates))) - flat(params)
        np.testing.assert_array_equal(flat(result), wanted)

    def test_only_the_selected_leaves(self):
        """The selected leaves are one tree; the others are not touched."""
        optim = eqopt.Project(L2Ball(1.0), where=select.Path("w|c"))
        params = {"b": jnp.asarray([3.0, 4.0]), "c": jnp.asarray(3.0), "w": jnp.asarray([4.0])}
        zeros = jax.tree.map(jnp.zeros_like, params)
        result, _ = optim.step(zeros, optim.init(params), params)
        np.testing.assert_array_equal(result["b"], [3.0, 4.0])
        np.testing.assert_allclose(result["c"], 0.6, rtol=1e-6)
        np.testing.assert_allclose(result["w"], [0.8], rtol=1e-6)
        updates, _ = optim(zeros, optim.init(params), params)
        np.testing.assert_array_equal(updates["b"], [0.0, 0.0])
        np.testing.assert_allclose(updates["w"], [-3.2], rtol=1e-6)

    def test_params_are_needed(self):
        """Without them the error names the class and the keyword."""
        optim = eqopt.Project(NonNegative())
        x = jnp.ones(2)
        with pytest.raises(TypeError, match="`Project` needs `params`"):
            optim(x, optim.init(x))

    def test_whole_model(self):
        """A model stays in the set through a step, and what is not trained stays as it is."""
        model = eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0))
        optim = eqopt.SGD(0.1) >> NonNegative()
        grads = eqx.filter_grad(lambda m: jnp.sum(m(jnp.ones(2))))(model)
        activation = model.activation
        model, _ = optim.step(grads, optim.init(model), model)
        assert np.all(flat(eqx.filter(model, eqx.is_array)) >= 0)
        assert model.activation is activation

    def test_projection_alone(self):
        """A projection at the head of a chain becomes a member too."""
        optim = NonNegative() >> eqopt.Scale(1.0)
        assert [type(member) for member in optim] == [eqopt.Project, eqopt.Scale]


def regression():
    """A matrix and the answers of a linear model, some of whose weights are negative."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((30, 5))
    return matrix, matrix @ np.asarray([1.0, -0.5, 0.3, 2.0, -1.0]) + 0.1 * rng.standard_normal(30)


def minimized(optim, loss, params, steps):
    """The parameters after some steps."""

    @jax.jit
    def run(params):
        def body(carry, _):
            params, state = carry
            return optim.step(jax.grad(loss)(params), state, params), None

        return jax.lax.scan(body, (params, optim.init(params)), length=steps)[0][0]

    return np.asarray(run(params))


class TestEndToEnd:
    def test_adam_over_the_orthant(self):
        """The mean of (x w - y)^2 over w >= 0: projecting after each step by hand, and by the
        chain, gives the same run, bit for bit."""
        wanted = scipy.optimize.nnls(*regression())[0]
        x, y = map(jnp.asarray, regression())

        def loss(w):
            return jnp.mean((x @ w - y) ** 2)

        @jax.jit
        def by_hand(w, state):
            w, state = eqopt.Adam(0.1).step(jax.grad(loss)(w), state, w)
            return NonNegative()(w), state

        @jax.jit
        def by_chain(w, state):
            return (eqopt.Adam(0.1) >> NonNegative()).step(jax.grad(loss)(w), state, w)

        ours = w = jnp.full(5, 0.5)
        ours_state = (eqopt.Adam(0.1) >> NonNegative()).init(w)
        state = eqopt.Adam(0.1).init(w)
        for _ in range(60):
            w, state = by_hand(w, state)
            ours, ours_state = by_chain(ours, ours_state)
            np.testing.assert_array_equal(ours, w)
        np.testing.assert_array_equal(ours == 0, wanted == 0)

    def test_non_negative_least_squares(self, x64):
        """Projected gradient descent reaches SciPy's solution."""
        x, y = regression()
        optim = eqopt.SGD(1 / np.linalg.norm(x.T @ x, 2)) >> NonNegative()
        result = minimized(optim, lambda w: 0.5 * jnp.sum((x @ w - y) ** 2), jnp.full(5, 0.5), 400)
        np.testing.assert_allclose(result, scipy.optimize.nnls(x, y)[0], atol=1e-6)

    def test_fit_in_a_box(self, x64):
        """Bounds for each weight."""
        x, y = regression()
        lower, upper = np.asarray([-1.0, -0.2, 0.0, 0.0, -2.0]), np.asarray([0.5, 0.0, 1, 1.5, 0])
        optim = eqopt.SGD(1 / np.linalg.norm(x.T @ x, 2)) >> Box(lower, upper)
        result = minimized(optim, lambda w: 0.5 * jnp.sum((x @ w - y) ** 2), jnp.zeros(5), 400)
        wanted = scipy.optimize.lsq_linear(x, y, (lower, upper), tol=1e-14).x
        np.testing.assert_allclose(result, wanted, atol=1e-6)

    def test_mixture(self, x64):
        """The weights of three known densities that make the data likeliest."""
        rng = np.random.default_rng(1)
        data = np.concatenate([rng.normal(-2, 1, 60), rng.normal(2, 1, 40)])
        densities = scipy.stats.norm.pdf(data[:, None], [-2.0, 0.0, 2.0], 1.0)

        def loss(w, log=jnp.log, mean=jnp.mean):
            return -mean(log(densities @ w))

        result = minimized(eqopt.SGD(0.2) >> Simplex(), loss, jnp.full(3, 1 / 3), 2000)
        found = scipy.optimize.minimize(
            lambda w: loss(w, np.log, np.mean),
            np.full(3, 1 / 3),
            bounds=[(0, 1)] * 3,
            constraints=[{"type": "eq", "fun": lambda w: np.sum(w) - 1}],
            jac=lambda w: -np.mean(densities / (densities @ w)[:, None], 0),
            options={"ftol": 1e-16, "maxiter": 500},
        )
        np.testing.assert_allclose(result, found.x, atol=1e-6)
