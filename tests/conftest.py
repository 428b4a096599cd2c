"""The whole suite runs with run-time type checks and on 8 simulated devices."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 " + os.environ.get(
    "XLA_FLAGS", ""
)

from jaxtyping import install_import_hook

with install_import_hook("eqopt", "beartype.beartype"):
    import eqopt  # noqa: F401 - imported here so that the hook sees it

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
