"""The README's examples run, and its two commands are the sessions of the noxfile."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_every_example_of_the_readme_gives_what_it_shows() -> None:
    pytest.importorskip("torch", reason="the torch extra is not installed")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    # A closing fence would be read as the output of the last line of an example.
    examples = doctest.DocTestParser().get_doctest(
        text.replace("```", ""), {}, "README.md", None, None
    )
    assert len(examples.examples) > 20
    assert doctest.DocTestRunner(verbose=False).run(examples).failed == 0


@pytest.mark.parametrize("session", ["verify", "tests"])
def test_the_readme_shows_the_commands_that_set_everything_up(session: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"python -m pip install nox && nox -s {session}\n" in readme
    assert f"def {session}(session: nox.Session)" in (ROOT / "noxfile.py").read_text("utf-8")
