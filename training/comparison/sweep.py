"""Every encoding with every seed: each run a process of its own, finished ones never repeated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from training.comparison.arms import Arm
from training.comparison.figure import draw_comparison
from training.comparison.statistics import Summary, summarise
from training.comparison.tables import RUNS, runs_csv, summary_markdown
from training.configuration import Experiment, change_config, config_hash, dump_toml
from training.engine.errors import RunError
from training.engine.run_folder import RunFolder, write_whole
from wefpe_core.errors import InputError


@dataclass(frozen=True)
class Planned:
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
    reference: str = ""  # an arm; the first if not given
    planned: list[Planned] = field(init=False)

    def __post_init__(self) -> None:
        self.reference = self.reference or self.arms[0].label
        if self.reference not in [arm.label for arm in self.arms]:
            labels = ", ".join(arm.label for arm in self.arms)
            raise InputError(f"the reference {self.reference!r} is not among {labels}")
        # Every config is checked before the first run starts. Seeds are in the outer loop: a
        # comparison that is stopped has whole pairs.
        self.planned = [
            Planned(
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

    def _check_folder(self, planned: Planned) -> None:
        done = planned.folder.read_result()
        if done is not None and done["config_hash"] != config_hash(planned.experiment):
            raise RunError(
                f"{planned.folder.path} holds a finished run of another config; "
                "give the comparison another --folder"
            )

    def unfinished(self) -> list[Planned]:
        return [each for each in self.planned if each.folder.read_result() is None]

    def train(self, *, jobs: int, console: Console) -> None:
        """Train what is not finished, `jobs` at a time; one that fails does not stop the rest."""
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
            except BaseException:  # Ctrl-C, which the runs under way hear too: begin no others
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


def _outcome(planned: Planned, problem: str | None) -> str:
    if problem is not None:
        return f"{planned.title}: FAILED: {problem}"
    result = planned.folder.read_result() or {}
    return f"{planned.title}: test accuracy {result['test_accuracy']:.2%}"


def _train_apart(planned: Planned, jobs: int) -> str | None:
    """Run ``wefpe train`` in a process of its own; None, or what it said last."""
    path = planned.folder.path
    config = path.parent / "configs" / f"{path.name}.toml"
    write_whole(config, dump_toml(planned.experiment))
    command = [sys.executable, "-m", "training.commands.train", str(config)]
    command += ["--folder", str(path), "--resume"]
    if jobs > 1 and not planned.experiment.training.threads:
        command.append("training.threads=1")  # or they would get in each other's way
    output = path.parent / "output" / f"{path.name}.txt"
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a", encoding="utf-8") as file:
        code = subprocess.run(command, stdout=file, stderr=file, check=False).returncode
    if code == 0:
        return None
    said = output.read_text(encoding="utf-8").strip().splitlines()
    return f"exit code {code}: {said[-1] if said else 'nothing was said'} (all of it: {output})"
