"""The examples of the README and of the tutorials run, and the README's commands are sessions."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# The pages with examples, and what they need beyond torch. Of a tutorial for two libraries each
# has a section, which is named like it in SECTIONS.
PAGES = [
    pytest.param("README.md", None),
    pytest.param("docs/index.md", None),
    pytest.param("docs/tutorials/functions.md", "matplotlib"),
    pytest.param("docs/tutorials/learned_lattice.md", None),
    pytest.param("docs/tutorials/your_model.md", "timm"),
    # transformers alone takes seconds to import.
    pytest.param("docs/tutorials/your_model.md", "transformers", marks=pytest.mark.slow),
]
SECTIONS = {"timm": "timm", "transformers": "Hugging Face"}


def importable(library: str) -> bool:
    """Without importing it: timm would have to be imported by `import_timm`."""
    from importlib.util import find_spec

    return find_spec(library) is not None


def without_sections_of_others(text: str, library: str | None) -> str:
    """A page without the sections about libraries that are not the one chosen."""
    for other, heading in SECTIONS.items():
        if other != library:
            text = re.sub(rf"(?ms)^## {heading}\n.*?(?=^## |\Z)", "", text)
    return text


@pytest.mark.parametrize(("page", "library"), PAGES)
def test_every_example_of_a_page_gives_what_it_shows(page, library, tmp_path, monkeypatch) -> None:
    for needed in ("torch", library):
        if needed is not None and not importable(needed):
            pytest.skip(f"{needed} is not installed")
    monkeypatch.chdir(tmp_path)
    text = without_sections_of_others((ROOT / page).read_text(encoding="utf-8"), library)
    # A closing fence would be read as the output of the last line of an example.
    examples = doctest.DocTestParser().get_doctest(text.replace("```", ""), {}, page, None, None)
    assert len(examples.examples) >= 10
    assert "+SKIP" not in text
    assert doctest.DocTestRunner(verbose=False).run(examples).failed == 0


def test_every_tutorial_with_examples_is_run() -> None:
    tutorials = ROOT.glob("docs/tutorials/*.md")
    shown = {f"docs/tutorials/{p.name}" for p in tutorials if ">>> " in p.read_text("utf-8")}
    assert shown <= {page.values[0] for page in PAGES}


@pytest.mark.parametrize("session", ["verify", "tests"])
def test_the_readme_shows_the_commands_that_set_everything_up(session: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"python -m pip install nox && nox -s {session}\n" in readme
    assert f"def {session}(session: nox.Session)" in (ROOT / "noxfile.py").read_text("utf-8")
