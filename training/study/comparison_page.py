"""``comparison.md``: the page of a comparison, which a reader understands without other files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from training.config import Experiment
from training.config.dump import flat_table
from training.metrics import ACCURACY, Metric
from training.study.statistics import Summary, summary_markdown
from wefpe_core.reporting import markdown_table

Results = Sequence[Mapping[str, Any]]  # of finished runs, with the label of the arm as "encoding"

PICTURE = "comparison.png"
_CONFIG = """## Config

Runs differ in encoding and seed. They share these keys, and the defaults of all others;
`config.toml` of each run has every key."""


def comparison_page(
    summaries: Sequence[Summary],
    reference: str,
    results: Results,
    base: Experiment,
    keys: Mapping[str, str],
    metric: Metric = ACCURACY,
) -> str:
    """Title, table, picture, how the runs were verified, what they cost, config and versions.

    `keys` are those of the config that all runs share, with their values.
    """
    paragraphs = [
        f"# {base.model.name} on {base.data.name}: {len(summaries)} encodings",
        summary_markdown(summaries, reference, metric),
        f"![Left: the test {metric.title} of each seed. Right: the differences.]({PICTURE})",
        verification_text(results),
        costs_text(results),
        _CONFIG,
        markdown_table(["key", "value"], [(f"`{key}`", text) for key, text in keys.items()]),
        "## Versions",
        markdown_table(["", ""], common_facts(results).items()),
    ]
    return "\n\n".join(each.strip() for each in paragraphs if each) + "\n"


def changed_keys(config: Experiment) -> dict[str, str]:
    """The keys that differ from the defaults, without the seed."""
    default, given = flat_table(Experiment()), flat_table(config)
    changed = [key for key in given if given[key] != default.get(key) and key != "seed"]
    return {key: _as_toml(given[key]) for key in changed}


def _as_toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def verification_text(results: Results) -> str:
    """A sentence on how the backends of the runs were verified.

    It begins with a warning if that differs between runs that evaluate elliptic functions.
    """
    by_status: dict[str, dict[str, None]] = {}
    for result in results:
        status = (result.get("verification") or {}).get("status", "not recorded")
        by_status.setdefault(status, {})[result["encoding"]] = None
    mixed = len(by_status.keys() - {"not needed"}) > 1
    listed = "; ".join(f"{status}: {', '.join(arms)}" for status, arms in by_status.items())
    start = "The runs differ in verification: " if mixed else "Verification: "
    return f"{start}{listed}."


def costs_text(results: Results) -> str:
    """A sentence on the speed and memory of the runs: the mean and the most."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        if result.get("training_images_per_second"):
            found.setdefault(result["encoding"], []).append(result)
    texts = []
    for label, runs in found.items():
        rates = [run["training_images_per_second"] for run in runs]
        peaks = [run["peak_memory_mb"] for run in runs if run["peak_memory_mb"]]
        memory = f", {max(peaks):,.0f} MB" if peaks else ""
        texts.append(f"{label} {sum(rates) / len(rates):,.0f} images/s{memory}")
    return f"Training: {'; '.join(texts)}." if texts else ""


def common_facts(results: Results) -> dict[str, str]:
    """Commit, versions and machine of the runs; every value, where they differ."""
    found: dict[str, dict[str, None]] = {}
    for result in results:
        facts = dict(result.get("circumstances", {}))
        for name, value in (facts | facts.pop("versions", {})).items():
            found.setdefault(name, {})["not known" if value is None else str(value)] = None
    return {name: "; ".join(values) for name, values in found.items()}
