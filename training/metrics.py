"""What a run is judged by: the share of right answers, or the error of predicted fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Metric:
    """A number from 0 up, shown in per cent.

    Results, logs and rows hold it under `name`, with ``test_`` or ``validation_`` before it.
    """

    name: str
    title: str
    is_error: bool  # the smaller the better

    def is_better(self, value: float, other: float) -> bool:
        return value < other if self.is_error else value > other

    def best(self, values: Iterable[float]) -> float:
        return min(values) if self.is_error else max(values)


ACCURACY = Metric("accuracy", "accuracy", is_error=False)
RELATIVE_ERROR = Metric("relative_error", "relative L2 error", is_error=True)
METRICS = {metric.name: metric for metric in (ACCURACY, RELATIVE_ERROR)}


def metric_of(numbers: Mapping[str, Any], prefix: str = "") -> Metric:
    """The metric that a result, a row of a table or a row of a log holds; else accuracy."""
    return next((m for m in METRICS.values() if prefix + m.name in numbers), ACCURACY)
