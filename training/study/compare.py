"""Train every encoding with every seed, each run in its own process; finished runs are kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from training.config import Experiment, change_config, dump_toml
from training.encodings.registry import parse_encoding_label
from training.engine.run_folder import RunFolder, same_config, write_whole
from training.errors import RunError
from training.models.building import build_position_encoding
from training.study.statistics import (
    RUNS,
    Summary,
    draw_comparison,
    runs_csv,
    summarise,
    summary_markdown,
)
from wefpe_core.errors import InputError

# --- Arms ----------------------------------------------------------------------------------

_SECTION = "position_encoding"
# The keys of an arm that are keys of the config and not options of the encoding. ``positions``
# says what becomes of the learned positions of pretrained weights.
_OF_THE_CONFIG = {
    "scale_match": f"{_SECTION}.scale_match",
    "backend": f"{_SECTION}.backend",
    "positions": "model.positions",
}


@dataclass(frozen=True)
class Arm:
    """One encoding of a comparison, with options as in ``weierstrass:fidelity=authors,g3=0.4``.

    Options in the config for the same encoding stay; another encoding starts from its defaults.
    """

    label: str  # as typed
    overrides: tuple[str, ...]  # the keys that it changes in the config

    @property
    def folder_name(self) -> str:
        kept = (c if c.isalnum() or c in "._-=" else "_" for c in self.label)
        return "".join(kept)


def parse_arm(text: str) -> Arm:
    """An arm from ``name`` or ``name:option=value,option=value``."""
    label = parse_encoding_label(text)
    overrides = [f"{_SECTION}.name={label.name}"]
    for key, value in label.assignments.items():
        overrides.append(f"{_OF_THE_CONFIG.get(key, f'{_SECTION}.options.{key}')}={value}")
    return Arm(label.text, tuple(overrides))


def is_of_an_arm(key: str) -> bool:
    """Whether arms of a comparison may differ in this key of the config."""
    return key.startswith(f"{_SECTION}.") or key in _OF_THE_CONFIG.values()


def parse_arms(texts: Sequence[str]) -> list[Arm]:
    """The arms in order; an arm that is named twice is an error."""
    arms = [parse_arm(text) for text in texts]
    labels = [arm.label for arm in arms]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"the encoding {label!r} is named twice")
    return arms


def control_arms(base: Experiment) -> list[Arm]:
    """Encodings that share a property with WEF-PE, which it has to beat as well.

    Its table starts at a scale many times that of a learned one, which alone may matter, so there
    are learned and sincos2d at that scale. It is also a smooth function of the place with few
    parameters, so there are the same layers on the coordinates z and z^2 in place of wp' and wp.
    """
    reference = change_config(base, parse_arm("weierstrass").overrides)
    encoding = build_position_encoding(reference)
    table = encoding.additive(encoding.size.grid)
    assert table is not None
    scale = f"{float(table.detach().square().mean().sqrt()):.3g}"
    texts = [f"{name}:scale_match={scale}" for name in ("learned", "sincos2d")]
    return parse_arms([*texts, "weierstrass:function=powers"])


# --- Runs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison."""

    arm: Arm
    seed: int
    experiment: Experiment
    folder: RunFolder

    @property
    def title(self) -> str:
        return f"{self.arm.label}, seed {self.seed}"


@dataclass
class Sweep:
    """Arms times seeds on one config."""

    base: Experiment
    arms: Sequence[Arm]
    seeds: Sequence[int]
    path: Path
    reference: str = ""  # the label of an arm; the first by default
    planned: list[PlannedRun] = field(init=False)

    def __post_init__(self) -> None:
        self.reference = self.reference or self.arms[0].label
        if self.reference not in [arm.label for arm in self.arms]:
            labels = ", ".join(arm.label for arm in self.arms)
            raise InputError(f"the reference {self.reference!r} is not among {labels}")
        # Every config is checked before the first run starts. Seeds are in the outer loop, so that
        # a comparison that is stopped has whole pairs.
        self.planned = [
            PlannedRun(
                arm,
                seed,
                change_config(self.base, [*arm.overrides, f"seed={seed}"]),
                RunFolder(self.path / f"{arm.folder_name}-seed{seed}"),
            )
            for seed in self.seeds
            for arm in self.arms
        ]
        if RunFolder(self.path).config.exists():
            raise RunError(f"{self.path} is the folder of a single run; choose another --folder")
        for each in self.planned:
            self._check_folder(each)

    def _check_folder(self, planned: PlannedRun) -> None:
        done = planned.folder.read_result()
        if done is not None and not same_config(planned.folder, planned.experiment):
            raise RunError(
                f"{planned.folder.path} holds a finished run of another config; "
                "give the comparison another --folder"
            )

    def unfinished(self) -> list[PlannedRun]:
        return [each for each in self.planned if each.folder.read_result() is None]

    def train(self, *, jobs: int, console: Console) -> None:
        """Train the unfinished runs, `jobs` at a time; a failure does not stop the others."""
        waiting = self.unfinished()
        done = len(self.planned) - len(waiting)
        console.print(f"{len(self.planned)} runs, {done} finished already", highlight=False)
        with ThreadPoolExecutor(jobs) as pool:
            running = {pool.submit(_train_apart, each, jobs): each for each in waiting}
            try:
                for future in as_completed(running):
                    done += 1
                    outcome = _outcome(running[future], future.result())
                    console.print(f"{done}/{len(self.planned)} {outcome}", highlight=False)
            except BaseException:  # Ctrl-C also reaches the runs under way; no others begin
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def write_tables(self) -> list[Summary]:
        """Write CSV, Markdown and picture of the finished runs."""
        rows: list[dict[str, Any]] = []
        accuracies: dict[str, dict[int, float]] = {}
        for each in self.planned:
            result = each.folder.read_result()
            if result is not None:
                rows.append(result | {"encoding": each.arm.label})
                found = accuracies.setdefault(each.arm.label, {})
                found[each.seed] = result["test_accuracy"]
        if self.reference not in accuracies:
            raise RunError(f"no run of the reference {self.reference!r} is finished in {self.path}")
        summaries = summarise(accuracies, self.reference)
        write_whole(self.path / RUNS, runs_csv(rows))
        write_whole(self.path / "comparison.md", summary_markdown(summaries, self.reference))
        draw_comparison(self.path / "comparison.png", summaries, accuracies, self.reference)
        return summaries


def _outcome(planned: PlannedRun, problem: str | None) -> str:
    if problem is not None:
        return f"{planned.title}: FAILED: {problem}"
    result = planned.folder.read_result() or {}
    return f"{planned.title}: test accuracy {result['test_accuracy']:.2%}"


def _train_apart(planned: PlannedRun, jobs: int) -> str | None:
    """Run ``wefpe train`` in its own process; it returns None, or the last line of a failure."""
    path = planned.folder.path
    config = path.parent / "configs" / f"{path.name}.toml"
    write_whole(config, dump_toml(planned.experiment))
    command = [sys.executable, "-m", "training.cli", "train", str(config)]
    command += ["--folder", str(path), "--resume"]
    if jobs > 1 and not planned.experiment.training.threads:
        command.append("training.threads=1")  # more threads would slow the other jobs
    output = path.parent / "output" / f"{path.name}.txt"
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a", encoding="utf-8") as file:
        code = subprocess.run(command, stdout=file, stderr=file, check=False).returncode
    if code == 0:
        return None
    said = output.read_text(encoding="utf-8").strip().splitlines()
    return f"exit code {code}: {said[-1] if said else 'nothing was said'} (all of it: {output})"
