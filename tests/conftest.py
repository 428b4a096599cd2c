"""The whole suite runs with run-time type checks and on 8 simulated devices."""

import importlib
import os
import pkgutil

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 " + os.environ.get(
    "XLA_FLAGS", ""
)

from jaxtyping import install_import_hook

with install_import_hook("eqopt", "beartype.beartype"):
    import eqopt

    for module in pkgutil.walk_packages(eqopt.__path__, "eqopt."):
        importlib.import_module(module.name)

import cases
import jax
import pytest

# Of the table, `make quick` runs these entries; the full suite runs all.
QUICK = {"ScaleBySign", "SGD[momentum]", "Adam[schedule]", "AdamW[matrices]", "Project"}


def pytest_collection_modifyitems(items):
    """Marks as slow what the tests over the table do with the other entries."""
    others = set(cases.TRANSFORMS) - QUICK
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and not others.isdisjoint(callspec.id.split("-")):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def x64():
    """Float64 for one test."""
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", False)
