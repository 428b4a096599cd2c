"""The names that annotations share: trees, leaves and scalars."""

from typing import Any, TypeAlias

from jaxtyping import Array, Float, Inexact, Int, PyTree

Params: TypeAlias = PyTree
"""Parameters: any PyTree, such as a whole Equinox model. Its float and complex arrays are what
is trained; every other leaf is left alone."""

Updates: TypeAlias = PyTree
"""Gradients, or what a transformation made of them: the structure of the parameters, with `None`
where nothing is trained."""

OptState: TypeAlias = Any
"""The state of a transformation: what `init` returns and every update passes on."""

Count: TypeAlias = Int[Array, ""]
"""A number of updates: an int32 scalar."""

Scalar: TypeAlias = Float[Array, ""]
"""A real scalar array."""

# Within one rule all leaves have one shape: jaxtyping binds `*leaf` and checks it.
Leaf: TypeAlias = Inexact[Array, "*leaf"]
RealLeaf: TypeAlias = Float[Array, "*leaf"]
