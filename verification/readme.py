"""Rewrite the generated tables of README.md from the files of the last run.

python -m verification.readme build/verification/report.json build/claims/claims.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verification.blocks import replace_block
from verification.page import markdown_table
from verification.report import summary_table

README = Path(__file__).parents[1] / "README.md"
# The rows most readers ask for; the report has the others.
_NAMES = {
    "wp": "℘",
    "wp_prime": "℘′",
    "zeta": "ζ",
    "sigma": "σ",
    "green": "Green function",
    "inverse_wp": "℘⁻¹",
    "wp_z": "∂℘/∂z",
    "wp_omega1": "∂℘/∂ω₁",
    "wp_omega3": "∂℘/∂ω₃",
}


def precision_block(report: Mapping[str, Any]) -> str:
    """Largest errors over all regions: a line per value and dtype, a column per backend."""
    shown = [row for row in report["rows"] if row["function"] in _NAMES]
    headings, lines = summary_table(shown)
    table = markdown_table(
        ["largest error, eps", *headings[1:]], [[_NAMES[line[0]], *line[1:]] for line in lines]
    )
    where = report["circumstances"]
    return (
        f"{table}\n{report['summary']} (`nox -s verify`; {where['versions']}; {where['platform']}; "
        f"size {where['size']})."
    )


def claims_block(claims: Sequence[Mapping[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for claim in claims:
        counts[claim["verdict"]] = counts.get(claim["verdict"], 0) + 1
    listed = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    shown = [claim for claim in claims if claim["verdict"] == "false"]
    table = markdown_table(
        ["finding", "in the paper", "what is right"],
        [[claim["id"], claim["place"], claim["correction"]] for claim in shown],
    )
    return (
        f"Of {len(claims)} findings: {listed} (`wefpe claims`; "
        f"[all of them, with evidence](docs/claims.md)). The false ones:\n\n{table}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m verification.readme", description=__doc__)
    parser.add_argument("report", type=Path, help="report.json of python -m verification")
    parser.add_argument("claims", type=Path, help="claims.json of python -m verification.claims")
    parser.add_argument("--readme", type=Path, default=README, help="the file to rewrite")
    options = parser.parse_args(arguments)
    try:
        report = json.loads(options.report.read_text("utf-8"))
        claims = json.loads(options.claims.read_text("utf-8"))
        text = options.readme.read_text("utf-8")
        text = replace_block(text, "precision", precision_block(report))
        text = replace_block(text, "claims", claims_block(claims["claims"]))
        options.readme.write_text(text, encoding="utf-8")
    except (OSError, ValueError, KeyError) as error:
        print(f"python -m verification.readme: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
