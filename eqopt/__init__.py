"""eqopt: optimizers for JAX and Equinox, as immutable modules composed with `>>`."""

from importlib.metadata import version as _version

from . import projections as projections, schedules as schedules, select as select
from ._core.access import (
    dynamic as dynamic,
    find as find,
    find_all as find_all,
    hyperparameters as hyperparameters,
    replace as replace,
)
from ._core.apply import (
    apply_updates as apply_updates,
    incremental_update as incremental_update,
    periodic_update as periodic_update,
)
from ._core.chain import Chain as Chain
from ._core.from_optax import FromOptax as FromOptax
from ._core.norms import global_norm as global_norm
from ._core.optimizer import AbstractOptimizer as AbstractOptimizer
from ._core.project import Project as Project
from ._core.transform import AbstractTransform as AbstractTransform, State as State
from ._core.types import OptState as OptState, Params as Params, Updates as Updates
from ._optimizers.adam import Adam as Adam, AdamW as AdamW, NAdam as NAdam, NAdamW as NAdamW
from ._optimizers.sgd import SGD as SGD
from ._transforms.clipping import (
    AdaptiveGradClip as AdaptiveGradClip,
    Clip as Clip,
    ClipByGlobalNorm as ClipByGlobalNorm,
)
from ._transforms.matrix import (
    Orthogonalize as Orthogonalize,
    ScaleByMuon as ScaleByMuon,
    ScaleByMuonState as ScaleByMuonState,
    ScaleByShape as ScaleByShape,
)
from ._transforms.moments import (
    ScaleByAdam as ScaleByAdam,
    ScaleByAdamState as ScaleByAdamState,
)
from ._transforms.momentum import Trace as Trace, TraceState as TraceState
from ._transforms.norms import (
    Centralize as Centralize,
    NormalizeByGlobalNorm as NormalizeByGlobalNorm,
)
from ._transforms.regularization import AddDecayedWeights as AddDecayedWeights
from ._transforms.scaling import (
    Identity as Identity,
    Scale as Scale,
    ScaleByLearningRate as ScaleByLearningRate,
    ScaleBySign as ScaleBySign,
    SetToZero as SetToZero,
    Stateless as Stateless,
)

__version__ = _version("eqopt")
