"""Sessions that install the project and run one plain command each.

Nothing is hidden here: whatever a session runs can be typed in any environment that has the
project and the dependency group of the same name.
"""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"

PYPROJECT = nox.project.load_toml("pyproject.toml")


def install_project(session: nox.Session, *groups: str) -> None:
    """Install the checkout in place, with torch, flint and the dependency groups named.

    The constraint belongs in this very command: see constraints.txt.
    """
    requirements = nox.project.dependency_groups(PYPROJECT, *groups)
    session.install("-c", "constraints.txt", "-e", ".[torch,flint]", *requirements)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the test suite; arguments after -- go to pytest."""
    install_project(session, "test")
    session.run("pytest", "-n", "auto", "--dist", "loadgroup", *session.posargs)


@nox.session
def verify(session: nox.Session) -> None:
    """Measure every backend against the oracle and judge it; arguments go to the report."""
    install_project(session)
    session.run("python", "-m", "verification", *session.posargs)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Time the backends beside their peers; arguments go to the benchmark."""
    install_project(session)
    session.run("python", "-m", "verification.bench", *session.posargs)


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """Damage the kernel in two thousand ways and see that it is noticed; takes half an hour."""
    install_project(session)
    session.run("python", "-m", "verification.mutants", *session.posargs)


@nox.session(default=False)
def lint(session: nox.Session) -> None:
    """Check style and formatting with ruff."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session(default=False)
def types(session: nox.Session) -> None:
    """Check types with mypy."""
    install_project(session, "types")
    session.run("mypy", *session.posargs)
