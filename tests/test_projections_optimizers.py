"""Optimizers that keep the parameters in a set."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FREE_PROJECTIONS, flat

import eqopt
from eqopt import select
from eqopt.projections import L2Ball, NonNegative

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
