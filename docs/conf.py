"""The documentation site: ``nox -s docs`` builds it into build/site."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import typer

from training import cli
from training.commands import explore

project = "wefpe"
author = "The wefpe developers"
release = version = installed_version("wefpe")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",  # formulas without a request to another site
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
# Only these are pages. The other files in these folders are parts that pages show between markers.
exclude_patterns = ["results/[!Rp]*", "results/paper.md", "results/*/**"]

myst_enable_extensions = ["attrs_inline", "dollarmath"]
myst_heading_anchors = 4  # links to headings work as they do in the repository

default_role = "py:obj"  # names between backquotes lead to their description
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature has them
numpydoc_show_class_members = False
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"wefpe {release}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
highlight_language = "text"  # of what names no language: formulas and commands


def _help(*words: str) -> str:
    output = io.StringIO()
    with redirect_stdout(output):
        cli.main([*words, "--help"])
    return f"```text\n{output.getvalue().strip()}\n```\n"


def _command_line() -> Iterator[str]:
    yield "# The command line\n"
    yield _help()
    group: Any = typer.main.get_command(cli.app)
    for name in cli.COMMANDS:
        yield f"## wefpe {name}\n"
        yield _help(name)
        for part in getattr(group.get_command(None, name), "commands", ()):
            yield _help(name, part)


def _write_command_line(app: Any) -> None:
    """The page of the command line is what ``--help`` prints."""
    os.environ["COLUMNS"] = "100"
    page = Path(app.srcdir, "reference", "command_line.md")
    text = "\n".join(_command_line())
    if not page.exists() or page.read_text("utf-8") != text:
        page.write_text(text, encoding="utf-8")


def _break_long_code(app: Any, pagename: str, template: str, context: Any, tree: Any) -> None:
    """A line of a table may end after a sign of an option, as in ``weierstrass:g2=1,g3=0``."""

    def with_breaks(code: re.Match[str]) -> str:
        return re.sub(r"(&#?[a-z0-9]+;)|([,;:+(]|\.(?=[a-z]))", r"\1\2<wbr>", code[0])

    if "body" in context:
        context["body"] = re.sub(r'(?<=<span class="pre">)[^<]{24,}', with_breaks, context["body"])


def _show_the_lattice(app: Any, pagename: str, template: str, context: Any, tree: Any) -> None:
    """The page about ``wefpe explore`` has what that command writes in it."""
    if pagename == "explore":
        link = '<p><a href="lattice.html">Open it in a window of its own</a></p>'
        frame = '<iframe src="lattice.html" title="A lattice to play with"></iframe>'
        context["body"] += link + frame


def _write_the_lattice(app: Any, error: Exception | None) -> None:
    if error is None:
        Path(app.outdir, "lattice.html").write_text(explore.page(), encoding="utf-8")


def setup(app: Any) -> None:
    app.connect("html-page-context", _break_long_code)
    app.connect("html-page-context", _show_the_lattice)
    app.connect("build-finished", _write_the_lattice)
    app.connect("builder-inited", _write_command_line)
