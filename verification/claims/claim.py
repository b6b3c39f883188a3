"""What a claim of the paper is, and how the verdicts on its parts make one verdict."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """What was found about a statement."""

    TRUE = "true"
    FALSE = "false"
    PARTLY = "partly"
    AMBIGUOUS = "ambiguous"


class Finding(NamedTuple):
    """The verdict, the sentence that supports it, and every figure behind it."""

    verdict: Verdict
    evidence: str
    figures: dict[str, float]


class Claim(NamedTuple):
    """A statement of the paper and the check that judges it.

    `place` names lines and labels of the paper's source (arXiv:2508.19167); `correction` is the
    right statement; `check` computes everything again each time it is called.
    """

    id: str
    place: str
    statement: str
    correction: str
    check: Callable[[], Finding]


def judge_parts(*parts: bool) -> Verdict:
    """A statement of several parts is true if all hold, false if none does."""
    if all(parts):
        return Verdict.TRUE
    return Verdict.PARTLY if any(parts) else Verdict.FALSE


def judge_readings(*readings: bool) -> Verdict:
    """A statement with several readings is ambiguous where its truth depends on the reading."""
    if all(readings):
        return Verdict.TRUE
    return Verdict.AMBIGUOUS if any(readings) else Verdict.FALSE
