"""Make receipts of what a report found: one for each backend and device."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from verification.functions import FUNCTIONS
from verification.judge import JudgedRow
from verification.precision_report import PrecisionReport
from wefpe_core.receipts import Measured, Receipt

_DEVICES = ("cpu", "cuda", "gpu", "tpu", "mps")
_EMULATED = "(emulated)"
_FUNCTION_OF = {value: name for name, each in FUNCTIONS.items() for value in each.values}


class Place(NamedTuple):
    """What the label of a subject says: in "torch cpu tensors" the form is "tensors"."""

    backend: str
    device: str
    form: str

    @classmethod
    def of(cls, label: str) -> Place:
        backend, *words = label.split()
        device = words.pop(0) if words and words[0] in _DEVICES else "cpu"
        if words and words[0] == _EMULATED:
            device = f"{device} {words.pop(0)}"
        return cls(backend, device, " ".join(words))

    @property
    def title(self) -> str:
        """The backend and, unless it is the processor, the device."""
        return self.backend if self.device == "cpu" else f"{self.backend} {self.device}"


def receipts_of(report: PrecisionReport, size: str) -> list[Receipt]:
    """A receipt for each backend and device of a report; none if it was interrupted."""
    if report.interrupted:
        return []
    when = datetime.now(UTC).isoformat(timespec="seconds")
    groups: dict[tuple[str, str], list[JudgedRow]] = {}
    for row in report.judged:
        place = Place.of(row.subject)
        groups.setdefault((place.backend, place.device), []).append(row)
    return [
        Receipt(
            backend=backend,
            device=device,
            size=size,
            when=when,
            measured=_measured(rows),
            problems=tuple(_problems(report, {row.subject for row in rows})),
            decided_by=report.decided_by[backend, device],
        )
        for (backend, device), rows in groups.items()
    ]


def _measured(rows: Sequence[JudgedRow]) -> tuple[Measured, ...]:
    """One entry for each value, dtype and form: the worst of its regions."""
    pooled: dict[tuple[str, str, str], list[JudgedRow]] = {}
    for row in rows:
        pooled.setdefault((row.subject, row.dtype, row.function), []).append(row)
    return tuple(
        Measured(
            function=_FUNCTION_OF[value],
            value=value,
            dtype=dtype,
            form=Place.of(subject).form,
            points=sum(row.count for row in group),
            largest=max(row.worst.worst for row in group),
            ceiling=group[0].ceiling,
            passes=all(row.passes for row in group),
        )
        for (subject, dtype, value), group in pooled.items()
    )


def _problems(report: PrecisionReport, subjects: set[str]) -> list[str]:
    """What failed besides rows: laws that these subjects break, and an oracle that is in doubt."""
    broken = [
        f"{each.law}: {each.largest:.3g} eps, ceiling {each.ceiling:g}"
        for each in report.laws
        if each.subject in subjects and not each.holds
    ]
    doubts = [each.problem for each in report.agreements if not each.holds]
    return broken + doubts
