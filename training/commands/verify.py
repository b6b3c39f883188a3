"""``wefpe verify``: measure every array backend against the oracle and judge it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from verification import verifier
from verification.functions import ARRAY_FUNCTIONS, FUNCTIONS
from verification.subjects import BACKENDS, DEVICES, DTYPES
from verification.verifier import REQUIRABLE, SIZES


def refuse_unknown(words: Iterable[str], known: Iterable[str], option: str | None = None) -> None:
    names = tuple(known)
    for word in words:
        if word not in names:
            message = f"{word!r} is not one of {', '.join(names)}"
            raise typer.BadParameter(message, param_hint=option)


def choice(known: Iterable[str], description: str, metavar: str = "") -> Any:
    """An option whose words must be known; an unknown one is refused with those that are."""
    names = tuple(known)

    def checked(given: str | list[str] | None) -> str | list[str] | None:
        refuse_unknown([given] if isinstance(given, str) else given or [], names)
        return given

    return typer.Option(metavar=metavar or "|".join(names), help=description, callback=checked)


def verify(
    size: Annotated[str, choice(SIZES, "How many points are measured.")] = "default",
    backend: Annotated[
        list[str] | None, choice(BACKENDS, "Measure this backend only; may be repeated.")
    ] = None,
    device: Annotated[
        list[str] | None, choice(DEVICES, "Let torch run on this device only; may be repeated.")
    ] = None,
    dtype: Annotated[
        list[str] | None, choice(DTYPES, "Measure this dtype only; may be repeated.")
    ] = None,
    function: Annotated[
        list[str] | None,
        choice(
            FUNCTIONS,
            f"Measure this function only; may be repeated: {', '.join(FUNCTIONS)}.",
            "NAME",
        ),
    ] = None,
    compiled: Annotated[
        list[str] | None,
        choice(
            ARRAY_FUNCTIONS,
            "Measure this function in compiled form too; may be repeated. The default follows "
            "from the size.",
            "NAME",
        ),
    ] = None,
    require: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help=f"Fail if one of these is skipped: {', '.join(REQUIRABLE)} (separated by commas).",
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write report.json, report.md and report.html there."),
    ] = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="Make what is measured the new baselines (in the checkout)."),
    ] = False,
) -> int:
    """Measure every array backend against the oracle and judge it.

    Prints the accuracy rows, the laws, and how the oracle compares with other formulas; with
    --output it also writes them as JSON, as Markdown and as one HTML page with pictures. The exit
    code is 0 if everything holds, 1 if something fails, and 2 if nothing can be measured or
    written.
    """
    required = [name.strip() for name in require.split(",") if name.strip()]
    refuse_unknown(required, REQUIRABLE, "--require")
    return verifier.verify(
        size=size,
        backends=backend or BACKENDS,
        devices=device or DEVICES,
        dtypes=dtype or DTYPES,
        functions=function or tuple(FUNCTIONS),
        compiled=compiled,
        required=required,
        output=output,
        record_baselines=record,
    )
