"""Choosing some images so that every class keeps its share."""

from __future__ import annotations

import torch
from torch import Tensor

from training.data.errors import DataError


def stratified_choice(
    labels: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Indices of `count` images and of the others, both ascending.

    Each class gives its share rounded down; what is then missing comes from the classes with the
    largest remainders, equal ones in random order. So no share is off by one image or more.
    """
    total = len(labels)
    if not 0 <= count <= total:
        raise DataError(f"{count} images asked for, {total} there")
    order = torch.randperm(total, generator=generator)
    classes, sizes = labels.unique(return_counts=True)
    shares = sizes * count  # in units of 1/total: integers, so that nothing is rounded
    quotas = shares // max(total, 1)
    # Sorted stably over a random order of the classes, so that ties are broken by chance.
    shuffled = torch.randperm(len(classes), generator=generator)
    remainders = (shares - quotas * total)[shuffled]
    largest = shuffled[remainders.argsort(descending=True, stable=True)]
    quotas[largest[: count - int(quotas.sum())]] += 1

    is_chosen = torch.zeros(total, dtype=torch.bool)
    shuffled_labels = labels[order]
    for label, quota in zip(classes.tolist(), quotas.tolist(), strict=True):
        is_chosen[order[shuffled_labels == label][:quota]] = True
    return is_chosen.nonzero().flatten(), (~is_chosen).nonzero().flatten()
