"""Every example in the documentation runs, and prints what it says; every name in it exists."""

import ast
import contextlib
import doctest
import importlib
import io
import re
from collections import Counter, defaultdict
from pathlib import Path
from types import ModuleType

import optax
import pytest

import eqopt
from eqopt import interop

ROOT = Path(__file__).parents[1]
PACKAGE = Path(eqopt.__file__).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted(
    ".".join(("eqopt", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
)


def relative(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    """The Python blocks of a page, each at its own line, so that errors point to it."""
    text = page.read_text()
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text[: match.start(1)].count("\n")
        yield line, match[1]


def promised(block):
    """What a block says it prints: `# prints: ...`, or the comment lines after `# prints:`."""
    lines, inside = [], False
    for line in block.splitlines():
        if line.startswith("# prints:"):
            inside = True
            lines += [line.removeprefix("# prints:").strip()] if line != "# prints:" else []
        elif inside and line.startswith("#"):
            lines.append(line.removeprefix("#").removeprefix(" ").rstrip())
        else:
            inside = False
    return lines


def run_page(page):
    namespace = {"__name__": "page"}
    for line, block in blocks(page):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile("\n" * line + block, str(page), "exec"), namespace)
        printed = [printed.rstrip() for printed in output.getvalue().splitlines()]
        assert printed == promised(block), f"{relative(page)}, block at line {line}"


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page))], ids=relative)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)
    assert not list(tmp_path.iterdir())


def test_wrong_output_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n# prints: 3\n```\n")
    with pytest.raises(AssertionError), pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.ROOT", tmp_path)
        run_page(page)


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0


def anchors(text):
    """The anchors of the headings in a Markdown text, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_internal_links(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked.read_text()), target


def names_of(module):
    """What a package exports: the `X as X` of its imports that are no packages themselves."""
    tree = ast.parse(Path(module.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imports for alias in node.names if alias.name == alias.asname]
    return [name for name in names if not isinstance(getattr(module, name), ModuleType)]


PUBLIC = sorted(
    [f"eqopt.{name}" for name in names_of(eqopt)]
    + [
        f"{module.__name__}.{name}"
        for module in (eqopt.schedules, eqopt.projections, eqopt.select, interop)
        for name in names_of(module)
    ]
)


def test_reference_has_each_public_name_once():
    pages = [page.read_text() for page in (ROOT / "docs" / "api").glob("*.md")]
    listed = Counter(re.findall(r"^::: (\S+)$", "\n".join(pages), re.MULTILINE))
    assert sorted(listed.elements()) == PUBLIC


def code(text):
    return re.findall(r"`([^`]+)`", text)


def resolve(base, name):
    for part in name.split("."):
        base = getattr(base, part)
    return base


def rows(text):
    """The cells of the tables of a text, without their heads."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        for row in table.splitlines()[2:]:
            yield re.split(r"(?<!\\)\|", row.strip("|"))


def test_names_in_the_optax_table_exist():
    seen = set()
    for theirs, ours in rows((ROOT / "docs" / "optax.md").read_text()):
        for name in code(theirs):
            resolve(optax, name)
            assert name not in seen, name
            seen.add(name)
        for name in re.findall(r"\b(?:\w+\.)*[A-Z]\w*", " ".join(code(ours))):
            if name not in ("None", "StateClass"):
                resolve(eqopt, name)
    assert {"adam", "scale_by_adam", "linear_schedule", "apply_updates"} <= seen


def test_readme_lists_what_exists():
    table = (ROOT / "README.md").read_text().partition("What exists now")[2]
    listed = defaultdict(list)
    for cells in rows(table):
        listed[cells[0].partition(":")[0].strip()] += code(cells[1])
    kinds = {
        "optimizers": (eqopt, eqopt.AbstractOptimizer),
        "transforms": (eqopt, eqopt.AbstractTransform),
        "schedules": (eqopt.schedules, eqopt.schedules.AbstractSchedule),
        "projections": (eqopt.projections, eqopt.projections.AbstractProjection),
        "selectors": (eqopt.select, eqopt.select.AbstractSelector),
    }
    composed = {"Chain", "Sequential", "Sum", "Product", "FromOptax"}  # what operators build
    for kind, (module, base) in kinds.items():
        classes = {
            name
            for name in names_of(module)
            if isinstance(found := getattr(module, name), type) and issubclass(found, base)
        }
        if kind == "transforms":
            classes -= set(listed["optimizers"])
        classes = {name for name in classes if not name.startswith("Abstract")} - composed
        assert {name for name in listed[kind] if name.isidentifier()} == classes, kind
