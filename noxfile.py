"""Sessions that install the project and run one plain command each.

Nothing is hidden here: whatever a session runs can be typed in any environment that has the
project and the dependency group of the same name.
"""

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"

REPORT = ("--output", "build/verification")  # where `nox -s verify` writes its page
CLAIMS = "build/claims"
RESULTS = "docs/results"  # the rows of the study, and what is made of them

# The code for GPUs, without one: docs/gpu.md.
_ON_EMULATED = ("pytest", "-p", "verification.gpu.plugin", "-n", "auto", "--dist", "loadfile")
_VERIFY = ("wefpe", "gpu", "verify", "--backend", "torch", "--device", "cuda", "--size", "small")
_COMPILED = [
    word
    for function in ("wp_and_prime", "zeta", "sigma", "green")
    for option in ("--function", "--compiled")
    for word in (option, function)
]
GPU_PARTS: dict[str, list[tuple[str, ...]]] = {
    "tests": [(*_ON_EMULATED, "-m", "cuda and not slow")],
    "slow": [(*_ON_EMULATED, "-m", "cuda and slow")],
    "verify": [_VERIFY],
    "kernels": [("wefpe", "gpu", "kernels")],
    "ptx": [
        (*_VERIFY, *_COMPILED),
        (*_VERIFY, *_COMPILED, "--perturb", "1", "--fuse", "1"),
    ],
}

_ALL_IN_PARALLEL = ("-n", "auto", "--dist", "load", "-m", "slow or not slow")

BENCHMARKS = ("backends", "models", "training", "data")

PYPROJECT = nox.project.load_toml("pyproject.toml")


def install_project(session: nox.Session, *groups: str, with_jax: bool = False) -> None:
    """Install the checkout in place, with the extras the tests use and the groups named.

    The constraint belongs in this very command: see constraints.txt.
    """
    requirements = nox.project.dependency_groups(PYPROJECT, *groups)
    project = f".[training,flint,report,numba{',jax' if with_jax else ''}]"
    session.log("installing PyTorch, NumPy and the project: some minutes the first time")
    session.install("-c", "constraints.txt", "-e", project, *requirements)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the test suite; arguments after -- go to pytest."""
    install_project(session, "test", "onnx", "transformers_tested")
    session.run("pytest", "-n", "auto", "--dist", "loadfile", *session.posargs)


@nox.session(default=False)
def coverage(session: nox.Session) -> None:
    """Run the tests and show which lines and branches they reach; build/coverage has the pages."""
    install_project(session, "test", "onnx", "coverage")
    reports = ("--cov", "--cov-report=term", "--cov-report=html")
    session.run("pytest", "-n", "auto", "--dist", "loadfile", *reports, *session.posargs)


@nox.session(default=False, venv_backend="uv")
def minimums(session: nox.Session) -> None:
    """Run the tests on the lowest versions that pyproject.toml allows, but for torch; needs uv.

    Warnings are no errors here: old libraries warn about each other.
    """
    requirements = nox.project.dependency_groups(PYPROJECT, "test")
    lowest = ("--resolution", "lowest-direct", "--prerelease", "disallow", "-c", "constraints.txt")
    session.install(*lowest, "-e", ".[training,flint,report,numba]", *requirements)
    session.run("pytest", "-n", "auto", "--dist", "loadfile", "-W", "default", *session.posargs)


@nox.session(default=False)
def newest_mpmath(session: nox.Session) -> None:
    """Run the tests of the core, mpmath and flint on mpmath's newest pre-release, without torch.

    torch needs sympy, which needs an older mpmath. What needs torch or typer is left out.
    """
    requirements = nox.project.dependency_groups(PYPROJECT, "test")
    session.install("-e", ".[flint]", *requirements)
    session.install("--pre", "--upgrade", "mpmath")
    tests = "verification/tests"
    session.run(
        *("pytest", f"{tests}/core", f"--ignore={tests}/core/test_command_line.py"),
        *(f"{tests}/backends/test_mpmath_backend.py", f"{tests}/backends/test_flint_backend.py"),
        *session.posargs,
    )


@nox.session
def verify(session: nox.Session) -> None:
    """Measure every backend against the oracle and judge it; arguments go to the report."""
    install_project(session)
    output = () if any(a.startswith("--output") for a in session.posargs) else REPORT
    session.run("wefpe", "verify", *output, *session.posargs)


@nox.session(default=False)
def readme(session: nox.Session) -> None:
    """Measure, check the claims, and write what README.md and docs show of the results."""
    install_project(session)
    session.run("wefpe", "verify", *REPORT)
    session.run("wefpe", "claims", "--output", CLAIMS)
    session.run("wefpe", "docs", "readme", f"{REPORT[1]}/report.json", f"{CLAIMS}/claims.json")
    shutil.copy(f"{CLAIMS}/claims.md", "docs/claims.md")
    session.run("wefpe", "encodings", "--draw", "docs/encodings")
    session.run("wefpe", "docs", "analyses", "docs/analyses")


@nox.session(default=False)
def results(session: nox.Session) -> None:
    """Make the tables and pictures of the study anew from its rows; trains nothing."""
    install_project(session)
    session.run("wefpe", "results", RESULTS)
    pages = ("README.md", f"{RESULTS}/README.md", "docs/which_encoding.md")
    session.run("wefpe", "docs", "fill", RESULTS, *pages)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Time the backends, the models and the engine beside their peers.

    All three, or one of them: ``nox -s bench -- models --repeat 5``.
    """
    name, *words = session.posargs or [None]
    if name not in (None, *BENCHMARKS):
        session.error(f"the benchmarks are {', '.join(BENCHMARKS)}, not {name!r}")
    install_project(session, "timm", "gpu", with_jax=True)
    for part in BENCHMARKS if name is None else (name,):
        session.run("wefpe", "bench", part, *words)
        if part == "models":  # what a GPU would feel
            session.run("wefpe", "gpu", "count")


@nox.session(default=False)
def train(session: nox.Session) -> None:
    """Train on the digits of scikit-learn, a first run of a minute; arguments go to wefpe train."""
    install_project(session)
    arguments = session.posargs or ("digits", "--folder", "runs/digits", "--resume")
    session.run("wefpe", "train", *arguments)


@nox.session(default=False)
def timm(session: nox.Session) -> None:
    """Test the models beside timm's and the adapter for it; arguments after -- go to pytest."""
    install_project(session, "test", "timm")
    names = ("timm_adapter", "backbones", "published_weights")
    files = [f"verification/tests/models/test_{name}.py" for name in names]
    files.append("verification/tests/engine/test_recipes.py")  # timm's optimisers
    files.append("verification/tests/verifier/test_readme.py")  # the tutorial with timm
    session.run("pytest", *_ALL_IN_PARALLEL, *files, *session.posargs)


@nox.session(default=False)
def jax(session: nox.Session) -> None:
    """Test the JAX backend and measure it; arguments go to pytest, and nothing is measured.

    Not in the environment of the other tests: some fork, which JAX's threads forbid.
    """
    install_project(session, "test", with_jax=True)
    tests = "verification/tests/backends/test_jax_backend.py"
    session.run("pytest", tests, "-m", "slow or not slow", *session.posargs)
    if not session.posargs:
        session.run("wefpe", "verify", "--backend", "jax", "--size", "small")


@nox.session(default=False)
def transformers(session: nox.Session) -> None:
    """Test the adapter for the newest Hugging Face transformers; arguments go to pytest.

    `nox -s tests` has the same tests with the version that they have passed with.
    """
    install_project(session, "test", "transformers")
    files = [
        f"verification/tests/models/test_{n}.py" for n in ("transformers_adapter", "backbones")
    ]
    session.run("pytest", *_ALL_IN_PARALLEL, *files, *session.posargs)


@nox.session(default=False)
def gpu(session: nox.Session) -> None:
    """Run the code for GPUs on an emulated CUDA device: see docs/gpu.md.

    All parts, or those named: ``nox -s gpu -- tests kernels``.
    """
    unknown = set(session.posargs) - set(GPU_PARTS)
    if unknown:
        session.error(f"the parts are {', '.join(GPU_PARTS)}, not {', '.join(sorted(unknown))}")
    install_project(session, "test", "gpu")
    for part in session.posargs or GPU_PARTS:
        for command in GPU_PARTS[part]:
            session.run(*command)


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """Damage the kernel in thousands of ways and see that it is noticed; takes ten minutes."""
    install_project(session)
    session.run("wefpe", "mutants", *session.posargs)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site into build/site, check the links and run the examples and tables shown."""
    install_project(session, "test", "docs")
    site = ("-W", "--keep-going", "-q", "-b", "html", "docs", "build/site")
    session.run("python", "-m", "sphinx", *site)
    session.run("python", "docs/check_links.py")
    session.run("pytest", "-k", "readme or tour or docs", *session.posargs)


@nox.session(default=False)
def dist(session: nox.Session) -> None:
    """Build the sdist and the wheel into dist and check them; an argument is the version to be."""
    version = PYPROJECT["project"]["version"]
    if session.posargs and session.posargs != [version]:
        session.error(f"pyproject.toml has the version {version}, not {session.posargs[0]}")
    session.install("build", "twine")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build")
    session.run("twine", "check", "--strict", *(str(file) for file in Path("dist").iterdir()))


@nox.session(default=False)
def hooks(session: nox.Session) -> None:
    """Run every hook of .pre-commit-config.yaml on every file."""
    session.install("pre-commit>=4")
    session.run("pre-commit", "run", "--all-files", "--show-diff-on-failure", *session.posargs)


@nox.session(default=False)
def lint(session: nox.Session) -> None:
    """Check style and formatting with ruff."""
    (ruff,) = nox.project.dependency_groups(PYPROJECT, "lint")
    if f'"{ruff}"' not in Path(".pre-commit-config.yaml").read_text(encoding="utf-8"):
        session.error(f".pre-commit-config.yaml does not have the {ruff} of pyproject.toml")
    session.install(ruff)
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session(default=False)
def types(session: nox.Session) -> None:
    """Check types with mypy."""
    install_project(session, "types")
    session.run("mypy", *session.posargs)
