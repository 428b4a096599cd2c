"""Every public primitive and wrapper of optax has its counterpart in the table of
`docs/optax.md`."""

import inspect
from types import ModuleType

import optax
import pytest
from test_docs import ROOT, code, rows

# Where optax defines its primitives, its wrappers, and what they are made of.
MODULES = {
    "optax._src.base",
    "optax._src.factorized",
    "optax._src.lookahead",
    "optax._src.transform",
    "optax._src.update",
    "optax.schedules._inject",
    "optax.transforms._accumulation",
    "optax.transforms._adding",
    "optax.transforms._clipping",
    "optax.transforms._combining",
    "optax.transforms._conditionality",
    "optax.transforms._constraining",
    "optax.transforms._freezing",
    "optax.transforms._layouts",
    "optax.transforms._masking",
    "optax.transforms._monitoring",
}

# Names without a counterpart, each with the reason.
TYPE = "the type of a function, in optax's protocol of closures"
LBFGS = "L-BFGS, not a primitive"
WITHOUT = {
    "TransformInitFn": TYPE,
    "TransformUpdateFn": TYPE,
    "TransformUpdateExtraArgsFn": TYPE,
    "transforms.ConditionFn": TYPE,
    "scale_by_lbfgs": LBFGS,
    "ScaleByLBFGSState": LBFGS,
}


def public(module, prefix=""):
    """The public names of a module, each with where it is defined."""
    found = {}
    for name, value in vars(module).items():
        if not name.startswith("_") and not isinstance(value, ModuleType):
            found[prefix + name] = getattr(inspect.unwrap(value), "__module__", "")
    return found


def of_optax():
    """The names of the primitives and wrappers; those of `optax.transforms` that `optax` has too
    count once."""
    names = public(optax)
    names |= {
        f"transforms.{name}": where
        for name, where in public(optax.transforms).items()
        if name not in names
    }
    return sorted(name for name, where in names.items() if where in MODULES)


LISTED = {
    name for theirs, _ in rows((ROOT / "docs" / "optax.md").read_text()) for name in code(theirs)
}


def test_the_primitives_are_found():
    """Names from each of the modules are among them."""
    found = set(of_optax())
    assert {"scale_by_adam", "scale_by_factored_rms", "clip", "ema", "monitor"} <= found
    assert {"lookahead", "apply_if_finite", "masked", "partition", "freeze"} <= found
    assert {"add_noise", "keep_params_nonnegative", "apply_updates", "stateless"} <= found
    assert len(found) > 80


@pytest.mark.parametrize("name", of_optax())
def test_counterpart(name):
    """It stands in the table, or the reason why not stands here."""
    assert (name in LISTED) != (name in WITHOUT)


def test_reasons_are_of_this_optax():
    """A name that optax no longer has needs no reason."""
    assert WITHOUT.keys() <= set(of_optax())


@pytest.mark.parametrize("name", ["scale_by_muon", "reduce_on_plateau"])
def test_primitives_of_contrib(name):
    """Primitives that live with optax's contributions."""
    assert hasattr(optax.contrib, name) and f"contrib.{name}" in LISTED
