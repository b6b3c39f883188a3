"""What an encoding asks of torch in a training step, beside what the model itself asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from rich.table import Table
from torch import Tensor, nn

from training.encodings import AbstractEncoding
from training.encodings.learned_lattice import LatticeParameter
from training.encodings.weierstrass_hybrid import HybridEncoding
from verification.bench import benchmark
from verification.bench.benchmark import Work
from verification.bench.count_operators import (
    CompiledCalls,
    Operators,
    Step,
    count_compiled,
    count_step,
)
from verification.judge import load_contracts

# Counts one run of a work on a device, by the names of what is counted: launches, copies, waits.
DeviceCounter = Callable[[Work], Mapping[str, int]]


# --- Steps ------------------------------------------------------------------------------------


def encoding_step(encoding: AbstractEncoding, batch: int, device: str, layers: int) -> Step | None:
    """What the encoding computes in one step for this many layers; None if it computes nothing."""
    grid = encoding.size.grid
    shape = (batch, encoding.size.num_heads, grid[0] * grid[1], encoding.size.head_dim)
    q, k = (torch.randn(shape, device=device).requires_grad_() for _ in range(2))

    def answers() -> list[Tensor]:
        found: list[Tensor | None] = [encoding.additive(grid), encoding.prefix(1)]
        with encoding.shared_pass():
            for layer in range(layers):
                if encoding.kind in ("rotary", "combined"):
                    found += encoding.rotate(q, k, grid, layer)
                found.append(encoding.bias(grid, layer))
        return [answer for answer in found if answer is not None]

    upstream = [torch.ones_like(answer) for answer in answers()]
    if not upstream:
        return None

    def backward(answers: Sequence[Tensor]) -> None:
        for tensor in (q, k, *encoding.parameters()):
            tensor.grad = None
        pairs = [p for p in zip(answers, upstream, strict=True) if p[0].requires_grad]
        if pairs:
            torch.autograd.backward([a for a, _ in pairs], [b for _, b in pairs])

    return Step(answers, backward)


def model_step(model: nn.Module, images: Tensor, labels: Tensor) -> Step:
    """The forward and backward pass of a training step, without the optimiser."""

    def backward(losses: Sequence[Tensor]) -> None:
        model.zero_grad(set_to_none=True)
        losses[0].backward()

    return Step(lambda: [F.cross_entropy(model(images), labels)], backward)


# --- Counts -----------------------------------------------------------------------------------


def budget(what: str, how: str) -> float:
    """A ceiling of the table ``operators`` of contracts.toml."""
    ceiling: float = load_contracts()["operators"][what][how]["largest"]
    return ceiling


def learned_lattices(encoding: AbstractEncoding) -> int:
    """How many lattices the encoding learns: several if it is combined of such encodings."""
    return sum(
        isinstance(module, LatticeParameter) and module.learned != "nothing"
        for module in encoding.modules()
    )


def ceilings_of(encoding: AbstractEncoding) -> dict[str, float]:
    """The budgets of a step of one layer, eager and compiled; none if no lattice is learned."""
    lattices = learned_lattices(encoding)
    if not lattices:
        return {}
    ceilings = {how: lattices * budget("encoding", how) for how in ("eager", "compiled")}
    if _has_hidden_layers(encoding):
        for way in ("eager", "compiled"):
            ceilings[way] += budget("hidden layers", way)
    if isinstance(encoding, HybridEncoding):
        ceilings["eager"] += budget("mixing with a table", "eager")
    return ceilings


def _has_hidden_layers(encoding: AbstractEncoding) -> bool:
    return any(
        isinstance(module, nn.Sequential) and sum(isinstance(x, nn.Linear) for x in module) > 1
        for module in encoding.modules()
    )


@dataclass(frozen=True)
class StepCounts:
    """The counts of one step: eager, compiled if that was asked for, on a device if it counts."""

    forward: Operators = field(default_factory=Operators)
    backward: Operators = field(default_factory=Operators)
    compiled: CompiledCalls | None = None
    device: Mapping[str, int] = field(default_factory=dict)

    @property
    def both(self) -> Operators:
        return self.forward + self.backward

    def as_json(self) -> dict[str, Any]:
        parts = {"forward": self.forward, "backward": self.backward}
        return {
            **{name: part.as_json() for name, part in parts.items()},
            "compiled": None if self.compiled is None else self.compiled.as_json(),
            "device": dict(self.device),
        }


def counts_of(
    step: Step | None, *, compiled: bool, count_device: DeviceCounter | None = None
) -> StepCounts:
    """All counts of a step; zeros if it computes nothing."""
    if step is None:
        return StepCounts(compiled=CompiledCalls() if compiled else None)
    return StepCounts(
        *count_step(step),
        count_compiled(step) if compiled else None,
        {} if count_device is None else count_device(step),
    )


@dataclass(frozen=True)
class EncodingCounts:
    """One row: the encoding in a step of one layer, which has a budget, and of the whole model."""

    name: str
    model: StepCounts  # a step of the same model without any encoding
    one_layer: StepCounts = field(default_factory=StepCounts)
    step: StepCounts = field(default_factory=StepCounts)
    ceilings: Mapping[str, float] = field(default_factory=dict)  # empty: there is no budget
    problem: str | None = None  # why there are no counts

    @property
    def eager_share(self) -> float:
        """The launching operators of the encoding over those of the model, in percent."""
        return 100.0 * self.step.both.launching / self.model.both.launching

    @property
    def compiled_share(self) -> float | None:
        """The same of compiled kernels, the encoding for one layer."""
        if self.one_layer.compiled is None or self.model.compiled is None:
            return None
        return 100.0 * self.one_layer.compiled.total / self.model.compiled.total

    @property
    def is_kept(self) -> bool | None:
        if self.problem or not self.ceilings:
            return False if self.problem else None
        compiled = self.one_layer.compiled
        is_kept = self.one_layer.both.total <= self.ceilings["eager"]
        return is_kept and (compiled is None or compiled.total <= self.ceilings["compiled"])

    def as_json(self) -> dict[str, Any]:
        counts = {key: getattr(self, key).as_json() for key in ("one_layer", "step", "model")}
        derived = {"eager_share": self.eager_share, "compiled_share": self.compiled_share}
        known: dict[str, Any] = {"name": self.name, "ceilings": dict(self.ceilings)}
        known |= {"problem": self.problem, "is_kept": self.is_kept}
        return known | counts | derived


def count_encoding(
    name: str,
    encoding: AbstractEncoding,
    model: StepCounts,
    *,
    device: str,
    compiled: bool,
    count_device: DeviceCounter | None = None,
) -> EncodingCounts:
    """Count an encoding alone. The batch is 2: counts do not depend on it."""
    one_layer = encoding_step(encoding, 2, device, layers=1)
    step = encoding_step(encoding, 2, device, layers=encoding.size.depth)
    return EncodingCounts(
        name,
        model,
        counts_of(one_layer, compiled=compiled),
        counts_of(step, compiled=False, count_device=count_device),
        ceilings_of(encoding),
    )


def count_table(rows: Sequence[EncodingCounts]) -> Table:
    """The counts of all rows, and those of the model itself below them."""
    table = benchmark.new_table(
        "Operators in a step: the encoding alone, for one layer and for all",
        "encoding",
        *("one layer", "forward", "backward", "launching", "of model", "MB"),
        *("compiled", "of model"),
    )
    for row in rows:
        if row.problem:
            name, numbers = f"{row.name}\n  {row.problem}", [""] * 8
        else:
            name = row.name
            numbers = [
                f"{row.one_layer.both.total:,}",
                *_operators(row.step),
                f"{benchmark.three_digits(row.eager_share)} %",
                benchmark.three_digits(row.step.both.new_bytes / 1e6),
                _compiled(row.one_layer),
                ""
                if row.compiled_share is None
                else f"{benchmark.three_digits(row.compiled_share)} %",
            ]
        limits = " / ".join(f"{ceiling:g}" for ceiling in row.ceilings.values())
        benchmark.add_row(table, name, numbers, f"<= {limits}" if limits else "", row.is_kept)
    for model in [row.model for row in rows[:1]]:
        numbers = ["", *_operators(model), "", "", _compiled(model), ""]
        benchmark.add_row(table, "the model itself", numbers, "", None)
    return table


def device_table(rows: Sequence[EncodingCounts]) -> Table | None:
    """What a device has counted in the steps, if one has."""
    counted = list(dict.fromkeys(key for row in rows for key in row.model.device))
    if not counted:
        return None
    table = benchmark.new_table("On the device in a step: the encoding alone", "encoding", *counted)
    sound = [row for row in rows if not row.problem]
    named = [(row.name, row.step) for row in sound] + [("the model itself", rows[0].model)]
    for name, counts in named:
        numbers = [f"{counts.device.get(key, 0):,}" for key in counted]
        benchmark.add_row(table, name, numbers, "", None)
    return table


def _operators(counts: StepCounts) -> list[str]:
    parts = (counts.forward.total, counts.backward.total, counts.both.launching)
    return [f"{number:,}" for number in parts]


def _compiled(counts: StepCounts) -> str:
    return "" if counts.compiled is None else f"{counts.compiled.total:,}"
