"""The generated tables of the README: markers, contents, and that they were generated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training import cli
from verification import claims, readme
from verification.functions import FUNCTIONS, SYMBOLS

REPORT = {
    "circumstances": {"versions": "wefpe 1", "platform": "here", "size": "small"},
    "summary": "2 rows measured, 0 failures",
    "rows": [
        {
            "subject": s,
            "dtype": "complex128",
            "function": "wp",
            "region": r,
            "count": n,
            "largest": e,
        }
        for s, r, n, e in (
            *(("numpy", "generic", 10, 1.25), ("numpy", "generic", 10, 1.5)),
            *(("torch cpu", "generic", 10, 2.0), ("numpy", "hardest points", 0, 1.375)),
            *(
                ("torch cpu", "hardest points", 0, 1.0),
                ("torch cpu tensors", "hardest points", 0, 3.5),
            ),
        )
    ],
}
CLAIMS = {
    "claims": [
        {"id": "F1", "place": "L1", "verdict": "false", "correction": "it is 2"},
        {"id": "F2", "place": "L2", "verdict": "true", "correction": ""},
    ]
}


def test_tables_are_written_between_their_markers_and_nothing_else_changes(tmp_path: Path) -> None:
    for name, content in (("report", REPORT), ("claims", CLAIMS)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    page = tmp_path / "README.md"
    page.write_text(
        "top\n<!-- precision -->\nold\n<!-- end of precision -->\nmiddle\n"
        "<!-- search --><!-- end of search -->\n"
        "<!-- claims --><!-- end of claims -->\nbottom\n",
        encoding="utf-8",
    )
    files = [str(tmp_path / "report.json"), str(tmp_path / "claims.json")]
    for _ in range(2):  # writing again changes nothing
        assert cli.main(["docs", "readme", *files, "--readme", str(page)]) == 0
        text = page.read_text("utf-8")
        assert text.startswith("top\n<!-- precision -->\n| largest error")
        assert "| ℘ | complex128 | 30 | 1.50 | 2.00 | 3.50 |" in text
        assert "1.38 in complex128 (℘, numpy)" in text
        assert "3.50 in complex128 on lattices of tensors" in text
        assert "old" not in text
        assert "of 2, 1 false, 1 true (`wefpe claims`" in text
        assert text.endswith("<!-- end of claims -->\nbottom\n")


def test_a_missing_marker_or_file_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "README.md"
    page.write_text("no markers\n", encoding="utf-8")
    for name, content in (("report", REPORT), ("claims", CLAIMS)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    files = [str(tmp_path / "report.json"), str(tmp_path / "claims.json")]
    assert cli.main(["docs", "readme", *files, "--readme", str(page)]) == 2
    assert "<!-- precision -->" in capsys.readouterr().err
    assert cli.main(["docs", "readme", "missing.json", files[1], "--readme", str(page)]) == 2
    assert "missing.json" in capsys.readouterr().err
    assert page.read_text("utf-8") == "no markers\n"


def test_the_readme_shows_generated_tables_of_all_it_promises() -> None:
    text = readme.README.read_text("utf-8")
    block = text.partition("<!-- precision -->")[2].partition("<!-- end of precision -->")[0]
    values = {value for function in FUNCTIONS.values() for value in function.values}
    for value, name in SYMBOLS.items():
        assert value in values
        assert f"| {name} | complex128 |" in block
    assert "0 failures" in block
    findings = text.partition("<!-- claims -->")[2].partition("<!-- end of claims -->")[0]
    assert f"of {len(claims.CLAIMS)}, " in findings
