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

import jax
import pytest


@pytest.fixture
def x64():
    """Float64 for one test."""
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", False)
