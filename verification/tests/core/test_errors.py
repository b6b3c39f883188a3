"""The errors of the project, and what they say when an optional library is missing."""

from __future__ import annotations

import inspect
import math
import pickle
import sys
from pathlib import Path

import pytest

from wefpe_core import BackendUnavailableError, MissingDependencyError, WefpeError, errors
from wefpe_core.errors import import_optional

ERRORS = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, BaseException)
]


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_derives_from_the_one_of_the_project(error: type[Exception]) -> None:
    assert issubclass(error, WefpeError)
    assert str(pickle.loads(pickle.dumps(error("message")))) == "message"


def test_a_missing_library_may_be_caught_as_an_import_error() -> None:
    assert issubclass(BackendUnavailableError, MissingDependencyError)
    assert issubclass(MissingDependencyError, ImportError)


def test_what_is_installed_is_imported() -> None:
    assert import_optional("math", purpose="a test", extra=None) is math


@pytest.mark.parametrize("module", ["no_such_library", "no_such_library.part"])
def test_what_is_missing_is_named_with_its_extra(module: str) -> None:
    with pytest.raises(MissingDependencyError) as caught:
        import_optional(module, purpose="drawing", extra="report")
    assert str(caught.value) == (
        "drawing needs no_such_library, which is not installed; run: pip install 'wefpe[report]'"
    )


def test_what_is_missing_is_named_as_the_package_is() -> None:
    with pytest.raises(MissingDependencyError, match=r"needs no-such-package, .*'no-such-package'"):
        import_optional("no_such_library", purpose="drawing", extra=None, package="no-such-package")


def test_a_library_that_does_not_load_raises_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "incomplete_library.py").write_text("import its_missing_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="its_missing_dependency") as caught:
        import_optional("incomplete_library", purpose="drawing", extra="report")
    assert not isinstance(caught.value, WefpeError)


def test_a_library_hidden_from_the_interpreter_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "json", None)
    with pytest.raises(MissingDependencyError, match="needs json"):
        import_optional("json", purpose="reading", extra=None)
