"""What a newcomer reads after a natural mistake, and values that say all that they are."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from wefpe_core import InputError, InputTypeError, Lattice, WefpeError, get_backend
from wefpe_core.errors import did_you_mean, install_command, missing_dependency

LATTICE = Lattice(1.0, 0.3 + 0.9j)
ARRAY_BACKENDS = ("numpy", "torch", "jax")


def backend_or_skip(name):
    pytest.importorskip(name)
    return get_backend(name)


# --- Options and constructors ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "option", "listed"),
    [
        ("mpmath", "prec", "its options: dps"),
        ("numpy", "dtype", "its options: compile, threads"),
        ("torch", "device", "its options: compile"),
        ("flint", "digit", "its options: digits; did you mean digits?"),
    ],
)
def test_an_unknown_option_of_a_backend_lists_those_there_are(name, option, listed):
    backend_or_skip(name)
    with pytest.raises(InputError) as caught:
        get_backend(name, **{option: 50})
    assert str(caught.value) == f"the backend {name!r} has no option {option!r}; {listed}"


@pytest.mark.parametrize(
    ("arguments", "named", "constructor"),
    [
        ((), {"tau": 1j}, "Lattice.from_tau(tau, omega1)"),
        ((1.0,), {"tau": 1j}, "Lattice.from_tau(tau, omega1)"),
        ((), {"g2": 1.0, "g3": 0.0}, "Lattice.from_invariants(g2, g3)"),
        ((), {"j": 1728}, "Lattice.from_j(j)"),
        ((), {"period1": 2, "period3": 2j}, "Lattice.from_periods(period1, period3)"),
        ((1.0,), {"omega2": 1j}, "omega2 is omega3 here"),
        ((1j,), {}, "Lattice.from_tau(tau, omega1)"),
        ((), {}, "omega1 and omega3"),
        ((1.0, 1j, 1j), {}, "two half-periods"),
        ((1.0,), {"omega1": 1.0}, "two half-periods"),
    ],
)
def test_other_numbers_than_half_periods_point_to_a_constructor(arguments, named, constructor):
    with pytest.raises(InputTypeError) as caught:
        Lattice(*arguments, **named)
    assert constructor in str(caught.value)


def test_the_signature_of_a_lattice_is_that_of_its_two_half_periods():
    assert list(inspect.signature(Lattice).parameters) == ["omega1", "omega3"]
    assert Lattice(omega3=1j, omega1=1) == Lattice(1, omega3=1j) == Lattice(1, 1j)


# --- Numbers that are no doubles, masks, series ------------------------------------------------

EXACT = [mpmath.mpf("0.5"), mpmath.mpc("0.5"), Decimal("0.5"), Fraction(1, 2)]


@pytest.mark.parametrize("number", EXACT, ids=lambda number: type(number).__name__)
@pytest.mark.parametrize("name", ARRAY_BACKENDS)
@pytest.mark.parametrize("wrap", [lambda z: z, lambda z: [z]], ids=["number", "list"])
def test_numbers_that_are_no_doubles_are_refused_with_a_way_out(name, number, wrap):
    backend = backend_or_skip(name)
    with pytest.raises(InputTypeError, match=r"use complex\(z\) or the mpmath backend"):
        backend.wp(wrap(number), LATTICE)


@pytest.mark.parametrize("number", EXACT, ids=lambda number: type(number).__name__)
@pytest.mark.parametrize("name", ["mpmath", "flint"])
def test_the_way_out_works(name, number):
    backend = backend_or_skip(name)
    assert str(backend.wp(number, LATTICE)) == str(backend.wp(0.5, LATTICE))
    assert complex(number) == 0.5


def test_decimals_are_exact():
    backend = get_backend("mpmath", dps=40)
    tenth = backend.wp(Decimal("0.1"), LATTICE)
    assert tenth == backend.wp(Fraction(1, 10), LATTICE)
    assert tenth != backend.wp(0.1, LATTICE)
    assert mpmath.isnan(backend.wp(Decimal("NaN"), LATTICE).real)
    assert mpmath.isnan(backend.wp(Decimal("Infinity"), LATTICE).real)
    with pytest.raises(InputError, match="too large"):
        backend.wp(Decimal("1e99999999"), LATTICE)


@pytest.mark.parametrize("name", [*ARRAY_BACKENDS, "mpmath", "flint"])
def test_a_mask_is_not_lost_in_silence(name):
    backend = backend_or_skip(name)
    masked = np.ma.array([0.25, 0.5], mask=[False, True])
    with pytest.raises(InputTypeError, match="lose its mask"):
        backend.wp(masked, LATTICE)
    value = backend.to_numpy(backend.wp(masked.filled(np.nan), LATTICE))
    assert np.isfinite(value[0])
    assert np.isnan(value[1])


@pytest.mark.parametrize("name", [*ARRAY_BACKENDS, "mpmath"])
def test_every_backend_takes_a_series_for_its_values(name):
    pandas = pytest.importorskip("pandas")
    backend = backend_or_skip(name)
    numbers = [0.25, 0.5 + 0.25j]
    want = backend.to_numpy(backend.wp(np.array(numbers), LATTICE))
    series = pandas.Series(numbers, index=["a", "b"])
    assert (backend.to_numpy(backend.wp(series, LATTICE)) == want).all()
    table = backend.to_numpy(backend.wp(pandas.DataFrame([numbers, numbers]), LATTICE))
    assert (table == np.array([want, want])).all()


def test_flint_takes_a_series_for_its_values():
    pandas = pytest.importorskip("pandas")
    backend = backend_or_skip("flint")
    values = backend.wp(pandas.Series([0.25, 0.5]), LATTICE)
    assert list(map(str, values)) == [str(backend.wp(z, LATTICE)) for z in (0.25, 0.5)]


# --- The reference prints what it knows --------------------------------------------------------


@pytest.mark.parametrize("dps", [20, 30, 60])
def test_values_of_the_reference_print_at_their_precision(dps):
    backend = get_backend("mpmath", dps=dps)
    better = get_backend("mpmath", dps=dps + 20).wp(0.3 + 0.2j, LATTICE)
    value = backend.wp(0.3 + 0.2j, LATTICE)
    with mpmath.workdps(dps):
        assert str(value) == mpmath.nstr(better, dps)
        assert str(value.real) == mpmath.nstr(better.real, dps)
    # mpmath.mp, which the caller sets, is at 15 digits.
    assert len(str(value.imag).strip("-").replace(".", "").lstrip("0")) >= dps - 2
    with mpmath.workdps(dps):
        assert eval(repr(value), {"mpc": mpmath.mpc}) == value
        assert eval(repr(value.real), {"mpf": mpmath.mpf}) == value.real
    green = backend.green(0.3 + 0.2j, LATTICE)
    assert len(str(green)) > dps


def test_values_of_the_reference_are_numbers_of_mpmath():
    value = get_backend("mpmath", dps=30).wp(0.3 + 0.2j, LATTICE)
    assert isinstance(value, mpmath.mpc)
    assert isinstance(value.real, mpmath.mpf)
    assert type(value + 1) is mpmath.mpc
    assert type(value.real * 2) is mpmath.mpf
    again = pickle.loads(pickle.dumps([value, value.real]))
    assert again == [value, value.real]
    assert list(map(str, again)) == [str(value), str(value.real)]
    assert hash(value.real) == hash(mpmath.mp.make_mpf(value.real._mpf_))


# --- Images ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vit", "dhvt"])
def test_images_of_bytes_and_of_one_channel_are_refused_in_our_words(name):
    torch = pytest.importorskip("torch")
    from training.models import build_dhvt, build_vit

    sizes: dict[str, Any] = {"image_size": 32, "patch_size": 4, "num_classes": 10, "depth": 1}
    sizes["encoding"] = "none"
    model = build_vit("micro", in_channels=3, **sizes) if name == "vit" else build_dhvt(**sizes)
    model.eval()
    images = torch.zeros(1, 3, 32, 32)
    assert model(images).shape == (1, 10)
    with pytest.raises(InputTypeError, match=r"must be floating-point .*, got torch\.uint8"):
        model(images.to(torch.uint8))
    with pytest.raises(InputError, match="takes images of 3 channels, got 1; for grey"):
        model(images[:, :1])
    with pytest.raises(InputError, match=r"takes images of 3 channels, got 4$"):
        model(torch.zeros(1, 4, 32, 32))


# --- Names and installing ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wef-pe", "WEF-PE", "wefpe", "wef"])
def test_the_papers_name_of_its_encoding_is_understood(name):
    pytest.importorskip("pydantic")
    from training.encodings.registry import nearest_encoding, options_class_of

    assert nearest_encoding(name) == "; did you mean weierstrass?"
    with pytest.raises(WefpeError, match="did you mean weierstrass"):
        options_class_of(name)


def test_options_in_a_name_are_noticed():
    pytest.importorskip("pydantic")
    from training.encodings.registry import build_encoding

    with pytest.raises(WefpeError, match="options are not a part of the name weierstrass"):
        build_encoding("weierstrass:function=powers", dim=8, depth=1, num_heads=2, grid=(4, 4))


def test_words_that_are_not_near_are_not_suggested():
    assert did_you_mean("wef-pe", ["fope", "rope1d"]) == ""
    assert did_you_mean("weierstras", ["fope", "weierstrass"]) == "; did you mean weierstrass?"


def test_torch_is_installed_by_its_own_lines():
    cpu, _, rest = install_command("torch", "encodings").partition(" (")
    assert cpu == "pip install torch from the CPU index that pytorch.org/get-started names"
    assert rest == "with an NVIDIA GPU: pip install torch), then pip install 'wefpe[encodings]'"
    assert cpu in missing_dependency("the backend 'torch'", "torch", "torch")
    assert install_command("python-flint", "flint") == "pip install 'wefpe[flint]'"


# --- The command line --------------------------------------------------------------------------


def test_a_pipe_that_closes_early_is_no_accident():
    pytest.importorskip("typer")
    for words in (["--version"], ["train", "--list"]):
        command = [sys.executable, "-u", "-m", "training.cli", *words]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            errors = process.stderr.read()
        assert errors == ""
        assert process.returncode == 1


def test_a_benchmark_that_does_not_exist_is_an_error(capsys):
    pytest.importorskip("typer")
    pytest.importorskip("torch")
    from training import cli

    for words in (["bench"], ["bench", "backends"], ["bench", "models"]):
        assert cli.main([*words, "--only", "foo"]) == 2
        assert "nothing to time has 'foo' in its name" in capsys.readouterr().err


def test_claims_that_need_torch_are_skipped_by_name_without_it():
    pytest.importorskip("typer")
    code = """
        import importlib.util, sys
        class Hidden:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "torch":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        sys.meta_path.insert(0, Hidden())
        real = importlib.util.find_spec
        importlib.util.find_spec = lambda name: None if name == "torch" else real(name)
        from training.cli import main
        sys.exit(main(["claims", "--only", "F31,F36,F41"]))
    """
    done = subprocess.run(
        [sys.executable, "-c", inspect.cleandoc(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "crashed" not in text
    assert "3 claims: 1 true, 2 skipped; skipped for want of a library: F31, F41" in text


# --- Exact zeros -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ARRAY_BACKENDS, "mpmath"])
def test_what_symmetry_makes_zero_is_zero(name):
    backend = backend_or_skip(name)
    rhombic = Lattice.from_invariants(1.0, 0.2)  # real invariants: the lattice is its conjugate
    assert rhombic.omega1.imag == 0
    assert rhombic.tau.real == 0.5
    hexagonal = Lattice.equianharmonic()
    for lattice in (rhombic, hexagonal):
        assert [complex(g).imag for g in backend.invariants(lattice)] == [0, 0]
        assert complex(backend.roots(lattice)[0]).imag == 0
    # No lattice of doubles is hexagonal: its g2 is the value of the lattice held.
    exact = complex(get_backend("mpmath").invariants(hexagonal)[0])
    assert round(abs(complex(backend.invariants(hexagonal)[0]) / exact - 1), 6) == 0
    for square in (Lattice.lemniscatic(), Lattice(1 - 1j, 1 + 1j), Lattice(1j, -1)):
        assert complex(backend.invariants(square)[1]) == 0
        assert 0 in [complex(root) for root in backend.roots(square)]


def test_the_reference_has_the_zero_of_a_square_lattice():
    reference = get_backend("mpmath")
    for square in (Lattice.lemniscatic(), Lattice(1 - 1j, 1 + 1j), Lattice(3, 6 + 3j)):
        w1, w3 = (complex(w) for w in square.reduced()[0].exact)
        assert reference.wp_and_prime(w1 + w3, square) == (0, 0)
        assert reference.wp_and_prime(-w1 - w3, square) == (0, 0)
        assert reference.wp(w1, square) != 0
