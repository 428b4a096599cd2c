"""Projections onto bounds on each element: values and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eqopt.projections import NonNegative


class TestNonNegative:
    def test_non_negative(self):
        """The larger of the element and 0."""
        result = NonNegative()({"a": jnp.asarray([-1.0, 0.0, 2.0]), "b": jnp.asarray(-3.0)})
        np.testing.assert_array_equal(result["a"], [0.0, 0.0, 2.0])
        assert float(result["b"]) == 0.0

    def test_non_negative_keeps_nan(self):
        """A NaN is not hidden."""
        assert np.isnan(NonNegative()(jnp.asarray(jnp.nan)))

    @pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
    def test_derivative(self, jacobian):
        """1 above 0, and 0 elsewhere, at 0 too."""
        result = jacobian(NonNegative())(jnp.asarray([-1.0, 0.0, 2.0]))
        np.testing.assert_array_equal(result, np.diag([0.0, 0.0, 1.0]))
