"""Position tables: exact under autocast, kept where that is safe, made anew where it is not."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from training.encodings import encoding as precision
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


@pytest.mark.parametrize("name", [*ADDITIVE, "sincos2d"])
def test_in_eval_a_table_is_made_once_per_grid(name):
    encoding = small(name).eval()
    with torch.no_grad():
        first, other = encoding.additive(GRID), encoding.additive((8, 5))
        assert encoding.additive(GRID) is first
        assert encoding.additive((8, 5)) is other
    assert first.grad_fn is None


@pytest.mark.parametrize("name", ADDITIVE)
def test_a_kept_table_follows_its_parameters(name):
    encoding = small(name).eval()
    with torch.no_grad():
        before = encoding.additive(GRID).clone()
        for parameter in encoding.parameters():
            parameter.add_(0.1)
        after = encoding.additive(GRID)
        assert not torch.equal(before, after)
        encoding.load_state_dict(small(name).state_dict())
        assert torch.equal(encoding.additive(GRID), before)
        assert encoding.double().additive(GRID).dtype == torch.float64


def test_training_and_gradients_never_see_a_kept_table():
    encoding = small("weierstrass").eval()
    with torch.no_grad():
        kept = encoding.additive(GRID)
    for _ in range(2):  # each with a graph of its own
        encoding.additive(GRID).sum().backward()
    encoding.train()
    assert len(encoding._tables) == 0
    with torch.no_grad():
        assert encoding.additive(GRID) is not encoding.additive(GRID)
        assert torch.equal(encoding.additive(GRID), kept)


def test_a_table_made_in_inference_mode_serves_training_later():
    encoding = small("rope_axial")
    q, k = torch.ones(2, 1, 2, 40, 16)
    with torch.inference_mode():
        encoding.rotate(q, k, GRID, 0)
    q = q.clone().requires_grad_()
    encoding.rotate(q, k, GRID, 0)[0].sum().backward()
    assert torch.isfinite(q.grad).all()


def test_copies_and_pickles_start_without_tables():
    encoding = small("weierstrass").eval()
    with torch.no_grad():
        want = encoding.additive(GRID)
        for other in (copy.deepcopy(encoding), pickle.loads(pickle.dumps(encoding))):
            assert len(other._tables) == 0
            assert torch.equal(other.additive(GRID), want)
            other.beta_pos.zero_()
            assert not other.additive(GRID).any()
        assert encoding.additive(GRID) is want


def test_writes_behind_the_back_of_torch_need_a_word():
    encoding = small("weierstrass").eval()
    with torch.no_grad():
        encoding.additive(GRID)
        encoding.beta_pos.data.zero_()
        encoding.drop_tables()
        assert not encoding.additive(GRID).any()


def test_the_word_reaches_the_encodings_an_encoding_is_made_of():
    encoding = small("weierstrass_hybrid").eval()
    with torch.no_grad():
        before = encoding.additive(GRID)
        encoding.wef.offset.data += 1.0
        encoding.drop_tables()
        want = before + encoding.gate()
        torch.testing.assert_close(encoding.additive(GRID), want, rtol=0, atol=1e-6)


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
