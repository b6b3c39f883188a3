"""Paired statistics of a few seeds.

Runs of two encodings with the same seed share the images they train on, their order and
augmentation, and the weights of the model at the start, so what the seed draws counts for neither.
With five seeds no interval is exact: the bootstrap's is too narrow, Student's rests on normality;
both are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wefpe_core.errors import InputError

Accuracies = Mapping[str, Mapping[int, float]]  # label -> seed -> test accuracy

_RESAMPLES = 10_000
_COVERAGE = 0.95
FEWEST = 3  # seeds of an interval; of two the spread is anybody's guess
_FEWEST_TO_RESAMPLE = 5  # of three the bootstrap's interval is from the least to the largest


@dataclass(frozen=True)
class Interval:
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True)
class Summary:
    """One arm: its accuracy and its difference from the reference over the seeds both have."""

    label: str
    seeds: tuple[int, ...]
    mean: float
    deviation: float | None  # of the sample; None for one seed
    difference: float | None  # None for the reference itself
    bootstrap: Interval | None
    student: Interval | None


def summarise(accuracies: Accuracies, reference: str) -> list[Summary]:
    """Every arm in the order given, against the reference."""
    if reference not in accuracies:
        raise InputError(f"the reference {reference!r} is not among {', '.join(accuracies)}")
    base = accuracies[reference]
    summaries = []
    for label, found in accuracies.items():
        values = np.array(list(found.values()))
        shared = [seed for seed in found if seed in base]
        differences = np.array([found[seed] - base[seed] for seed in shared])
        is_compared = label != reference and len(shared) > 0
        pairs = len(shared) if is_compared else 0
        summaries.append(
            Summary(
                label,
                tuple(found),
                mean=float(values.mean()) if len(values) else float("nan"),
                deviation=float(values.std(ddof=1)) if len(values) > 1 else None,
                difference=float(differences.mean()) if is_compared else None,
                bootstrap=bootstrap_interval(differences) if pairs >= _FEWEST_TO_RESAMPLE else None,
                student=student_interval(differences) if pairs >= FEWEST else None,
            )
        )
    return summaries


def bootstrap_interval(differences: Sequence[float] | np.ndarray) -> Interval:
    """Percentile interval of the mean, 10,000 resamples, always the same ones."""
    values = np.asarray(differences, dtype=float)
    draws = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    tail = 50.0 * (1.0 - _COVERAGE)
    low, high = np.percentile(values[draws].mean(axis=1), [tail, 100.0 - tail])
    return Interval(float(low), float(high))


def student_interval(differences: Sequence[float] | np.ndarray) -> Interval:
    """The mean plus and minus Student's quantile times its standard error."""
    from scipy.stats import t

    values = np.asarray(differences, dtype=float)
    half = t.ppf(0.5 + _COVERAGE / 2.0, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return Interval(float(values.mean() - half), float(values.mean() + half))
