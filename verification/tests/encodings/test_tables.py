"""Position tables: exact under autocast, kept where that is safe, made anew where it is not."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from training.encodings import encoding as precision
from training.encodings.encoding import PassTables
from verification.tests.encoding_cases import CEILINGS, NAMES, answers, error_in_eps, small

GRID = (5, 8)
ADDITIVE = ["learned", "weierstrass", "weierstrass_fourier", "weierstrass_hybrid"]


@pytest.mark.parametrize("name", NAMES)
def test_autocast_does_not_change_a_table(name):
    encoding = small(name)
    for module in encoding.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    want = answers(encoding, GRID)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = answers(encoding, GRID)
    assert want.keys() == got.keys()
    for key in want:
        assert got[key].dtype == want[key].dtype
        assert torch.equal(got[key], want[key]), key


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_table_is_cast_once_to_the_dtype_of_the_module(name, dtype):
    encoding = small(name).to(dtype)
    for key, value in answers(encoding, GRID).items():
        if key not in ("q", "k"):  # these follow the tokens
            assert value.dtype == dtype, key
        assert torch.isfinite(value).all(), key


def test_features_in_bfloat16_are_the_rounded_exact_ones():
    encoding = small("weierstrass", learnable=False)
    exact = encoding.double().features(GRID)
    assert torch.equal(encoding.bfloat16().features(GRID), exact.bfloat16())


def test_a_fixed_table_is_made_once_per_grid():
    encoding = small("sincos2d")
    first, other = encoding.additive(GRID), encoding.additive((8, 5))
    assert encoding.additive(GRID) is first
    assert encoding.additive((8, 5)) is other
    assert encoding.eval().additive(GRID) is first
    assert encoding.double().additive(GRID).dtype == torch.float64


def fused_step(optimiser_class, parameters):
    """A step that changes parameters and leaves their versions as they were."""
    parameters = list(parameters)
    versions = [parameter._version for parameter in parameters]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimiser_class(parameters, lr=0.1, fused=True).step()
    assert [parameter._version for parameter in parameters] == versions


LEARNED = [*ADDITIVE, "rope_mixed", "weierstrass_relative", "weierstrass_green"]


@pytest.mark.parametrize("optimiser", ["AdamW", "Adam", "SGD"])
@pytest.mark.parametrize("name", LEARNED)
def test_what_is_learned_is_never_stale(name, optimiser):
    encoding = small(name).eval()
    for freeze in (False, True):  # an encoding may be frozen, trained and frozen again
        with torch.no_grad():
            encoding.requires_grad_(not freeze)
            before = answers(encoding, GRID)
            encoding.requires_grad_(True)
        fused_step(getattr(torch.optim, optimiser), encoding.parameters())
        encoding.requires_grad_(not freeze)
        fresh = small(name).eval()
        fresh.load_state_dict(encoding.state_dict())
        with torch.no_grad():
            got, want = answers(encoding, GRID), answers(fresh, GRID)
        assert all(torch.equal(got[key], want[key]) for key in want)
        assert any(not torch.equal(got[key], before[key]) for key in want)


@pytest.mark.parametrize("name", ADDITIVE)
def test_a_table_follows_parameters_and_their_data(name):
    encoding = small(name).eval()
    with torch.no_grad():
        before = encoding.additive(GRID).clone()
        for parameter in encoding.parameters():
            parameter.data.add_(0.1)
        assert not torch.equal(before, encoding.additive(GRID))
        encoding.load_state_dict(small(name).state_dict())
        assert torch.equal(encoding.additive(GRID), before)
        assert encoding.double().additive(GRID).dtype == torch.float64


def test_a_table_made_in_inference_mode_serves_training_later():
    encoding = small("rope_axial")
    q, k = torch.ones(2, 1, 2, 40, 16)
    with torch.inference_mode():
        encoding.rotate(q, k, GRID, 0)
    q = q.clone().requires_grad_()
    encoding.rotate(q, k, GRID, 0)[0].sum().backward()
    assert torch.isfinite(q.grad).all()


def test_copies_and_pickles_start_without_tables():
    encoding = small("sincos2d").eval()
    want = encoding.additive(GRID)
    with encoding.shared_pass():
        for other in (copy.deepcopy(encoding), pickle.loads(pickle.dumps(encoding))):
            assert len(other._tables) == 0
            assert other._pass.tables is None
            assert torch.equal(other.additive(GRID), want)
    assert encoding.additive(GRID) is want


def test_writes_behind_the_back_of_torch_need_a_word():
    encoding = small("fope").eval()
    q, k = torch.ones(2, 1, 2, 40, 16)
    encoding.rotate(q, k, GRID, 0)
    for name, row in (("cos_coefficients", 0.0), ("sin_coefficients", 0.0)):
        getattr(encoding, name).data.fill_(row)
    encoding.drop_tables()
    got = encoding.rotate(q, k, GRID, 0)[0]
    fresh = small("fope").eval()
    fresh.load_state_dict(encoding.state_dict())
    assert torch.equal(got, fresh.rotate(q, k, GRID, 0)[0])


def test_two_threads_share_a_cache_and_no_pass():
    encoding = small("weierstrass_relative")
    grids = [(5, 8), (8, 5)]
    with torch.no_grad():
        want = {grid: encoding.bias(grid, 0) for grid in grids}
    meet = threading.Barrier(2)

    def in_a_pass(grid):
        with torch.no_grad(), encoding.shared_pass():
            meet.wait()
            first = encoding.bias(grid, 0)
            meet.wait()
            assert [key for key, _ in encoding._pass.tables] == [("offset bias", grid)]
            return first

    with ThreadPoolExecutor(2) as threads:
        for grid, got in zip(grids, threads.map(in_a_pass, grids), strict=True):
            assert torch.equal(got, want[grid])


@pytest.mark.parametrize("name", NAMES)
def test_a_step_copies_nothing_from_the_host(name, monkeypatch):
    # A GPU would wait for it. What is the same for ever may be made once.
    encoding = small(name).train()
    want = answers(encoding, GRID)

    def refuse(*args, **kwargs):
        raise AssertionError(f"torch.tensor{args}")

    monkeypatch.setattr(torch, "tensor", refuse)
    monkeypatch.setattr(torch, "as_tensor", refuse)
    monkeypatch.setattr(torch.Tensor, "new_tensor", refuse)
    assert answers(encoding, GRID).keys() == want.keys()


def test_many_grids_do_not_pile_up():
    encoding = small("sincos2d")
    for height in range(1, 100):
        encoding.additive((height, 2))
    assert len(encoding._tables) <= 32


def test_in_a_shared_pass_layers_share_one_evaluation(monkeypatch):
    encoding = small("weierstrass_relative")
    calls = []
    real = encoding._features

    def counted(grid):
        calls.append(grid)
        return real(grid)

    monkeypatch.setattr(encoding, "_features", counted)
    want = [encoding.bias(GRID, layer) for layer in range(3)]
    assert len(calls) == 3
    with encoding.shared_pass():
        got = [encoding.bias(GRID, layer) for layer in range(3)]
    assert len(calls) == 4
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    sum(x.square().sum() for x in got).backward()
    gradient = encoding.lattice_parameter.alpha_learn.grad.clone()
    encoding.zero_grad()
    sum(x.square().sum() for x in want).backward()
    again = encoding.lattice_parameter.alpha_learn.grad
    assert error_in_eps(gradient, again, torch.float32) <= CEILINGS["single"]["float32"]
    encoding.bias(GRID, 0)
    assert len(calls) == 5
    kept: PassTables = []
    with encoding.shared_pass(kept, is_complete=True):  # a layer may use it, not add to it
        encoding.bias(GRID, 0)
    assert len(calls) == 6
    assert not kept


class WithoutFloat64(TorchDispatchMode):
    """A device that has no float64: whoever makes one fails."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                assert leaf.dtype not in (torch.float64, torch.complex128), function
        return result


@pytest.mark.parametrize("name", NAMES)
def test_devices_without_float64_get_tables_of_float32(name, monkeypatch):
    encoding = small(name).eval()
    want = answers(encoding, GRID)
    encoding.drop_tables()
    monkeypatch.setattr(precision, "_WITHOUT_FLOAT64", ("cpu",))
    with WithoutFloat64():
        got = answers(encoding, GRID)
        total = sum(value.square().sum() for value in got.values())
        if total.requires_grad:
            total.backward()
    for key in want:
        assert error_in_eps(got[key], want[key], torch.float32) <= CEILINGS["single"]["float32"]
