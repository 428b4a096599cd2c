"""Every public primitive of optax has its counterpart in the table of `docs/optax.md`."""

import inspect
from types import ModuleType

import optax
import pytest
from test_docs import ROOT, code, rows

# Where optax defines its primitives and what they are made of.
PRIMITIVES = {
    "optax._src.base",
    "optax._src.factorized",
    "optax._src.transform",
    "optax._src.update",
    "optax.transforms._accumulation",
    "optax.transforms._adding",
    "optax.transforms._clipping",
    "optax.transforms._constraining",
    "optax.transforms._monitoring",
}

# Names without a counterpart, each with the reason.
TYPE = "the type of a function, in optax's protocol of closures"
LBFGS = "L-BFGS, not a primitive"
WRAPPER = "a wrapper, not a primitive"
WITHOUT = {
    "TransformInitFn": TYPE,
    "TransformUpdateFn": TYPE,
    "TransformUpdateExtraArgsFn": TYPE,
    "ShouldSkipUpdateFunction": TYPE,
    "scale_by_lbfgs": LBFGS,
    "ScaleByLBFGSState": LBFGS,
    "MultiSteps": WRAPPER,
    "MultiStepsState": WRAPPER,
    "skip_large_updates": WRAPPER,
    "skip_not_finite": WRAPPER,
}


def public(module, prefix=""):
    """The public names of a module, each with where it is defined."""
    found = {}
    for name, value in vars(module).items():
        if not name.startswith("_") and not isinstance(value, ModuleType):
            found[prefix + name] = getattr(inspect.unwrap(value), "__module__", "")
    return found


def primitives():
    """The names of optax's primitives; those of `optax.transforms` that `optax` has count once."""
    names = public(optax)
    names |= {
        f"transforms.{name}": where
        for name, where in public(optax.transforms).items()
        if name not in names
    }
    return sorted(name for name, where in names.items() if where in PRIMITIVES)


LISTED = {
    name for theirs, _ in rows((ROOT / "docs" / "optax.md").read_text()) for name in code(theirs)
}


def test_the_primitives_are_found():
    """Names from each of the modules are among them."""
    found = set(primitives())
    assert {"scale_by_adam", "scale_by_factored_rms", "clip", "ema", "monitor"} <= found
    assert {"add_noise", "keep_params_nonnegative", "apply_updates", "stateless"} <= found
    assert len(found) > 80


@pytest.mark.parametrize("name", primitives())
def test_counterpart(name):
    """It stands in the table, or the reason why not stands here."""
    assert (name in LISTED) != (name in WITHOUT)


def test_reasons_are_of_this_optax():
    """A name that optax no longer has needs no reason."""
    assert WITHOUT.keys() <= set(primitives())


@pytest.mark.parametrize("name", ["scale_by_muon", "reduce_on_plateau"])
def test_primitives_of_contrib(name):
    """Primitives that live with optax's contributions."""
    assert hasattr(optax.contrib, name) and f"contrib.{name}" in LISTED
