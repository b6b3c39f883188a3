"""Who may import whom, what an import may cost, the public names, and how backends are found."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest

import wefpe_core
from wefpe_core import AbstractBackend, Lattice, registry

ROOT = Path(wefpe_core.__file__).parents[1]
PACKAGES = ("wefpe", "wefpe_core", "backends", "training", "verification")
LIBRARIES = ("numpy", "mpmath", "torch", "flint", "jax")


def modules_of(package: str) -> list[str]:
    paths = sorted((ROOT / package).rglob("*.py"))
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]


# --- Direction of dependence ---------------------------------------------------------------


def imports(source: str, *, lazy: bool = True) -> set[str]:
    """Top-level packages imported by `source`; without `lazy`, those of the module body only.

    A library that only type checkers import does not count; our own packages do.
    """
    found = set()
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found |= imports("\n".join(map(ast.unparse, node.body))) & set(PACKAGES)
            nodes += node.orelse
            continue
        if lazy or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            nodes += ast.iter_child_nodes(node)
    return found


def own_library(module: str) -> set[str]:
    """The one library a file of `backends` is about, by the start of its name."""
    stem = module.rpartition(".")[2]
    found = {library for library in LIBRARIES if stem.startswith(f"{library}_")}
    # On a CPU torch's operators are NumPy's programs; JAX needs NumPy itself.
    return found | ({"numpy"} if found & {"torch", "jax"} else set())


def forbidden_imports(module: str, source: str) -> set[str]:
    """What `module` imports against the rules of the package it lives in."""
    package, _, rest = module.partition(".")
    everything = imports(source) - set(sys.stdlib_module_names)
    if package == "wefpe_core":
        return everything - {"wefpe_core"}
    if package == "wefpe":
        return everything - {"wefpe_core", "training"}
    if package == "backends":
        allowed = {"wefpe_core", "backends"} | own_library(module)
        at_import = imports(source, lazy=False) - set(sys.stdlib_module_names)
        # NumPy arrays are accepted everywhere, so any backend may ask for NumPy when called.
        # Triton comes with torch where there is a GPU.
        return (at_import - allowed) | (everything - allowed - {"numpy", "triton"})
    if module.startswith("training.encodings"):
        return everything - {"training", "wefpe_core", "backends", "torch", "numpy", "pydantic"}
    if module.startswith("training.commands"):
        return set()
    if package == "training":
        return everything & {"verification"}
    if rest.partition(".")[0] in ("tests", "claims", "bench", "__main__"):
        return set()
    return everything & {"training"}


@pytest.mark.parametrize("module", [name for package in PACKAGES for name in modules_of(package)])
def test_dependence_runs_one_way(module):
    source = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    assert forbidden_imports(module, source) == set()


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("wefpe.__init__", "from verification import verifier", {"verification"}),
        ("wefpe_core.lattice", "import math, numpy", {"numpy"}),
        ("wefpe_core.lattice", "def f():\n    from backends.kernel import x", {"backends"}),
        ("wefpe_core.registry", "if TYPE_CHECKING:\n    from torch import Tensor", set()),
        ("wefpe_core.registry", "if TYPE_CHECKING:\n    import backends", {"backends"}),
        ("wefpe_core.registry", "if TYPE_CHECKING: pass\nelse:\n    import torch", {"torch"}),
        ("backends.kernel", "import numpy as np", {"numpy"}),
        ("backends.kernel", "if True:\n    import numpy", {"numpy"}),
        ("backends.torch_backend", "import torch\ndef f():\n    import numpy, mpmath", {"mpmath"}),
        ("training.engine", "from verification import cases", {"verification"}),
        (
            "training.encodings.weierstrass_green",
            "import torch\ndef f():\n    import mpmath",
            {"mpmath"},
        ),
        ("verification.oracle", "import training.encodings", {"training"}),
        ("verification.claims.distance_decay", "import training.encodings", set()),
        ("verification.bench.time_models", "import training.models", set()),
        ("training.commands.verify", "from verification import verifier", set()),
    ],
)
def test_the_dependence_check_can_fail(module, source, expected):
    assert forbidden_imports(module, source) == expected


LIBRARY = tuple(
    f"training.{room}."
    for room in ("augmentation", "config", "data", "encodings", "engine", "models", "plot")
)


def imports_the_study(source: str) -> bool:
    """Whether `source` imports `training.study` or a part of it, anywhere."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return any(f"{name}.".startswith("training.study.") for name in names)


@pytest.mark.parametrize("module", [m for m in modules_of("training") if m.startswith(LIBRARY)])
def test_the_library_does_not_import_the_study(module):
    source = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    assert not imports_the_study(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import training.study.compare", True),
        ("from training import study", True),
        ("def f():\n    from training.study.analysis import Analysis", True),
        ("from training.engine import run", False),
    ],
)
def test_the_check_of_the_study_can_fail(source, expected):
    assert imports_the_study(source) == expected


# --- What an import costs ------------------------------------------------------------------


def run_python(code: str, *search_path: Path) -> str:
    """Run `code` in a new interpreter, with `search_path` before the project on its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*search_path, ROOT]))}
    command = [sys.executable, "-P", "-W", "error", "-c", dedent(code)]  # -P: without the cwd
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def libraries_imported_by(statement: str) -> set[str]:
    report = f"import json, sys; print(json.dumps([m for m in {LIBRARIES} if m in sys.modules]))"
    return set(json.loads(run_python(f"{statement}\n{report}")))


def test_importing_the_core_imports_no_library():
    modules = ", ".join(name.removesuffix(".__init__") for name in modules_of("wefpe_core"))
    assert libraries_imported_by(f"import {modules}, backends") == set()


def test_importing_training_imports_no_library():
    assert libraries_imported_by("import training") == set()


@pytest.mark.parametrize("name", ["numpy", "mpmath", "flint"])
def test_a_backend_imports_only_its_own_library(name):
    pytest.importorskip(name)
    statement = f"import wefpe_core; wefpe_core.get_backend({name!r})"
    assert libraries_imported_by(statement) == {name}


def test_the_torch_backend_imports_no_more_than_torch_does():
    pytest.importorskip("torch")
    statement = "import wefpe_core; wefpe_core.get_backend('torch')"
    # torch takes NumPy with it; its compiler would bring sympy, and sympy mpmath and flint.
    assert libraries_imported_by(statement) == libraries_imported_by("import torch")


def test_the_import_check_can_fail():
    assert libraries_imported_by("import wefpe_core, numpy") == {"numpy"}


# --- Public names --------------------------------------------------------------------------


def public_names(namespace: object) -> set[str]:
    return {
        name
        for name, value in vars(namespace).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        (
            wefpe_core,
            """AbstractBackend BackendCapabilities Lattice available_backends get_backend
            DegenerateLattice DegenerateLatticeError
            BackendUnavailableError ImmutableError InputError InputTypeError LatticeError
            MissingDependencyError
            PrecisionError UnknownBackendError UnsupportedFunctionError WefpeError""",
        ),
        (
            Lattice,
            """from_tau from_periods from_invariants from_j degenerate lemniscatic equianharmonic
            rectangular
            omega1 omega3 tau reduced exact holds_tensors
            wp wp_prime wp_and_prime zeta sigma green inverse_wp g2 g3 j plot""",
        ),
        (
            AbstractBackend,
            """wp wp_prime wp_and_prime zeta sigma inverse_wp green invariants roots
            quasi_periods lattice_from_invariants lattice_sum add inverse_wp_real abel_jacobi
            wp_derivative log_sigma modified_zeta modified_sigma laurent_coefficients
            heat log_heat
            capabilities contracts from_numpy to_numpy""",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_public_names_are_these(namespace, expected):
    assert public_names(namespace) == set(expected.split())


@pytest.mark.parametrize("name", ["bounds", "identities", "conventions"])
def test_public_modules_of_the_core_import(name):
    assert importlib.import_module(f"wefpe_core.{name}").__doc__


@pytest.mark.parametrize(
    "module",
    [
        *modules_of("wefpe_core"),
        *modules_of("backends"),
        "training.encodings.__init__",
        "training.encodings.registry",
        "training.encodings.encoding",
        "training.models.vit",
        "training.models.dhvt",
    ],
)
def test_examples_in_docstrings_run(module):
    for library in own_library(module) | ({"torch"} if module.startswith("training") else set()):
        pytest.importorskip(library)
    results = doctest.testmod(importlib.import_module(module.removesuffix(".__init__")))
    assert results.failed == 0


# --- Finding backends ----------------------------------------------------------------------


@pytest.fixture
def without(monkeypatch):
    """Make the registry believe that a library is not installed."""

    def hide(library: str) -> None:
        monkeypatch.setattr(
            registry, "find_spec", lambda name: None if name == library else find_spec(name)
        )
        # A backend built earlier in this process would be served from the cache.
        monkeypatch.setattr(registry, "_build", registry._build.__wrapped__)

    return hide


def test_an_unknown_backend_lists_the_known_ones(without):
    without("flint")
    with pytest.raises(wefpe_core.UnknownBackendError) as caught:
        wefpe_core.get_backend("sympy")
    available, _, missing = str(caught.value).partition("not installed:")
    assert "'sympy'" in available
    for name in wefpe_core.available_backends():
        assert name in available
    assert "flint" in missing


@pytest.mark.parametrize(
    ("name", "install"),
    [
        ("torch", "wefpe[torch]"),
        ("flint", "wefpe[flint]"),
        ("numpy", "numpy"),
        ("mpmath", "mpmath"),
    ],
)
def test_a_missing_library_names_what_to_install(without, name, install):
    without(name)
    assert name not in wefpe_core.available_backends()
    with pytest.raises(wefpe_core.BackendUnavailableError, match="not installed") as caught:
        wefpe_core.get_backend(name)
    assert f"pip install '{install}'" in str(caught.value)


def test_the_rows_of_the_registry_agree_with_the_extras_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for row in registry.backend_descriptions():
        if row.location.startswith("backends."):
            wanted = project["dependencies"]
            if row.extra:
                wanted = project["optional-dependencies"][row.extra]
            assert any(re.match(rf"{row.package}\b", text) for text in wanted), row


def test_a_backend_can_be_described_without_its_library(without):
    without("flint")
    descriptions = {row.name: row for row in registry.backend_descriptions()}
    assert "flint" not in wefpe_core.available_backends()
    assert "balls" in descriptions["flint"].purpose


def test_an_unknown_option_is_refused():
    with pytest.raises(wefpe_core.InputError, match="'numpy'"):
        wefpe_core.get_backend("numpy", colour="red")


def test_what_cannot_be_looked_up_is_refused_and_named():
    with pytest.raises(wefpe_core.InputError, match=r"\['numpy'\]"):
        wefpe_core.get_backend(["numpy"])  # type: ignore[call-overload]
    with pytest.raises(wefpe_core.InputError, match=r"dps=\[50\]"):
        wefpe_core.get_backend("mpmath", dps=[50])


@pytest.mark.parametrize(
    "foreign",
    ["backends.py", "backends/__init__.py", "backends/numpy_backend.py"],
    ids=["module", "package", "package with a numpy_backend"],
)
def test_a_foreign_package_called_backends_is_named(tmp_path, foreign):
    file = tmp_path / foreign
    found = file if file.parent == tmp_path else file.with_name("__init__.py")
    file.parent.mkdir(exist_ok=True)
    file.touch()
    found.touch()
    message = run_python(
        """
        import sys
        import wefpe_core
        # The finder of an installation in place would lend our modules to the foreign package.
        sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder)]
        try:
            wefpe_core.get_backend("numpy")
        except wefpe_core.BackendUnavailableError as error:
            print(error)
        """,
        tmp_path,
    )
    assert str(found) in message
    assert "not wefpe's" in message


THIRD_PARTY = """
    from wefpe_core import AbstractBackend

    class Everywhere(AbstractBackend):
        name = "everywhere"
        def __init__(self, value=0): self.value = value
        def wp_and_prime(self, z, lattice): return self.value, 0

    for method in tuple(Everywhere.__abstractmethods__):
        setattr(Everywhere, method, None)
    Everywhere.__abstractmethods__ = frozenset()
"""


@pytest.fixture
def third_party(tmp_path):
    """A distribution that registers backends, as pip would have laid it out."""
    (tmp_path / "everywhere.py").write_text(dedent(THIRD_PARTY))
    information = tmp_path / "everywhere-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: everywhere\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[wefpe.backends]\n"
        "everywhere = everywhere:Everywhere\n"
        "numpy = everywhere:Everywhere\n"
        "broken = builtins:dict\n"
    )
    return tmp_path


def test_a_third_party_backend_is_served(third_party):
    run_python(
        """
        import sys
        from wefpe_core import Lattice, available_backends, get_backend
        from wefpe_core.registry import backend_descriptions
        assert "everywhere" in available_backends()
        described = {row.name: row for row in backend_descriptions()}["everywhere"]
        assert (described.package, described.purpose) == ("everywhere", "from an entry point")
        assert "everywhere" not in sys.modules
        assert get_backend("everywhere", value=7).wp(0.1, Lattice(1, 1j)) == 7
        assert get_backend("everywhere", value=7) is get_backend("everywhere", value=7)
        """,
        third_party,
    )


def test_a_third_party_cannot_replace_a_built_in_backend(third_party):
    run_python(
        """
        from wefpe_core import available_backends, get_backend
        assert type(get_backend("numpy")).__module__ == "backends.numpy_backend"
        assert available_backends().count("numpy") == 1
        """,
        third_party,
    )


def test_an_entry_point_that_is_no_backend_is_refused(third_party):
    message = run_python(
        """
        from wefpe_core import InputError, get_backend
        try:
            get_backend("broken")
        except InputError as error:
            print(error)
        """,
        third_party,
    )
    assert "'broken'" in message
