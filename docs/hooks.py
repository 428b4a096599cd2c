"""Hooks of MkDocs: the doctests in docstrings are shown as code."""

from typing import Any

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor


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
