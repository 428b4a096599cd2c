"""The shape of the package: floors, classes, public names, documentation, and the files."""

import ast
import dataclasses
import importlib
import inspect
import io
import re
import tokenize
from pathlib import Path

import cases
import equinox as eqx
import pytest

import eqopt

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "eqopt"
FILES = sorted(PACKAGE.rglob("*.py"))

# A file imports only from lower floors; folders on one floor don't import each other.
FLOORS = {
    "_core": 0,
    "schedules": 2,
    "projections": 2,
    "select": 2,
    "_transforms": 2,
    "_wrappers": 3,
    "_linesearch": 3,
    "_optimizers": 4,
    "contrib": 5,
    "interop": 5,
    "_minimize.py": 5,
    "__init__.py": 6,
}
PUBLIC_MODULES = ["", "schedules", "projections", "select", "contrib", "interop"]
# Classes that others subclass although their names don't begin with `Abstract`.
BASES = {"Component", "AbstractConverter", "Schedule"}
BOUNDARY = ["init", "__call__", "update", "step", "eval_params", "__rshift__", "__rrshift__"]


# ---- the files as they are written


def _name(file):
    return str(file.relative_to(PACKAGE))


def _folder(file):
    return file.relative_to(PACKAGE).parts[0]


def _imports(tree):
    """Every import statement of a file, but for those that only type checkers see, with whether
    it stands inside a function."""

    def visit(node, inside):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, inside
        inside = inside or isinstance(node, ast.FunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return list(visit(tree, False))


def _targets(file, node):
    """The files and folders of eqopt that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names if alias.name.split(".")[0] == "eqopt"]
        return [PACKAGE.joinpath(*name.split(".")[1:]) for name in names]
    if node.level:
        base = file.parents[node.level - 1]
    elif node.module.split(".")[0] == "eqopt":
        base = ROOT
    else:
        return []
    base = base.joinpath(*(node.module or "").split("."))
    if base.with_suffix(".py").exists():
        return [base.with_suffix(".py")]
    found = [base / alias.name for alias in node.names]
    return [f.with_suffix(".py") if f.with_suffix(".py").exists() else f for f in found]


def _imported(file):
    """What of eqopt a file imports: pairs of a target and whether inside a function."""
    tree = ast.parse(file.read_text())
    return [(t, inside) for node, inside in _imports(tree) for t in _targets(file, node)]


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_imports_come_from_lower_floors(file):
    """A folder imports from lower floors and from itself alone."""
    assert _folder(file) in FLOORS, "give the new file or folder its floor"
    for target, _ in _imported(file):
        assert target.is_relative_to(PACKAGE) and target != PACKAGE
        there = _folder(target)
        same = there == _folder(file) != "__init__.py"
        assert same or FLOORS[there] < FLOORS[_folder(file)], f"{_name(file)} imports {there}"


def test_the_core_has_no_import_cycle():
    """At module level each file of `_core` imports files that don't lead back to it."""
    graph = {
        file: {target for target, inside in _imported(file) if not inside}
        for file in FILES
        if _folder(file) == "_core"
    }
    assert len(graph) > 10 and any(graph.values())
    while leaves := [file for file, targets in graph.items() if not targets & graph.keys()]:
        for file in leaves:
            del graph[file]
    assert not graph, f"a cycle among {sorted(map(_name, graph))}"


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_imports_inside_functions_say_why(file):
    """Only `_core` imports inside functions, or what is an extra is imported; a comment on the
    line says why."""
    lines = file.read_text().splitlines()
    for node, inside in _imports(ast.parse("\n".join(lines))):
        if inside:
            extra = isinstance(node, ast.ImportFrom) and node.module == "matplotlib"
            assert extra or _folder(file) == "_core"
            assert re.search(r"#\s*\w+ \w+", lines[node.end_lineno - 1]), "a comment must say why"


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_only_interop_imports_optax(file):
    """optax is the other side of `interop`, and of nothing else."""
    for node, _ in _imports(ast.parse(file.read_text())):
        named = [alias.name for alias in node.names]
        modules = named if isinstance(node, ast.Import) else [node.module or ""]
        if any(module.split(".")[0] == "optax" for module in modules):
            assert _folder(file) == "interop"


@pytest.mark.parametrize("file", [f for f in FILES if f.name == "__init__.py"], ids=_name)
def test_init_files_hold_re_exports_only(file):
    """A docstring, `from ... import X as X`, and in the root the version."""
    docstring, *statements = ast.parse(file.read_text()).body
    assert isinstance(docstring, ast.Expr) and isinstance(docstring.value.value, str)
    for statement in statements:
        if isinstance(statement, ast.Assign):
            assert [target.id for target in statement.targets] == ["__version__"]
            continue
        assert isinstance(statement, ast.ImportFrom), ast.unparse(statement)
        for alias in statement.names:
            private = (alias.asname or "").startswith("_")
            assert alias.asname == alias.name or private, ast.unparse(statement)


def _written_files():
    folders = [ROOT / name for name in ("eqopt", "tests", "examples", "benchmarks")]
    return [file for folder in folders for file in sorted(folder.rglob("*.py"))]


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_files_are_short(file):
    """No file of the package is over 350 lines."""
    assert len(file.read_text().splitlines()) <= 350


@pytest.mark.parametrize("file", _written_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_suppressions_carry_a_reason(file):
    """Each suppression of a linter or type checker names its rule and says why."""
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        if token.type != tokenize.COMMENT:
            continue
        if re.search(r"#\s*(noqa|type:\s*ignore|pyright:\s*ignore)", token.string):
            assert _suppression_is_explained(token.string), token.line


def _suppression_is_explained(comment):
    rule = r"(noqa: [A-Z]+\d+(, [A-Z]+\d+)*|(type|pyright): ?ignore\[[\w, -]+\])"
    return re.search(rule + r"\W+\w+ \w+", comment) is not None


def test_what_counts_as_a_reason():
    """The rule's name alone is no reason."""
    assert _suppression_is_explained("# noqa: E402 - flags come first")
    assert _suppression_is_explained("# pyright: ignore[reportCallIssue]  # known per instance")
    for bare in ("noqa", "noqa: E402", "type: ignore", "pyright: ignore[reportCallIssue]"):
        assert not _suppression_is_explained(f"# {bare}")


# ---- the classes


def _module(file):
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
    return importlib.import_module(name.removesuffix(".__init__"))


MODULES = [_module(file) for file in FILES]
CLASSES = [
    cls
    for module in MODULES
    for cls in vars(module).values()
    if isinstance(cls, type) and cls.__module__ == module.__name__
]


def _class_id(cls):
    return f"{cls.__module__.removeprefix('eqopt.')}.{cls.__name__}"


def _is_base(cls):
    return cls.__name__.startswith("Abstract") or cls.__name__ in BASES


@pytest.mark.parametrize("cls", CLASSES, ids=_class_id)
def test_classes_are_abstract_or_final(cls):
    """A class is abstract, by name and by what it leaves open, or no other class extends it."""
    if cls.__name__.startswith("Abstract"):
        assert inspect.isabstract(cls), "it leaves nothing to its subclasses"
        return
    assert not inspect.isabstract(cls), f"it leaves open {set(cls.__abstractmethods__)}"
    for base in cls.__mro__[1:]:
        if base.__module__.startswith("eqopt"):
            assert _is_base(base), f"it extends the concrete class {base.__name__}"


@pytest.mark.parametrize(
    "cls", [cls for cls in CLASSES if issubclass(cls, eqopt.AbstractTransform)], ids=_class_id
)
def test_nobody_overrides_the_boundary(cls):
    """The public methods are `AbstractTransform`'s in every class."""
    for name in BOUNDARY:
        owner = next(base for base in cls.__mro__ if name in vars(base))
        assert owner is eqopt.AbstractTransform, name


# ---- the public names


def _public_names():
    """Each public path with what it names."""
    found = {}
    for name in PUBLIC_MODULES:
        path = f"eqopt.{name}".rstrip(".")
        if path not in {module.__name__ for module in MODULES}:
            continue  # a package that is still to come
        for attribute, value in vars(importlib.import_module(path)).items():
            if not attribute.startswith("_") and not inspect.ismodule(value):
                found[f"{path}.{attribute}"] = value
    return found


PUBLIC = _public_names()
ALIASES = {"eqopt.OptState", "eqopt.Params", "eqopt.Updates"}
PUBLIC_CLASSES = {
    path: x for path, x in PUBLIC.items() if isinstance(x, type) and path not in ALIASES
}
PUBLIC_FUNCTIONS = {path: x for path, x in PUBLIC.items() if inspect.isfunction(x)}


def test_there_are_public_names():
    """What the other tests go through is there."""
    assert eqopt.Adam in CLASSES and eqopt.AbstractTransform in CLASSES
    assert {"eqopt.Adam", "eqopt.schedules.Linear", "eqopt.interop.to_optax"} <= PUBLIC.keys()
    assert PUBLIC_CLASSES and PUBLIC_FUNCTIONS


def test_each_public_thing_has_one_path():
    """No class or function has two public names, nor comes from another library."""
    paths = {}
    for path, thing in (PUBLIC_CLASSES | PUBLIC_FUNCTIONS).items():
        assert thing.__module__.startswith("eqopt"), path
        assert paths.setdefault(id(thing), path) == path
        assert path.endswith(f".{thing.__name__}"), f"{path} has another name where it is defined"


@pytest.mark.parametrize("cls", [c for c in CLASSES if not _is_base(c)], ids=_class_id)
def test_members_of_the_families_are_public(cls):
    """Every concrete transform, schedule and projection, and every state, has a public path."""
    families = (
        eqopt.AbstractTransform,
        eqopt.schedules.AbstractSchedule,
        eqopt.projections.AbstractProjection,
    )
    is_state = issubclass(cls, eqx.Module) and cls.__name__.endswith("State")
    if issubclass(cls, families) or is_state:
        assert any(cls is found for found in PUBLIC_CLASSES.values())


@pytest.mark.parametrize("path", PUBLIC_CLASSES)
def test_each_public_class_has_a_case(path):
    """`cases` lists every public transform, schedule and projection."""
    cls = PUBLIC_CLASSES[path]
    families = {
        eqopt.AbstractTransform: [case.optim for case in cases.TRANSFORMS.values()],
        eqopt.schedules.AbstractSchedule: [case.schedule for case in cases.SCHEDULES.values()],
        eqopt.projections.AbstractProjection: [
            case.projection for case in cases.PROJECTIONS.values()
        ],
    }
    for family, instances in families.items():
        if issubclass(cls, family) and not _is_base(cls):
            assert any(cls in _classes_of(instance) for instance in instances)


def _classes_of(instance):
    """The class of an instance, and of the members of a chain."""
    members = instance if isinstance(instance, eqopt.Chain) else ()
    return {type(instance), *map(type, members)}


# ---- documentation


def _documented(docstring):
    """The names that lines like "- `mu`, `nu`: ..." describe."""
    items = re.findall(r"^\s*- ((?:`\w+`(?:, )?)+):", docstring, flags=re.MULTILINE)
    return [name for item in items for name in re.findall(r"`(\w+)`", item)]


@pytest.mark.parametrize("path", PUBLIC_CLASSES)
def test_classes_document_each_field(path):
    """The class's docstring describes each field once, and no field that isn't there."""
    cls = PUBLIC_CLASSES[path]
    fields = [field.name for field in dataclasses.fields(cls)]
    documented = _documented(cls.__doc__ or "")
    abstract = getattr(cls, "__abstractvars__", frozenset())
    assert (cls.__doc__ or "").strip()
    assert sorted(documented) == sorted({*fields, *abstract})


@pytest.mark.parametrize("path", PUBLIC_CLASSES)
def test_public_methods_have_docstrings(path):
    """Each method that a user may call is described, where it is defined or above."""
    cls = PUBLIC_CLASSES[path]
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_") and method.__module__.startswith("eqopt"):
            assert inspect.getdoc(getattr(cls, name)), name


@pytest.mark.parametrize("path", PUBLIC_FUNCTIONS)
def test_functions_document_their_arguments(path):
    """A function's docstring names each of its arguments."""
    function = PUBLIC_FUNCTIONS[path]
    assert (function.__doc__ or "").strip()
    for name in inspect.signature(function).parameters:
        assert re.search(rf"\b{name}\b", function.__doc__), f"`{name}` is not mentioned"


def test_each_public_name_is_on_one_page():
    """`docs/api` documents each public name once, with a line `::: eqopt.X`, and no other."""
    lines = [
        line
        for page in sorted((ROOT / "docs" / "api").glob("*.md"))
        for line in re.findall(r"^::: (\S+)", page.read_text(), flags=re.MULTILINE)
    ]
    assert not [path for path in lines if lines.count(path) > 1], "on two pages"
    assert not PUBLIC.keys() - set(lines), "on no page"
    assert not set(lines) - PUBLIC.keys(), "not a public name"


# ---- the acceptance cases


def test_each_acceptance_case_has_a_test():
    """Each id in `case_ids.txt` has a function `test_case_<id>_...`."""
    written = (ROOT / "tests" / "case_ids.txt").read_text().splitlines()
    ids = [line for line in written if line and not line.startswith("#")]
    assert ids and len(ids) == len(set(ids))
    source = "\n".join(file.read_text() for file in sorted((ROOT / "tests").glob("test_*.py")))
    tested = set(re.findall(r"^def test_case_([A-Z]\d+)_\w+\(", source, flags=re.MULTILINE))
    assert not set(ids) - tested
