"""Hooks of MkDocs: the doctests in docstrings are shown as code, schedules with their curves."""

import re
from doctest import DocTestParser
from typing import Any

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

from eqopt import schedules


class _FenceDoctests(Preprocessor):
    """Puts a fence around each run of lines from `>>>` to the next blank line."""

    def run(self, lines: list[str]) -> list[str]:
        fenced: list[str] = []
        inside = False
        for line in [*lines, ""]:
            if not inside and line.startswith(">>> "):
                fenced += ["", "```pycon"]
                inside = True
            elif inside and not line.strip():
                fenced.append("```")
                inside = False
            fenced.append(line)
        return fenced


class _Doctests(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        # After whitespace is normalised (30), before fences are looked for (25).
        md.preprocessors.register(_FenceDoctests(md), "fence_doctests", 28)


def on_config(config: Any) -> Any:
    config.markdown_extensions.append(_Doctests())
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    return re.sub(r"^::: eqopt\.schedules\.(\w+)$", _with_curve, markdown, flags=re.MULTILINE)


def _with_curve(reference: re.Match[str]) -> str:
    """A reference to a class of schedules, with the curve of its first example below."""
    found: dict[str, Any] = {}
    for example in DocTestParser().get_examples(getattr(schedules, reference[1]).__doc__ or ""):
        exec(compile(example.source, reference[0], "exec"), found)
    picture = found["schedule"]._repr_html_() if "schedule" in found else None
    return f"{reference[0]}\n\n{picture}" if picture else reference[0]
