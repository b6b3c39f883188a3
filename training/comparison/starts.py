"""How strong the position tables of a study are before training, and how much of that is position.

What is the same for all patches tells them nothing about their place, so of a table's root mean
square the part that differs between patches is what a model can use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from training.configuration import Experiment
from training.configuration.encoding_rules import build_position_encoding
from training.markdown import markdown_table

_SEEDS = range(5)


@dataclass(frozen=True)
class Start:
    """Root mean squares over patches and channels, means of the seeds 0 to 4."""

    label: str
    whole: float
    differing: float  # after the mean over the patches is taken off each channel


def start_of(label: str, config: Experiment) -> Start | None:
    """None for an encoding that adds nothing to the tokens, or that starts from a checkpoint."""
    if config.model.checkpoint:
        return None
    whole = differing = 0.0
    with torch.random.fork_rng(devices=()), torch.no_grad():
        for seed in _SEEDS:
            torch.manual_seed(seed)
            encoding = build_position_encoding(config)
            table = encoding.additive(encoding.size.grid)
            if table is None:
                return None
            whole += float(table.square().mean().sqrt())
            differing += float((table - table.mean(dim=0)).square().mean().sqrt())
    return Start(label, whole / len(_SEEDS), differing / len(_SEEDS))


def starts_markdown(starts: Sequence[Start]) -> str:
    """A row for each encoding."""
    headings = ["table at the start", "root mean square", "of what differs between patches"]
    rows = [(f"`{s.label}`", f"{s.whole:.2f}", f"{s.differing:.2f}") for s in starts]
    return markdown_table(headings, rows) + "\n"
