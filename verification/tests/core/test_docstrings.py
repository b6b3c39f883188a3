"""Every public name of the reference says what it takes and gives, and has an example.

`test_layering` runs the examples.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from wefpe_core import AbstractBackend, get_backend, special

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
# What others call while a run or a report is made; the page has them for those who read receipts.
PAGES = ("lattices", "backends", "special", "encodings", "models", "plot")

# Rules and hooks that a model or the engine calls: no example would be shorter than its text.
HOOKS = (
    "brought_here",
    "check_layer",
    "check_ready",
    "check_tokens",
    "draw_places",
    "drop_tables",
    "elliptic_use",
    "extra_repr",
    "fold",
    "learned_numbers",
    "moved_centres",
    "no_weight_decay",
    "shared_pass",
    "table",
    "from_numpy",
    "to_numpy",
    # Of `wefpe_core.errors`: the ends of messages.
    "did_you_mean",
    "foreign_package",
    "import_optional",
    "import_own",
    "install_command",
    "missing_dependency",
)


def found(name: str) -> Any:
    """The object of a dotted name; a function wins over the module that it is named like."""
    first, *parts = name.split(".")
    thing, known = import_module(first), first
    for part in parts:
        known = f"{known}.{part}"
        thing = getattr(thing, part) if hasattr(thing, part) else import_module(known)
    return thing


def functions_of(page: str) -> Iterator[tuple[str, Any]]:
    """Every public function and method that a page of the reference shows."""
    text = (REFERENCE / f"{page}.md").read_text(encoding="utf-8")
    for kind, name in re.findall(r"auto(function|class|module):: ([\w.]+)", text):
        thing = found(name)
        if kind == "function":
            yield name, thing
            continue
        for member, value in inspect.getmembers(thing, inspect.isroutine):
            owner = inspect.getmodule(value)
            is_ours = owner is not None and owner.__name__.startswith(("wefpe", "training"))
            if kind == "module" and page != "special":
                is_ours &= getattr(value, "__module__", "").startswith(name)
            if not member.startswith("_") and is_ours:
                yield f"{name}.{member}", value


@pytest.mark.parametrize("page", PAGES)
def test_every_function_of_the_reference_has_an_example(page):
    if page in ("encodings", "models"):
        pytest.importorskip("torch")
    functions = dict(functions_of(page))
    assert functions
    without = [
        name
        for name, function in functions.items()
        if name.rpartition(".")[2] not in HOOKS and ">>> " not in (inspect.getdoc(function) or "")
    ]
    assert without == []


@pytest.mark.parametrize("name", ["numpy", "torch", "mpmath", "flint", "jax"])
def test_help_on_a_method_of_a_backend_has_an_example(name):
    pytest.importorskip(name)
    methods = inspect.getmembers(get_backend(name), inspect.ismethod)
    public = {method: function for method, function in methods if method[0] != "_"}
    assert {"wp", "zeta", "invariants", "ellipj"} <= public.keys()
    without = [
        method
        for method, function in public.items()
        if method not in HOOKS and ">>> " not in (function.__doc__ or "")
    ]
    assert without == []


# What each evaluation has to say: what goes in, where the values are, and what is no number.
SUBJECTS = {
    "what it takes": r"number|list|array|tensor|what\s+`\w+`\s+does|[Aa]s in|Arguments|Parameters",
    "precision and device": r"precision|device|rounded once|`invariants`|[Aa]s in `heat`|`jtheta`",
    "poles and NaN": r"NaN|inf|`heat`|`jtheta`|LatticeError|0/0|converges|is 0",
}


@pytest.mark.parametrize(
    "name", [name for name in vars(special) if name[0] != "_" and hasattr(AbstractBackend, name)]
)
def test_every_evaluation_says_what_goes_in_and_what_comes_out(name):
    text = inspect.getdoc(getattr(AbstractBackend, name)) or ""
    assert text == inspect.getdoc(getattr(special, name))
    silent = [subject for subject, words in SUBJECTS.items() if not re.search(words, text)]
    assert silent == []
