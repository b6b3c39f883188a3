"""``wefpe verify``: measure every array backend against the oracle and judge it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from verification import verifier
from verification.functions import ARRAY_FUNCTIONS, FUNCTIONS
from verification.search import SEED
from verification.subjects import BACKENDS, DEVICES, DTYPES
from verification.verifier import REQUIRABLE, SIZES
from wefpe_core import available_backends
from wefpe_core.errors import did_you_mean
from wefpe_core.receipts import REFERENCE
from wefpe_core.registry import known_backends


def refuse_unknown(words: Iterable[str], known: Iterable[str], option: str | None = None) -> None:
    names = tuple(known)
    for word in words:
        if word not in names:
            message = f"{word!r} is not one of {', '.join(names)}{did_you_mean(word, names)}"
            raise typer.BadParameter(message, param_hint=option)


def choice(known: Iterable[str], description: str, metavar: str = "") -> Any:
    """An option whose words must be known; an unknown one is refused with those that are."""
    names = tuple(known)

    def checked(given: str | list[str] | None) -> str | list[str] | None:
        refuse_unknown([given] if isinstance(given, str) else given or [], names)
        return given

    return typer.Option(metavar=metavar or "|".join(names), help=description, callback=checked)


def functions_of(given: list[str] | None) -> list[str] | None:
    """Functions by their own names or by those of their values: ``wp`` is of ``wp_and_prime``."""
    by_value = {value: name for name, each in FUNCTIONS.items() for value in each.values}
    names = [word if word in FUNCTIONS else by_value.get(word, word) for word in given or []]
    refuse_unknown(names, FUNCTIONS)
    return list(dict.fromkeys(names)) or None


def installed_backends(given: list[str] | None) -> list[str] | None:
    for name in given or []:
        if name not in available_backends():
            raise typer.BadParameter(f"{name!r} cannot be measured here; {known_backends(name)}")
    return given


def refuse_together(what: str, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value:
            raise typer.BadParameter(f"it has no meaning for {what}", param_hint=name)


def verify(
    target: Annotated[
        str,
        typer.Argument(
            metavar="[RUN|CONFIG]",
            help="The folder of a finished run, or its file of weights, whose tables are "
            "verified as trained. With --quick, a config by its name or path.",
        ),
    ] = "",
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Make a receipt for the functions that a config uses, in some ten seconds.",
        ),
    ] = False,
    encoding: Annotated[
        str,
        typer.Option(
            metavar="NAME[:OPTIONS]", help="With --quick, an encoding in place of the config's."
        ),
    ] = "",
    size: Annotated[str, choice(SIZES, "How many points are measured.")] = "default",
    backend: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Measure this backend only, one of those that wefpe backends lists; may be "
            "repeated.",
            callback=installed_backends,
        ),
    ] = None,
    device: Annotated[
        list[str] | None, choice(DEVICES, "Let torch run on this device only; may be repeated.")
    ] = None,
    dtype: Annotated[
        list[str] | None, choice(DTYPES, "Measure this dtype only; may be repeated.")
    ] = None,
    function: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Measure this function only; may be repeated: {', '.join(FUNCTIONS)}.",
            callback=functions_of,
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
    search: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="Instead of measuring, search for the largest errors for so long with each "
            "backend. With --record the points found join those that every report measures.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="SEED", help="Where the search begins.")
    ] = SEED,
) -> int:
    """Measure every array backend against the oracle and judge it.

    Prints the largest error of each function, and keeps a receipt for each backend and device,
    which training consults. With --output it also writes every row, as JSON, as Markdown and as one
    HTML page with pictures, and the receipts. The exit code is 0 if everything holds, 1 if
    something fails, 2 if nothing can be measured or written, and 130 if it was interrupted; what
    was measured until then is reported. docs/verification.md says more.
    """
    chosen: dict[str, Any] = {"--backend": backend, "--dtype": dtype, "--function": function}
    chosen |= {"--compiled": compiled, "--require": require, "--output": output, "--record": record}
    if quick:
        refuse_together("--quick", chosen)
        return verify_config(target or "default", encoding, device)
    refuse_together("a verification without --quick", {"--encoding": encoding})
    if target:
        refuse_together("a run", chosen | {"--device": device})
        from training.commands.verify_run import verify_run

        return verify_run(Path(target))
    required = [name.strip() for name in require.split(",") if name.strip()]
    refuse_unknown(required, REQUIRABLE, "--require")
    if search is not None:
        return verifier.search_for_hardest(
            search,
            backends=backend or BACKENDS,
            devices=device or DEVICES,
            dtypes=dtype or DTYPES,
            functions=function or tuple(FUNCTIONS),
            seed=seed,
            record_points=record,
        )
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


def verify_config(config: str, encoding: str, devices: list[str] | None) -> int:
    """Measure what a config uses, keep the receipts, and print how each backend stands."""
    import torch

    from training.config import change_config, load_config
    from training.engine.verification import evaluators_of
    from training.study.compare import parse_arm

    experiment = load_config(config)
    if encoding:
        experiment = change_config(experiment, parse_arm(encoding).overrides)
    device = devices[0] if devices else ("cuda" if torch.cuda.is_available() else "cpu")
    found = evaluators_of(experiment, device)
    if not found:
        print(f"{experiment.position_encoding.name} evaluates no elliptic function by a backend")
    passes = True
    for each in found:
        if each.backend == REFERENCE:
            print(f"{each.title}: it is the reference the others are measured by")
            continue
        receipt = verifier.verify_quickly(each.backend, each.device, each.needs)
        after = each.standing()
        passes = passes and after.state == "verified"
        print(f"{each.title}: {after}, receipt {receipt.id}")
    return 0 if passes else 1
