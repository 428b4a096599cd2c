"""Every public transform, wrapper, optimizer, schedule and projection, once.

The contract tests (`test_contract_*.py`) run each entry through the contracts, so adding a class
here tests it fully. Numbers are chosen so that each of them matters within a few steps.
"""

import eqopt

from .averaging import AVERAGING
from .choosing import CHOOSING
from .kinds import Projection, Schedule, Transform
from .optimizers import OPTIMIZERS
from .primitives import PRIMITIVES
from .projections import FREE_PROJECTIONS, PROJECTIONS
from .schedules import SCHEDULES
from .wrappers import WRAPPERS

__all__ = [
    "FREE_PROJECTIONS",
    "PROJECTIONS",
    "REPORTED",
    "SCHEDULES",
    "TRANSFORMS",
    "Projection",
    "Schedule",
    "Transform",
]

TRANSFORMS: dict[str, Transform] = PRIMITIVES | WRAPPERS | AVERAGING | CHOOSING | OPTIMIZERS

# Reported cases are about optimizers: these stand for all transforms, which the contracts run.
REPORTED = {
    name: case
    for name, case in TRANSFORMS.items()
    if isinstance(case.optim, eqopt.AbstractOptimizer)
    or name in CHOOSING
    or name
    in {"Chain", "Project", "FromOptax", "ScaleByBelief", "ScaleBySM3", "ScaleByMuon", "Lookahead"}
}
