"""Wrappers by which a transformation acts on some of the leaves: `Masked`, `Freeze`."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import PyTree

from .._core.apply import apply_updates
from .._core.leaves import zeros_like
from .._core.selector import Where
from .._core.types import Params, Updates
from .._core.view import AbstractView, Chosen
from .._core.wrapper import Inner


class MaskedState(eqx.Module):
    """- `inner_state`: what the inner transformation remembers, of the selected leaves alone."""

    inner_state: Any


class Masked(AbstractView):
    """Applies a transformation to the selected leaves; the updates of the others pass through
    unchanged.

    Where these updates are gradients, as in `Masked(optimizer, where)`, the others' *gradients*
    are added to their parameters: use `Freeze` to train some leaves only, `Partition` to train
    each with its own optimizer. `Masked` is for one part of a chain that is for some leaves:
    `Masked(ClipByGlobalNorm(1.0), where) >> optimizer`.

    The inner transformation sees `None` for the other leaves, so a norm over the tree is one of
    the selected leaves; and it has no state for them.

    - `inner`: the transformation.
    - `where`: the leaves that it applies to.
    """

    inner: Inner
    where: Where

    _state_type: ClassVar[Any] = MaskedState

    def _form(self, like: PyTree) -> Chosen:
        return Chosen(jax.tree.leaves(self.where(like)))

    def _rest_params(self, form: Chosen, updates: Updates, params: Params) -> Params:
        others = form.others()
        return others.whole(apply_updates(others.see(params), others.see(updates)), params)


class FreezeState(eqx.Module):
    """- `inner_state`: what the inner transformation remembers, of the leaves that are trained."""

    inner_state: Any


class AbstractFreeze(AbstractView):
    """A wrapper that keeps some leaves as they are and trains the others.

    - `inner`: the transformation of the others.
    """

    _state_type: ClassVar[Any] = FreezeState

    @abstractmethod
    def _frozen(self, like: PyTree) -> PyTree:
        """The tree with True for each leaf that is frozen and False for each other one."""

    def _form(self, like: PyTree) -> Chosen:
        return Chosen(jax.tree.leaves(self._frozen(like))).others()

    def _rest_updates(self, form: Chosen, updates: Updates) -> Updates:
        others = form.others()
        return others.whole(zeros_like(others.see(updates)), updates)


class Freeze(AbstractFreeze):
    """Keeps the selected leaves as they are and trains the others.

    The update of a frozen leaf is exactly 0, whatever its gradient is, and `step` returns the very
    same array of JAX (one of NumPy, or of a weak type, becomes a plain one of the same values, as
    trained leaves do): neither weight decay nor momentum of earlier steps can move it. The inner
    transformation sees `None` there, so it has no state for the leaf and a norm over the tree
    leaves it out.

    Stands outermost: a later member of a chain could still move a frozen leaf. The gradients of
    frozen leaves may then be `None`, which a wrapper around `Freeze` that remembers something of
    each leaf, such as `MultiSteps`, refuses. To freeze or unfreeze leaves in the midst of training
    see `extend_state`.

    - `inner`: the transformation of the others.
    - `where`: the leaves that are frozen.
    """

    inner: Inner
    where: Where

    def _frozen(self, like: PyTree) -> PyTree:
        return self.where(like)


class SelectiveTransform(AbstractFreeze):
    """`Freeze`, under optax's name: `selective_transform(optimizer, freeze_mask=...)`.

    - `inner`: the transformation of the leaves that are not frozen.
    - `freeze_where`: the leaves that are frozen.
    """

    inner: Inner
    freeze_where: Where

    def _frozen(self, like: PyTree) -> PyTree:
        return self.freeze_where(like)
