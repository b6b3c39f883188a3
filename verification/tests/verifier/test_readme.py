"""The examples of the README and of the tutorials run, and the README's commands are sessions."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# The pages with examples, and what they need beyond the training extra.
PAGES = {
    "README.md": None,
    "docs/index.md": None,
    "docs/tutorials/functions.md": "matplotlib",
    "docs/tutorials/learned_lattice.md": None,
    "docs/tutorials/your_model.md": "timm",
}


def importable(library: str) -> bool:
    """Without importing it: timm would have to be imported by `import_timm`."""
    from importlib.util import find_spec

    return find_spec(library) is not None


@pytest.mark.parametrize("page", PAGES)
def test_every_example_of_a_page_gives_what_it_shows(page, tmp_path, monkeypatch) -> None:
    for library in ("torch", PAGES[page]):
        if library is not None and not importable(library):
            pytest.skip(f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    # A closing fence would be read as the output of the last line of an example.
    examples = doctest.DocTestParser().get_doctest(text.replace("```", ""), {}, page, None, None)
    assert len(examples.examples) >= 10
    assert doctest.DocTestRunner(verbose=False).run(examples).failed == 0


def test_every_tutorial_with_examples_is_run() -> None:
    tutorials = ROOT.glob("docs/tutorials/*.md")
    shown = {f"docs/tutorials/{p.name}" for p in tutorials if ">>> " in p.read_text("utf-8")}
    assert shown <= set(PAGES)


@pytest.mark.parametrize("session", ["verify", "tests"])
def test_the_readme_shows_the_commands_that_set_everything_up(session: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"python -m pip install nox && nox -s {session}\n" in readme
    assert f"def {session}(session: nox.Session)" in (ROOT / "noxfile.py").read_text("utf-8")
