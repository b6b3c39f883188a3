"""How the learned lattice of runs moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from training.config import Experiment
from training.encodings import AbstractEncoding
from training.encodings.elliptic_values import Frame
from training.encodings.learned_lattice import key_prefixes, learns_lattice, modules_with_lattice
from training.errors import RunError
from training.figure_style import (
    BLACK,
    BLUE,
    MARKERS,
    ORANGE,
    curve_style,
    figure_settings,
    new_figure,
)
from training.models.building import build_position_encoding
from training.study.analysis import Analysis, AnalysisCommand, Arguments, Options, PageInputs, Row
from training.study.run_groups import TrainingLog, group_trainings, read_trainings, runs_text
from wefpe_core import Lattice
from wefpe_core.errors import InputError

_CELLS_SHOWN = 6  # trainings that the figure of cells shows

_CAPTION = (
    "The lattice from the log of the run; step 0 is the start that the config gives. τ = ω3/ω1. "
    "The fundamental domain of the modular group is shaded in the half plane: a τ outside of it "
    "describes a lattice that some τ inside describes as well. A cell has the corners 0, 2ω1, "
    "2ω1 + 2ω3 and 2ω3, which are poles. Dots are the patches of the training images; the square "
    "is the patch at the upper left of the image."
)


@dataclass(frozen=True)
class LatticePath:
    """The lattices of one training, beginning with that of the start."""

    label: str
    seed: int
    steps: tuple[int, ...]
    omega1: tuple[float, ...]
    omega3: tuple[complex, ...]
    frame: Frame  # how the grid of the training images lies on them

    @property
    def tau(self) -> list[complex]:
        return [w3 / w1 for w1, w3 in zip(self.omega1, self.omega3, strict=True)]

    def lattice(self, place: int) -> Lattice:
        return Lattice(self.omega1[place], self.omega3[place])

    def points(self, place: int) -> npt.NDArray[np.complex128]:
        """Where the patches lie in the complex plane."""
        u, v = self.frame.centres(torch.float64, torch.device("cpu"))
        points: npt.NDArray[np.complex128] = self.frame.on(self.lattice(place), u, v).numpy()
        return points

    def distance_to_pole(self, place: int) -> float:
        """The smallest distance of a patch from a lattice point, in units of omega1."""
        w1, w3 = self.omega1[place], self.omega3[place]
        poles = np.array([2 * m * w1 + 2 * n * w3 for m in range(-1, 3) for n in range(-1, 3)])
        return float(np.abs(self.points(place)[:, None] - poles).min() / w1)


def read_paths(label: str, training: TrainingLog) -> list[LatticePath]:
    """The path of each lattice that one training learned.

    Raises
    ------
    InputError
        The encoding has no lattice, or none that is learned.
    RunError
        The log does not have it.
    """
    encoding = build_position_encoding(training.experiment)
    owners = modules_with_lattice(encoding)
    if not owners:
        raise InputError(f"{training.path}: {label} has no lattice")
    learned = learned_owners(training.experiment, encoding)
    if not learned:
        raise InputError(f"{training.path}: the lattice of {label} is not learned, it stays put")
    paths = []
    for number, (name, prefix) in enumerate(key_prefixes(owners).items(), start=1):
        logged = _logged(training.rows, prefix)
        if name in learned and logged:
            start: Lattice = owners[name].lattice()
            found = {0: (float(start.omega1.real), complex(start.omega3))} | logged
            steps = sorted(found)
            paths.append(
                LatticePath(
                    f"{label}, lattice {number}" if len(owners) > 1 else label,
                    training.experiment.seed,
                    tuple(steps),
                    tuple(found[step][0] for step in steps),
                    tuple(found[step][1] for step in steps),
                    _frame(encoding, name),
                )
            )
    if not paths:
        raise RunError(f"{training.path}: the log does not have the lattice of {label}")
    return paths


def _logged(rows: Sequence[Mapping[str, Any]], prefix: str) -> dict[int, tuple[float, complex]]:
    """omega1 and omega3 by step, from the rows of the log."""
    found = {}
    for row in rows:
        state = row.get("encoding", {})
        if f"{prefix}omega1" in state:
            w1, re, im = (state[prefix + key] for key in ("omega1", "omega3_real", "omega3_imag"))
            found[int(row["step"])] = (float(w1), complex(re, im))
    return found


def _frame(encoding: AbstractEncoding, name: str) -> Frame:
    """How the grid of the training images lies on the lattice of that owner."""
    owner: Any = encoding.get_submodule(name)
    if not hasattr(owner, "alpha_u"):  # it is a part of an encoding that has it
        owner = encoding.get_submodule(name.rpartition(".")[0])
    grid = encoding.size.grid
    if hasattr(owner, "frame"):
        frame: Frame = owner.frame(grid)
        return frame
    return Frame(grid, owner.alpha_u, owner.alpha_v)


def learned_owners(experiment: Experiment, encoding: AbstractEncoding) -> list[str]:
    """The names of the modules of an encoding whose lattice moves in runs of this config."""
    if experiment.optimizer.encoding_rate == 0:
        return []
    return [name for name, owner in modules_with_lattice(encoding).items() if learns_lattice(owner)]


def learns_a_lattice(experiment: Experiment) -> bool:
    """Whether there is a path to show for runs of this config."""
    return bool(learned_owners(experiment, build_position_encoding(experiment)))


def lattice_rows(path: LatticePath) -> list[Row]:
    """A row for each step that was logged."""
    return [
        {
            "label": path.label,
            "seed": path.seed,
            "step": step,
            "omega1": w1,
            "omega3_real": w3.real,
            "omega3_imag": w3.imag,
            "tau_real": tau.real,
            "tau_imag": tau.imag,
        }
        for step, w1, w3, tau in zip(path.steps, path.omega1, path.omega3, path.tau, strict=True)
    ]


def summary(path: LatticePath) -> dict[str, Any]:
    """The two ends of a path."""
    tau = path.tau
    moved = float(sum(abs(b - a) for a, b in pairwise(tau)))
    return {
        "label": path.label,
        "seed": path.seed,
        "steps": path.steps[-1],
        "tau_start": [tau[0].real, tau[0].imag],
        "tau_end": [tau[-1].real, tau[-1].imag],
        "length_of_path": moved,
        "omega1_start": path.omega1[0],
        "omega1_end": path.omega1[-1],
        "pole_distance_start": path.distance_to_pole(0),
        "pole_distance_end": path.distance_to_pole(-1),
    }


# --- Figures -------------------------------------------------------------------------------


def draw_paths(paths: Sequence[LatticePath]) -> Any:
    """Im tau, the half-periods, and tau in the half plane."""
    figure = new_figure(7.4, 2.7 + 0.13 * len({path.label for path in paths}))
    aspect, sizes, plane = figure.subplots(1, 3, width_ratios=[1.0, 1.0, 0.8])
    _draw_domain(plane, [tau for path in paths for tau in path.tau])
    styles = {
        label: curve_style(i) for i, label in enumerate(dict.fromkeys(p.label for p in paths))
    }
    seen: set[str] = set()
    for path in paths:
        style: dict[str, Any] = styles[path.label] | {"marker": ""}
        label = "" if path.label in seen else path.label
        seen.add(path.label)
        tau = np.array(path.tau)
        aspect.plot(path.steps, tau.imag, label=label, **style)
        colour = style["color"]
        sizes.plot(path.steps, path.omega1, color=colour, linestyle="--")
        sizes.plot(path.steps, np.abs(path.omega3), color=colour, linestyle="-")
        plane.plot(tau.real, tau.imag, **style)
        plane.plot(tau[-1].real, tau[-1].imag, "o", color=colour)
        plane.plot(tau[0].real, tau[0].imag, "x", color=BLACK)
    plane.plot([], [], "x", color=BLACK, label="start")
    plane.plot([], [], "o", color="0.4", label="end")
    plane.legend(loc="lower right")
    sizes.plot([], [], color="0.4", linestyle="--", label="ω1")
    sizes.plot([], [], color="0.4", linestyle="-", label="|ω3|")
    sizes.legend()
    aspect.set(title="Im τ", xlabel="step")
    sizes.set(title="half-periods", xlabel="step")
    for panel in (aspect, sizes):
        panel.grid()
        panel.ticklabel_format(axis="y", useOffset=False)
    figure.legend(*aspect.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _draw_domain(panel: Any, tau: Sequence[complex]) -> None:
    """The upper half plane with the fundamental domain, a little larger than the paths."""
    low = min(0.55, *(each.imag - 0.1 for each in tau))
    high = max(1.7, *(each.imag + 0.2 for each in tau))
    wide = max(0.75, *(abs(each.real) + 0.15 for each in tau))
    x = np.linspace(-0.5, 0.5, 101)
    panel.fill_between(x, np.sqrt(1.0 - x * x), high, color="0.9", linewidth=0)
    panel.plot(x, np.sqrt(1.0 - x * x), color="0.6", linewidth=0.8)
    panel.vlines([-0.5, 0.5], np.sqrt(0.75), high, color="0.6", linewidth=0.8)
    panel.set(xlim=(-wide, wide), ylim=(low, high), xlabel="Re τ", title="path of τ")
    panel.set_ylabel("Im τ")


def draw_cells(paths: Sequence[LatticePath]) -> Any:
    """The period cell at the start and at the end, with the patches and the poles."""
    shown = paths[:_CELLS_SHOWN]
    figure = new_figure(6.0, 2.9 * len(shown))
    parts = figure.subfigures(len(shown), 1, squeeze=False)[:, 0]
    for part, path in zip(parts, shown, strict=True):
        part.suptitle(f"{path.label}, seed {path.seed}", fontsize=8.5)
        left, right = part.subplots(1, 2, sharex=True, sharey=True)
        for panel, place, when in ((left, 0, "start"), (right, -1, f"step {path.steps[-1]}")):
            _draw_cell(panel, path, place)
            tau = path.tau[place]
            number = f"{tau.imag:.3f}i" if tau.real == 0 else f"{tau.real:.3f} + {tau.imag:.3f}i"
            panel.set(title=f"{when}: τ = {number}", xlabel="Re z")
        left.set_ylabel("Im z")
    handles = left.get_legend_handles_labels()
    parts[-1].legend(*handles, loc="outside lower center", ncols=3)
    return figure


def _draw_cell(panel: Any, path: LatticePath, place: int) -> None:
    w1, w3 = path.omega1[place], path.omega3[place]
    corners = np.array([0, 2 * w1, 2 * w1 + 2 * w3, 2 * w3, 0], dtype=np.complex128)
    points = path.points(place)
    panel.plot(corners.real, corners.imag, color="0.6", linewidth=0.8)
    panel.plot(points.real, points.imag, ".", color=BLUE, markersize=2.5, label="patches")
    panel.plot(
        points[0].real, points[0].imag, MARKERS[1], color=BLUE, markersize=4, label="upper left"
    )
    poles = corners[:4]
    label = "lattice points (poles)"
    panel.plot(poles.real, poles.imag, "X", color=ORANGE, markersize=6, label=label)
    panel.set_aspect("equal")


# --- The analysis --------------------------------------------------------------------------


def lattice_analysis(runs: Options.Runs) -> Analysis:
    """Im tau and the half-periods over the steps, the path of tau, and the cells at both ends.

    Runs may still be going on; their encodings must learn a lattice. Of a run in two parts the last
    is shown, whose weights are kept.
    """
    last = {training.path: training for training in read_trainings(runs)}
    found = [
        (path, training.experiment)
        for label, group in group_trainings(last.values()).items()
        for training in group
        for path in read_paths(label, training)
    ]
    paths = [path for path, _ in found]
    with figure_settings():
        figures = {"learned_lattice": draw_paths(paths), "period_cells": draw_cells(paths)}
    labelled = ((path.label, experiment) for path, experiment in found)
    return Analysis(
        name="lattice",
        title="The learned lattice",
        caption=f"{_caption(paths)} {runs_text(labelled)}",
        figures=figures,
        numbers={"trainings": [summary(path) for path in paths]},
        tables={"lattices": [row for path in paths for row in lattice_rows(path)]},
    )


def _caption(paths: Sequence[LatticePath]) -> str:
    grids = " and ".join(dict.fromkeys("{}x{}".format(*path.frame.grid) for path in paths))
    text = f"{_CAPTION} Grid of the training images: {grids} patches."
    if len(paths) > _CELLS_SHOWN:
        text += f" Cells of the first {_CELLS_SHOWN} are shown."
    if any(", lattice " in path.label for path in paths):
        text += " The lattices of a combined encoding are numbered as its parts that have one."
    return text


def _on_page(page: PageInputs, arguments: Arguments) -> Arguments | None:
    runs = [path for path, experiment in page.runs.items() if learns_a_lattice(experiment)]
    return {"runs": runs} if runs else None


COMMAND = AnalysisCommand(lattice_analysis, _on_page)
