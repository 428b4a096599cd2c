"""Working together with other libraries. The only part of eqopt that imports optax."""

from ._optax import to_optax as to_optax
