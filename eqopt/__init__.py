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
from ._core.extend import extend_state as extend_state
from ._core.from_optax import FromOptax as FromOptax
from ._core.norms import global_norm as global_norm
from ._core.optimizer import AbstractOptimizer as AbstractOptimizer
from ._core.project import Project as Project
from ._core.transform import AbstractTransform as AbstractTransform, State as State
from ._core.types import OptState as OptState, Params as Params, Updates as Updates
from ._optimizers.adam import Adam as Adam, AdamW as AdamW, NAdam as NAdam, NAdamW as NAdamW
from ._optimizers.sgd import SGD as SGD
from ._transforms.accumulation import (
    EMA as EMA,
    ApplyEvery as ApplyEvery,
    ApplyEveryState as ApplyEveryState,
    EMAState as EMAState,
)
from ._transforms.clipping import (
    AdaptiveGradClip as AdaptiveGradClip,
    Clip as Clip,
    ClipByBlockRMS as ClipByBlockRMS,
    ClipByGlobalNorm as ClipByGlobalNorm,
)
from ._transforms.factored import (
    ScaleByFactoredRMS as ScaleByFactoredRMS,
    ScaleByFactoredRMSState as ScaleByFactoredRMSState,
    ScaleBySM3 as ScaleBySM3,
    ScaleBySM3State as ScaleBySM3State,
)
from ._transforms.matrix import (
    Orthogonalize as Orthogonalize,
    ScaleByMuon as ScaleByMuon,
    ScaleByMuonState as ScaleByMuonState,
    ScaleByShape as ScaleByShape,
)
from ._transforms.moments import (
    ScaleByAdam as ScaleByAdam,
    ScaleByAdaMax as ScaleByAdaMax,
    ScaleByAdaMaxState as ScaleByAdaMaxState,
    ScaleByAdamState as ScaleByAdamState,
    ScaleByAMSGrad as ScaleByAMSGrad,
    ScaleByAMSGradState as ScaleByAMSGradState,
    ScaleByBelief as ScaleByBelief,
    ScaleByBeliefState as ScaleByBeliefState,
    ScaleByYogi as ScaleByYogi,
    ScaleByYogiState as ScaleByYogiState,
)
from ._transforms.momentum import (
    ScaleByAdan as ScaleByAdan,
    ScaleByAdanState as ScaleByAdanState,
    ScaleByNovoGrad as ScaleByNovoGrad,
    ScaleByNovoGradState as ScaleByNovoGradState,
    ScaleByOptimisticGradient as ScaleByOptimisticGradient,
    ScaleByOptimisticGradientState as ScaleByOptimisticGradientState,
    Trace as Trace,
    TraceState as TraceState,
)
from ._transforms.monitor import (
    Monitor as Monitor,
    MonitorState as MonitorState,
    Snapshot as Snapshot,
    SnapshotState as SnapshotState,
    ZeroNans as ZeroNans,
    ZeroNansState as ZeroNansState,
)
from ._transforms.noise import AddNoise as AddNoise, AddNoiseState as AddNoiseState
from ._transforms.norms import (
    Centralize as Centralize,
    NormalizeByGlobalNorm as NormalizeByGlobalNorm,
    ScaleByDistanceOverGradients as ScaleByDistanceOverGradients,
    ScaleByDistanceOverGradientsState as ScaleByDistanceOverGradientsState,
    ScaleByParamBlockNorm as ScaleByParamBlockNorm,
    ScaleByParamBlockRMS as ScaleByParamBlockRMS,
    ScaleByPolyak as ScaleByPolyak,
    ScaleByTrustRatio as ScaleByTrustRatio,
)
from ._transforms.per_example import (
    per_example_global_norm_clip as per_example_global_norm_clip,
    per_example_layer_norm_clip as per_example_layer_norm_clip,
)
from ._transforms.plateau import (
    ReduceOnPlateau as ReduceOnPlateau,
    ReduceOnPlateauState as ReduceOnPlateauState,
)
from ._transforms.rectified import (
    ScaleByRAdam as ScaleByRAdam,
    ScaleByRAdamState as ScaleByRAdamState,
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
from ._transforms.second_moment import (
    ScaleByAdaDelta as ScaleByAdaDelta,
    ScaleByAdaDeltaState as ScaleByAdaDeltaState,
    ScaleByRMS as ScaleByRMS,
    ScaleByRMSState as ScaleByRMSState,
    ScaleByRSS as ScaleByRSS,
    ScaleByRSSState as ScaleByRSSState,
    ScaleByStdDev as ScaleByStdDev,
    ScaleByStdDevState as ScaleByStdDevState,
)
from ._transforms.signs import (
    ScaleByLion as ScaleByLion,
    ScaleByLionState as ScaleByLionState,
    ScaleByRProp as ScaleByRProp,
    ScaleByRPropState as ScaleByRPropState,
)
from ._wrappers.averaging import (
    BestSoFar as BestSoFar,
    BestSoFarState as BestSoFarState,
    EMAParams as EMAParams,
    EMAParamsState as EMAParamsState,
    PolyakAverage as PolyakAverage,
    PolyakAverageState as PolyakAverageState,
)
from ._wrappers.complex import (
    SplitRealAndImaginary as SplitRealAndImaginary,
    SplitRealAndImaginaryState as SplitRealAndImaginaryState,
)
from ._wrappers.conditional import (
    ConditionallyMask as ConditionallyMask,
    ConditionallyMaskState as ConditionallyMaskState,
    ConditionallyTransform as ConditionallyTransform,
    ConditionallyTransformState as ConditionallyTransformState,
    Every as Every,
    EveryState as EveryState,
)
from ._wrappers.flatten import Flatten as Flatten, FlattenState as FlattenState
from ._wrappers.lookahead import Lookahead as Lookahead, LookaheadState as LookaheadState
from ._wrappers.masked import (
    Freeze as Freeze,
    FreezeState as FreezeState,
    Masked as Masked,
    MaskedState as MaskedState,
    SelectiveTransform as SelectiveTransform,
)
from ._wrappers.multi_steps import (
    MultiSteps as MultiSteps,
    MultiStepsState as MultiStepsState,
)
from ._wrappers.partition import Partition as Partition, PartitionState as PartitionState
from ._wrappers.skipping import (
    ApplyIfFinite as ApplyIfFinite,
    ApplyIfFiniteState as ApplyIfFiniteState,
    SkipIf as SkipIf,
    SkipLargeUpdates as SkipLargeUpdates,
    SkipLossSpikes as SkipLossSpikes,
    SkipLossSpikesState as SkipLossSpikesState,
    SkipNotFinite as SkipNotFinite,
    SkipState as SkipState,
)
from .projections._bounds import KeepParamsNonNegative as KeepParamsNonNegative

__version__ = _version("eqopt")
