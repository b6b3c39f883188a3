"""``wefpe explore``: the command, and its page in a real browser beside the NumPy backend."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line is not installed")

from training import cli
from training.commands import explore
from verification.judge import load_contracts
from wefpe_core import Lattice, get_backend
from wefpe_core.accuracy import in_eps, scaled_error

CEILINGS = {
    name: limit["largest"]
    for name, dtypes in load_contracts()["explore"].items()
    for limit in dtypes.values()
}
NUMPY = get_backend("numpy")


# --- The command ---------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """The addresses that the command opens; it runs in an empty folder."""
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", addresses.append)
    monkeypatch.chdir(tmp_path)
    return addresses


def test_the_page_is_written_and_opened(opened, tmp_path, capsys):
    assert cli.main(["explore", "--tau", "0.5 + 2i"]) == 0
    assert capsys.readouterr().out == "explore.html\n"
    assert opened == [(tmp_path / "explore.html").as_uri() + "#tau=0.5,2.0"]
    assert cli.main(["explore", "--no-open"]) == 0  # its own page is overwritten
    assert len(opened) == 1


def test_another_file_is_not_overwritten(opened, tmp_path, capsys):
    (tmp_path / "explore.html").write_text("mine")
    assert cli.main(["explore"]) == 2
    assert "explore.html exists" in capsys.readouterr().err
    assert (tmp_path / "explore.html").read_text() == "mine"
    assert opened == []


@pytest.mark.parametrize("tau", ["x", "1-2i", "0"])
def test_a_ratio_that_is_none_is_refused(opened, tmp_path, tau, capsys):
    assert cli.main(["explore", "--tau", tau]) == 2
    assert "tau" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_page_names_no_other_address():
    assert re.findall(r"https?://|//\w+\.|@import|src=", explore.page()) == []


# --- The page in a browser -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    pytest.importorskip("fcntl", reason="the browser is driven by the pipes of Unix")
    from verification.tests.browser import Browser, find_browser

    program = find_browser()
    if program is None:
        pytest.skip("no Chromium or Chrome is on the path")
    folder = tmp_path_factory.mktemp("explore")
    (folder / "explore.html").write_text(explore.page(), encoding="utf-8")
    with Browser(program, folder / "profile") as browser:
        browser.resize(1280, 900)
        browser.open(folder / "explore.html")
        yield browser


def pair(z):
    return [complex(z).real, complex(z).imag]


def number(text: str) -> complex:
    """A number as the page shows it."""
    plain = text.replace("−", "-").replace(" ", "").replace("·10^", "e").replace("i", "j")
    return complex(plain)


def lattices():
    """Square, hexagonal, oblique and thin lattices, and bases far from the reduced one."""
    rng = np.random.default_rng(5)
    taus = [1j, 0.5 + 0.75**0.5 * 1j, 0.3 + 0.9j, 0.62 + 0.36j, -3.7 + 0.21j, 2.5j, 0.4 + 0.12j]
    taus += [complex(x, y) for x, y in rng.uniform([-2, 0.12], [2, 3], (5, 2))]
    return [Lattice.from_tau(tau, omega1=1.25 - 0.5j) for tau in taus]


@pytest.mark.slow
def test_the_kernel_agrees_with_the_numpy_backend(page):
    rng = np.random.default_rng(6)
    worst = 0.0
    for lattice in lattices():
        s, t = rng.uniform(-2.5, 2.5, (2, 40))
        z = 2 * (s * complex(lattice.omega1) + t * complex(lattice.omega3))
        z = np.append(z, 1e-6 * complex(lattice.omega1))
        arguments = json.dumps([pair(lattice.omega1), pair(lattice.omega3)])
        points = json.dumps([pair(value) for value in z])
        got = np.array(
            page.evaluate(
                f"(() => {{ const own = wefpe.lattice(...{arguments});"
                f"return {points}.map(([x, y]) => own.at(x, y)); }})()"
            )
        )
        p, dp = NUMPY.wp_and_prime(z, lattice)
        ddp = NUMPY.wp_derivative(z, lattice, 2)
        period = 2 * abs(complex(lattice.reduced()[0].omega1))
        for i, value in enumerate(z):
            found = (complex(*got[i, :2]), complex(*got[i, 2:]))
            for k, (f, want, slope) in enumerate(zip(found, (p, dp), (dp, ddp), strict=True)):
                # The page does not compensate its sums, so the whole of z counts.
                error = scaled_error(f, want[i], slope[i], value, period ** -(2 + k))
                worst = max(worst, in_eps(error, "complex128"))
    assert worst <= CEILINGS["functions"]


@pytest.mark.slow
def test_what_the_lattice_determines_agrees_too(page):
    for lattice in lattices():
        arguments = json.dumps([pair(lattice.omega1), pair(lattice.omega3)])
        code = (
            f"(({{g2, g3, j, reduced}}) => [g2, g3, j, reduced.tau])(wefpe.lattice(...{arguments}))"
        )
        g2, g3, j, tau = (complex(*each) for each in page.evaluate(code))
        want2, want3 = NUMPY.invariants(lattice)
        size = max(abs(want2) ** 0.5, abs(want3) ** (1 / 3))  # the square of a length
        most = CEILINGS["constants"] * np.finfo(float).eps
        assert abs(g2 - want2) <= most * size**2
        assert abs(g3 - want3) <= most * size**3
        assert abs(j - NUMPY.klein_j(complex(lattice.tau))) <= most * max(1728, abs(j))
        want = complex(lattice.reduced()[0].tau)
        # On the edge of the domain -1/2 and 1/2 are the same lattice.
        assert min(abs(tau - want - shift) for shift in (-1, 0, 1)) <= most * abs(want)


@pytest.mark.slow
def test_the_encoding_is_that_of_the_project(page):
    torch = pytest.importorskip("torch")
    from training.encodings import build_encoding

    encoding: Any = build_encoding("weierstrass", dim=192, depth=1, num_heads=3, grid=(14, 14))
    lattice = Lattice.lemniscatic()
    arguments = json.dumps([pair(lattice.omega1), pair(lattice.omega3)])
    code = f"wefpe.encoding(wefpe.lattice(...{arguments}), 0.5)"
    shown = page.evaluate(code)
    with torch.no_grad():
        features = encoding.features((14, 14)).numpy()
        points = encoding.points((14, 14)).numpy()
    # The encoding casts its features once, and its lattice is learned in single precision.
    most = CEILINGS["features"] * np.finfo(np.float32).eps
    got = np.array(shown["features"]).reshape(features.shape)
    assert np.abs(got - features).max() <= most
    assert np.abs(np.array(shown["points"]) @ [1, 1j] - points).max() <= most


@pytest.mark.slow
def test_tau_and_the_point_are_dragged(page):
    def shown(name):
        return number(page.evaluate(f"document.getElementById({name!r}).textContent"))

    def middle(name, x, y):
        box = page.evaluate(
            f"(b => [b.x, b.y, b.width, b.height])"
            f"(document.getElementById({name!r}).getBoundingClientRect())"
        )
        return box[0] + x * box[2], box[1] + y * box[3]

    omega1 = 1.8540746773013719
    grain = 2e-5  # five digits are shown
    page.evaluate("scrollTo(0, 0)")
    before = shown("tau")
    for x, y in ((0.5, 0.5), (0.72, 0.81), (0.2, 0.3)):
        page.drag(middle("half-plane", 0.62, 0.55), middle("half-plane", x, y))
        tau = shown("tau")
        assert tau != before
        assert abs(tau - complex(-1.25 + 2.5 * x, 2.02 * (1 - y))) < 0.02
        before = tau
        lattice = Lattice.from_tau(tau, omega1)
        want2, want3 = NUMPY.invariants(lattice)
        assert abs(shown("g2") - want2) < grain * (1 + 4 * abs(want2) / tau.imag)
        assert abs(shown("g3") - want3) < grain * (1 + 6 * abs(want3) / tau.imag)
        z_before = shown("z")
        page.drag(middle("plane", 0.5, 0.5), middle("plane", 0.45, 0.55))
        z = shown("z")
        assert z != z_before
        p, dp = NUMPY.wp_and_prime(z, lattice)
        assert abs(shown("wp") - p) < grain * (1 + abs(dp) + abs(p))
    # What is drawn follows: the pixels of the plane and of a map are others than before.
    pixels = "Array.from(document.querySelectorAll('canvas'), c => c.toDataURL())"
    old = page.evaluate(pixels)
    page.drag(middle("half-plane", 0.5, 0.5), middle("half-plane", 0.6, 0.4))
    assert all(a != b for a, b in zip(old, page.evaluate(pixels), strict=True))
    assert page.complaints == []
    assert all(address.startswith("file://") for address in page.requests)


@pytest.mark.slow
def test_what_is_zero_by_symmetry_is_shown_as_zero(page):
    def shown_for(preset):
        page.evaluate(
            "[...document.querySelectorAll('#presets button')]"
            f".find(each => each.textContent === {preset!r}).click()"
        )
        texts = "['g2', 'g3', 'j'].map(each => document.getElementById(each).textContent)"
        return page.evaluate(  # it is drawn in the next frame
            f"new Promise(done => requestAnimationFrame(() => setTimeout(() => done({texts}), 50)))"
        )

    assert shown_for("hexagon")[::2] == ["0.00000", "0.00000"]
    assert shown_for("square") == ["1.00000", "0.00000", "1728.00"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_fits_wide_and_narrow_windows(page, width):
    page.resize(width, 800)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.resize(width, 800, dark=True)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.resize(1280, 900)
