"""The whole suite runs with run-time type checks and on 8 simulated devices."""

import gc
import importlib
import importlib.metadata
import itertools
import os
import pkgutil
from collections import Counter
from pathlib import Path

FLAGS = "--xla_force_host_platform_device_count=8 "
if importlib.metadata.version("jaxlib").startswith("0.10."):
    # Compiles in a third of the time, to slower code. Later releases have no such flag, and are
    # tested with the code that users run.
    FLAGS += "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 "
os.environ["XLA_FLAGS"] = FLAGS + os.environ.get("XLA_FLAGS", "")

from jaxtyping import install_import_hook

with install_import_hook("eqopt", "beartype.beartype"):
    import eqopt

    for module in pkgutil.walk_packages(eqopt.__path__, "eqopt."):
        importlib.import_module(module.name)

import cases
import jax
import pytest

# `make quick` runs each test with these entries of the table of transforms, and with at most so
# many of any other parameters; the full suite runs all.
QUICK = {"ScaleBySign", "Adam[schedule]", "AdamW[matrices]"}
MOST = 1


# What the structure of a class decides is run for one entry of each primitive; what its numbers
# and flags decide, for all.
STRUCTURE = {
    "test_contract_abstract.py",
    "test_contract_devices.py",
    "test_contract_donation.py",
    "test_contract_roundtrip.py",
    "test_contract_trees.py",
    "test_contract_types.py",
    "test_contract_vmap.py",
    "test_constants_agree",
    "test_filter_jit_agrees",
    "test_numbers_agree_however_given",
    "test_a_step_from_zero_stays_there",
}
VARIANTS = {
    name
    for name, case in cases.TRANSFORMS.items()
    if name.endswith("]")
    and name.partition("[")[0] in cases.TRANSFORMS
    and not isinstance(case.optim, eqopt.AbstractOptimizer)
}


def pytest_collection_modifyitems(config, items):
    """Leaves out what is run for another entry, and marks as slow what `make quick` leaves out."""
    repeated = [
        item
        for item in items
        if hasattr(item, "callspec")
        and not STRUCTURE.isdisjoint({item.path.name, item.originalname})
        and not VARIANTS.isdisjoint(item.callspec.id.split("-"))
    ]
    config.hook.pytest_deselected(items=repeated)
    left_out = set(repeated)
    items[:] = [item for item in items if item not in left_out]
    others = set(cases.TRANSFORMS) - QUICK
    seen = Counter()
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or item.get_closest_marker("slow"):
            continue
        names = set(callspec.id.split("-"))
        if names & QUICK:
            continue
        function = item.nodeid.split("[")[0]
        seen[function] += names.isdisjoint(others)
        if not names.isdisjoint(others) or seen[function] > MOST:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """What was imported and collected stays, so the garbage collector need not look at it again:
    with tracing, which makes many objects, that took a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


# What is compiled stays mapped into memory, and Linux lets a process have 65,530 maps: beyond
# that compiling aborts it. Looked at after so many tests.
MAPS = Path("/proc/self/maps")
MOST_MAPS = 40_000
BETWEEN = 25
ran = itertools.count(1)


def pytest_runtest_logfinish():
    """Lets go of what was compiled before there is too much of it."""
    if next(ran) % BETWEEN == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def x64():
    """Float64 for one test."""
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", False)
