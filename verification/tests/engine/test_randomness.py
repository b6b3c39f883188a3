"""Random numbers are functions of a seed and of what they are for."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from training.randomness import derived_seed, generator
from wefpe_core import InputTypeError


def test_a_seed_is_the_same_on_every_machine():
    # Computed once; a change of this number breaks every stored run.
    assert derived_seed(0, "order", 3) == 2488546636007336989
    assert derived_seed(2**80, "größe") == 5939955196196046765


def test_seeds_fit_torch():
    seeds = [derived_seed(seed, "word") for seed in range(200)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) >= 2**62


def test_words_are_kept_apart():
    words = [(), ("",), ("a", "bc"), ("ab", "c"), ("abc",), ("1",), (1,), (1, 1), (11,), (-1,)]
    assert len({derived_seed(0, *each) for each in words}) == len(words)
    assert derived_seed(0, 1) != derived_seed(1, 0)


@pytest.mark.parametrize("word", [1.0, True, None, b"order"])
def test_other_words_are_refused(word):
    with pytest.raises(InputTypeError, match="string or an integer"):
        derived_seed(0, word)


def test_generators_repeat_and_leave_the_global_one_alone():
    before = torch.get_rng_state()
    one = torch.rand(5, generator=generator(7, "x", 1))
    assert torch.equal(one, torch.rand(5, generator=generator(7, "x", 1)))
    assert not torch.equal(one, torch.rand(5, generator=generator(7, "x", 2)))
    assert torch.equal(before, torch.get_rng_state())
