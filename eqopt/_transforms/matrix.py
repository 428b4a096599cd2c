"""Rescaling whole matrices: orthogonalisation and its momentum (Muon), and factors of shape."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import equinox as eqx
import jax
from jaxtyping import Array, Int

from .._core.arithmetic import debias, ema, increment
from .._core.axes import Axes, AxesRules, leaf_axes
from .._core.elementwise import AbstractStateless
from .._core.hyperparam import Decay, FloatDtype, NonNegative, Rows
from .._core.leafwise import Stage, leafwise
from .._core.leaves import widen, zeros_like
from .._core.matrices import check_matrices, sizes
from .._core.selector import Where, chosen, split
from .._core.transform import AbstractTransform
from .._core.types import Count, Leaf, Params, Updates
from .orthogonal import DION, PRECONDITIONINGS, STANDARD, orthogonalized

Coefficients: TypeAlias = Annotated[
    Sequence[Any] | str | Array, Rows(3, (("standard", STANDARD), ("dion", DION)))
]
Preconditioning: TypeAlias = Literal["frobenius", "spectral", "aol", "schatten"]


class AbstractOrthogonalization(AbstractTransform):
    """What `Orthogonalize` and `ScaleByMuon` share: their checks, and which leaves they take."""

    ns_coeffs: eqx.AbstractVar[Coefficients | None]
    ns_steps: eqx.AbstractVar[int]
    eps: eqx.AbstractVar[NonNegative]
    preconditioning: eqx.AbstractVar[Preconditioning]
    where: eqx.AbstractVar[Where | None]
    rules: eqx.AbstractVar[AxesRules]

    def __check_init__(self) -> None:
        name, rows = type(self).__name__, self.ns_coeffs
        if isinstance(self.ns_steps, bool) or not isinstance(self.ns_steps, int):
            raise TypeError(f"`{name}(ns_steps=...)` must be an integer; got {self.ns_steps!r}.")
        if self.ns_steps < 1:
            raise ValueError(f"`{name}(ns_steps=...)` must be positive; got {self.ns_steps}.")
        if rows is not None and len(rows) not in (1, self.ns_steps):
            raise ValueError(
                f"`{name}(ns_coeffs=...)` must be one row for all steps or one for each, "
                f"`ns_steps={self.ns_steps}`; got {len(rows)} rows."
            )
        if self.preconditioning not in PRECONDITIONINGS:
            raise ValueError(
                f"`{name}(preconditioning=...)` must be one of "
                f"{', '.join(map(repr, PRECONDITIONINGS))}; got {self.preconditioning!r}."
            )

    def _matrices(self, updates: Updates, params: Params) -> tuple[Updates, Updates, list[Axes]]:
        """The selected leaves, the others, and the axes of the selected ones."""
        like = updates if params is None else params
        picked, rest = split(self.where, like, updates)
        found = leaf_axes(self.rules, like, picked)
        check_matrices(type(self).__name__, picked, found)
        return picked, rest, found

    def _orthogonal(self, tree: Updates, found: list[Axes], adaptive: bool = False) -> Updates:
        leaves, treedef = jax.tree.flatten(tree)
        done = orthogonalized(
            leaves,
            self.ns_coeffs,
            self.eps,
            axes=tuple(found),
            steps=self.ns_steps,
            preconditioning=self.preconditioning,
            adaptive=adaptive,
        )
        return jax.tree.unflatten(treedef, done)


class Orthogonalize(AbstractOrthogonalization):
    r"""Replaces each matrix by (nearly) its orthogonal factor: $U V^H$ for $g = U \Sigma V^H$.

    By the Newton-Schulz iteration, from $X = g / (\lVert g \rVert + \epsilon)$,

    $$A = X X^H, \quad X \leftarrow a\, X + (b\, A + c\, A^2)\, X$$

    (Jordan et al. 2024; Bernstein and Newhouse 2024), which moves the singular values towards 1.
    The `"standard"` coefficients trade that limit for speed: after 5 steps the singular values
    are between about 0.7 and 1.2. `(2, -1.5, 0.5)` converges. With `ns_coeffs=None` the factor is
    exact, by the singular value decomposition: $U\, \mathrm{diag}(\sigma / (\sigma + \epsilon))\,
    V^H$. A zero matrix stays zero.

    Matrices of equal shape are stacked and iterated together, tall ones transposed, in at least
    float32. A convolution's kernel (O, I, ...) is the matrix (O, I * ...); stacked layers are
    matrices each by itself. Which axes are which `eqopt.select.axes` says, and
    `eqopt.select.describe_axes` prints it.

    - `ns_coeffs`: rows $(a, b, c)$: one for all steps, or one for each; `"standard"`, `"dion"`
      (Ahn et al. 2025, 5 steps), or `None` for the exact factor. An array is taken apart into
      numbers; numbers are traced, and may be swept and scheduled.
    - `ns_steps`: how many steps, positive; static. Unlike in optax a number of rows that is
      neither 1 nor this is an error.
    - `eps`: $\epsilon$, at least 0; added to the norm, whatever the preconditioning. (In optax
      `"aol"` and `"schatten"` know only 1e-8, as the least square of a norm.)
    - `preconditioning`: the norm that is divided by at the start: `"frobenius"`; `"spectral"`, by
      singular values, which takes longest; `"aol"`, which divides the rows one by one by
      $(\sum_j |A_{ij}|)^{1/2}$ (Boissin et al. 2025); `"schatten"`, the Schatten 4-norm
      $\lVert A \rVert^{1/2}$ (Grishina et al. 2025); static.
    - `where`: the leaves that are orthogonalised, all if `None`; the others stay as they are.
    - `rules`: explicit axes of leaves, as `eqopt.select.axes` takes them; static.

    **Raises** `ValueError`, at `init` too, for a leaf that is no matrix, and says what to write.
    """

    ns_coeffs: Coefficients | None = STANDARD
    ns_steps: int = eqx.field(default=5, static=True)
    eps: NonNegative = 1e-8
    preconditioning: Preconditioning = eqx.field(default="frobenius", static=True)
    where: Where | None = eqx.field(default=None, kw_only=True)
    rules: AxesRules = eqx.field(default=(), static=True, kw_only=True)

    def _init(self, params: Params) -> None:
        self._matrices(params, params)

    def _update(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> tuple[Updates, None]:
        picked, rest, found = self._matrices(updates, params)
        return eqx.combine(self._orthogonal(picked, found), rest), None


class ScaleByMuonState(eqx.Module):
    """- `mu`: running mean of $g$, like the selected parameters, not bias-corrected."""

    mu: Updates


class ScaleByMuon(AbstractOrthogonalization):
    r"""Muon: momentum, orthogonalised (Jordan et al. 2024).

    $$\mu \leftarrow \beta \mu + (1 - \beta)\, g, \quad m = \mu / (1 - \beta^t), \quad
    u = \mathrm{orthogonal}(m)$$

    by the iteration of `Orthogonalize`. With `nesterov` the momentum looks one step ahead,
    $m = \beta \mu / (1 - \beta^{t+1}) + (1 - \beta)\, g / (1 - \beta^t)$. The mean and its bias
    correction are optax's; the paper's sum $\mu \leftarrow \beta \mu + g$ without a correction
    differs by a factor, which the orthogonalisation takes out, but for the weight of $g$ in the
    look-ahead during the first steps. With `adaptive` each factor is multiplied by the inner
    product of $m$ and $u$, which is the nuclear norm of $m$ (Bernstein and Newhouse 2024), matrix
    by matrix, where optax takes the sum over stacked ones.

    Only for matrices: biases and norms, and by convention embeddings and heads, are left to
    another method, outside of `where`. `ScaleByShape` follows.

    - `ns_coeffs`: see `Orthogonalize`; not part of the state, as they are in optax.
    - `ns_steps`: how many steps, positive; static.
    - `decay`: $\beta$, in [0, 1); optax's `beta`.
    - `eps`: added to the norm that is divided by, at least 0.
    - `mu_dtype`: dtype of `mu`, the parameter's if `None`; static.
    - `nesterov`: static.
    - `adaptive`: static.
    - `preconditioning`: see `Orthogonalize`; static.
    - `where`: the leaves that this applies to, all if `None`; the others stay as they are.
    - `rules`: explicit axes of leaves, as `eqopt.select.axes` takes them; static.

    **Raises** `ValueError`, at `init` too, for a leaf that is no matrix, and says what to write.
    """

    ns_coeffs: Coefficients | None = STANDARD
    ns_steps: int = eqx.field(default=5, static=True)
    decay: Decay = 0.95
    eps: NonNegative = 1e-8
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True)
    nesterov: bool = eqx.field(default=True, static=True, kw_only=True)
    adaptive: bool = eqx.field(default=False, static=True, kw_only=True)
    preconditioning: Preconditioning = eqx.field(default="frobenius", static=True, kw_only=True)
    where: Where | None = eqx.field(default=None, kw_only=True)
    rules: AxesRules = eqx.field(default=(), static=True, kw_only=True)

    def _init(self, params: Params) -> ScaleByMuonState:
        picked, _, _ = self._matrices(params, params)
        return ScaleByMuonState(zeros_like(picked, self.mu_dtype))

    def _update(
        self,
        updates: Updates,
        state: ScaleByMuonState,
        params: Params,
        count: Count,
        **extras: Any,
    ) -> tuple[Updates, ScaleByMuonState]:
        picked, rest, found = self._matrices(updates, params)
        exact = jax.tree.map(widen, picked)  # so that the momentum is not rounded on its way
        momentum, mu = leafwise(self._momentum, increment(count))(exact, state.mu)
        done = self._orthogonal(momentum, found, self.adaptive)
        done = jax.tree.map(lambda o, g: o.astype(g.dtype), done, picked)
        return eqx.combine(done, rest), ScaleByMuonState(mu)

    def _momentum(self, t: Int[Array, ""], g: Leaf, mu: Leaf) -> tuple[Leaf, Leaf]:
        mu = ema(mu, g, self.decay)
        if not self.nesterov:
            return debias(mu, self.decay, t), mu
        ahead = debias(mu, self.decay, increment(t))
        return ema(ahead, debias(g, self.decay, t), self.decay), mu


class ScaleByShape(AbstractStateless):
    r"""Scales each matrix by a factor of its shape: $\sqrt{\max(1, n_{out} / n_{in})}$ (Jordan et
    al. 2024), or $r \sqrt{\max(n_{in}, n_{out})}$, after which an orthogonal update has elements
    of root mean square $r$ in every matrix (Liu et al. 2025, lemma 1).

    The sizes follow the layer, not the order of the axes: for Equinox's `Linear` (out, in) and
    `Conv` (O, I, ...), where $n_{in}$ counts the kernel's elements too. optax's `scale_by_shape`
    takes (in, out) unless told otherwise.

    - `consistent_rms`: $r$, at least 0; 0.2 is AdamW's, as a rule. The first form if `None`.
    - `where`: the leaves that are scaled, all if `None`; the others stay as they are.
    - `rules`: explicit axes of leaves, as `eqopt.select.axes` takes them; static.

    **Raises** `ValueError`, at `init` too, for a leaf that is no matrix, and says what to write.
    """

    consistent_rms: NonNegative | None = None
    where: Where | None = eqx.field(default=None, kw_only=True)
    rules: AxesRules = eqx.field(default=(), static=True, kw_only=True)

    def _init(self, params: Params) -> None:
        self._shapes(params, params)

    def _shapes(
        self, updates: Updates, like: Params
    ) -> tuple[list[bool] | None, list[tuple[int, int]]]:
        """Which leaves are scaled, and n_out and n_in of each."""
        where = None if self.where is None else chosen(self.where, like, updates)
        picked, _ = split(self.where, like, updates)
        check_matrices(type(self).__name__, picked, leaf_axes(self.rules, like, picked))
        found = leaf_axes(self.rules, like, updates)
        leaves = jax.tree.leaves(updates)
        return where, [sizes(x.shape, a)[1:] for x, a in zip(leaves, found, strict=True)]

    def _stage(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> Stage:
        where, each = self._shapes(updates, updates if params is None else params)
        return Stage(self._rule, where=where, each=each)

    def _rule(self, shape: tuple[int, int], g: Leaf) -> Leaf:
        n_out, n_in = shape
        if self.consistent_rms is None:
            return g * max(1.0, n_out / max(n_in, 1)) ** 0.5
        return g * self.consistent_rms * max(n_out, n_in) ** 0.5
