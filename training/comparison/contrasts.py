"""The differences a study asks about by name, from the rows of its parts.

``contrasts.toml`` beside the parts lists them, in as many tables as it likes::

    [[main]]
    question = "Does it beat learned positions?"
    part = "scratch"
    of = "weierstrass"
    minus = "learned"
    is_test = true      # planned as a test; the others describe
    paper = 7.32        # percentage points, if a paper prints a number for it
    without = [0]       # seeds that are left out, if any
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from training.comparison.statistics import Accuracies, Interval, Summary, summarise
from training.comparison.tables import interval_text, points
from training.markdown import markdown_table
from wefpe_core.errors import InputError


class Contrast(BaseModel):
    """One encoding minus another, over the seeds both have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str
    part: str
    of: str
    minus: str
    is_test: bool = False
    paper: float | None = None
    without: tuple[int, ...] = ()

    def summary(self, parts: Mapping[str, Accuracies]) -> Summary:
        if self.part not in parts:
            raise InputError(f"there is no part {self.part!r}; there are {', '.join(parts)}")
        if self.of == self.minus:
            raise InputError(f"{self.question!r} compares {self.of!r} with itself")
        accuracies = parts[self.part]
        for label in (self.of, self.minus):
            if label not in accuracies:
                raise InputError(
                    f"the part {self.part!r} has no rows of {label!r}; it has those of "
                    f"{', '.join(accuracies)}"
                )
        shared = accuracies[self.of].keys() & accuracies[self.minus].keys()
        if not set(self.without) <= shared:
            raise InputError(f"{self.question!r} leaves out {self.without}, of {sorted(shared)}")
        pair = {
            label: {seed: accuracies[label][seed] for seed in sorted(shared - set(self.without))}
            for label in (self.minus, self.of)
        }
        return summarise(pair, self.minus)[1]


_TABLES = TypeAdapter(dict[str, list[Contrast]])


def read_contrasts(path: Path) -> dict[str, list[Contrast]]:
    """The tables of contrasts by name."""
    try:
        return _TABLES.validate_python(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"]))
        raise InputError(f"{path}: {where}: {found['msg']}") from error


def contrasts_markdown(contrasts: Sequence[Contrast], parts: Mapping[str, Accuracies]) -> str:
    """A row for each; with a column for the paper if any has a number of it."""
    headings = ["question", "difference", "seeds", "points", "Student 95 %", "so"]
    has_paper = any(contrast.paper is not None for contrast in contrasts)
    headings += ["in the paper"] if has_paper else []
    lines = []
    for contrast in contrasts:
        found = contrast.summary(parts)
        cells = [contrast.question, f"`{contrast.of}` − `{contrast.minus}`", str(len(found.seeds))]
        cells += [points(found.difference, signed=True), interval_text(found.student)]
        cells.append(_verdict(found.student, contrast.is_test))
        if has_paper:
            cells.append("" if contrast.paper is None else f"{contrast.paper:+.2f}")
        lines.append(cells)
    return markdown_table(headings, lines) + "\n"


def _verdict(interval: Interval | None, is_test: bool) -> str:
    """Only of a test one says who won; elsewhere, where the interval lies."""
    if interval is None:
        return "too few seeds"
    if not interval.excludes_zero:
        return "not shown" if is_test else "has 0 in it"
    if interval.low > 0.0:
        return "better" if is_test else "above 0"
    return "worse" if is_test else "below 0"
