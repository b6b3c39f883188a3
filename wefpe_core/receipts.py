"""Receipts: what a verification measured, and whether that still holds for what is installed here.

A receipt is a JSON file about one backend on one device. It has what was measured and the outcome,
and a fingerprint of everything that decides the values: the sources of the backend and of what it
stands on, the versions of the libraries, the processor and the device, and the contracts. If any of
these has changed since, the receipt is stale.

``wefpe verify`` writes receipts; training and ``wefpe backends`` read them. A checksum over the
content shows damage and careless edits. It is no proof: whoever can write the file can also
compute the checksum.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from wefpe_core.errors import InputError, WefpeError
from wefpe_core.registry import BackendDescription, backend_descriptions
from wefpe_core.reporting import package_versions, processor_name

FORMAT = 1
FOLDER_VARIABLE = "WEFPE_RECEIPTS"
REFERENCE = "mpmath"  # the backend that the others are measured against
CONTRACTS = "verification/contracts.toml"
_SUFFIX = ".json"
_ID_DIGITS = 16

# Everything that decides the values of a backend, by kind and name.
Fingerprint = Mapping[str, Mapping[str, str]]
State = Literal["verified", "stale", "never", "failed"]


class ReceiptError(WefpeError, ValueError):
    """A receipt cannot be used; the message names the file and what is wrong with it."""


# --- What decides the values -----------------------------------------------------------------

_OWN_PACKAGES = ("wefpe_core", "backends")
# What else a backend runs on where it is installed; the library itself is in the registry.
_FURTHER = {"numpy": ("numba",), "torch": ("numpy", "triton"), "jax": ("jaxlib", "numpy")}
_CODE = (".py", ".so", ".pyd", ".dll", ".dylib", ".toml", ".json")


def fingerprint(backend: str, hardware: str) -> dict[str, dict[str, str]]:
    """Everything that decides the values of a backend here, by kind and name.

    Parameters
    ----------
    backend
        A name of `available_backends`.
    hardware
        What `backends.hardware` says of the device: the model of a GPU, or "" for the processor
        of this machine, which is a part in any case.
    """
    row = _description(backend)
    names = {row.package or "", *_FURTHER.get(backend, ())} - {""}
    installed = package_versions(sorted(names))
    versions = {name: version or "not installed" for name, version in installed.items()}
    return {
        "sources": _own_sources() | _sources_of_others(row),
        "versions": {"Python": platform.python_version(), **versions},
        "hardware": {
            "processor": processor_name(),
            "platform": f"{platform.system()} {platform.machine()}",
            **({"device": hardware} if hardware else {}),
        },
    }


def _description(backend: str) -> BackendDescription:
    for row in backend_descriptions():
        if row.name == backend:
            return row
    raise InputError(f"there is no backend {backend!r}")


def _own_sources() -> dict[str, str]:
    """The digests of the core, of all backends of the project, and of the contracts."""
    found: dict[str, str] = {}
    for package in _OWN_PACKAGES:
        found |= _files_of_module(package)
    folder = _module_folder("verification")
    if folder is not None and (folder.parent / CONTRACTS).is_file():
        found[CONTRACTS] = _digest_of(folder.parent / CONTRACTS)
    return found


def _sources_of_others(row: BackendDescription) -> dict[str, str]:
    """The files of the distribution a third party's backend comes in; nothing for our own."""
    module = row.location.partition(":")[0].partition(".")[0]
    if module in _OWN_PACKAGES:
        return {}
    found = {}
    if row.package is not None:
        for path in metadata.distribution(row.package).files or ():
            place = Path(str(path.locate()))
            if path.suffix in _CODE and ".dist-info" not in str(path) and place.is_file():
                found[path.as_posix()] = _digest_of(place)
    # An editable distribution lists no sources, so the module is looked up too.
    return found | _files_of_module(module)


def _files_of_module(name: str) -> dict[str, str]:
    folder = _module_folder(name)
    if folder is None:
        spec = find_spec(name)
        single = Path(spec.origin) if spec is not None and spec.origin else None
        return {single.name: _digest_of(single)} if single is not None and single.exists() else {}
    return {
        path.relative_to(folder.parent).as_posix(): _digest_of(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in _CODE and path.is_file()
    }


def _module_folder(name: str) -> Path | None:
    """The folder of a package, which is found and not imported; None for a single file."""
    spec = find_spec(name)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return Path(places[0]) if places else None


def _digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def changes(before: Fingerprint, now: Fingerprint) -> list[str]:
    """What differs between two fingerprints, as phrases for people."""
    found = [
        _was_and_is(name, before[kind], now[kind])
        for kind in ("hardware", "versions")
        for name in _differing(before[kind], now[kind])
    ]
    for name in _differing(before["sources"], now["sources"]):
        if name == CONTRACTS:
            found.append("the contracts changed")
        elif name not in now["sources"]:
            found.append(f"{name} is gone")
        else:
            found.append(f"{name} {'changed' if name in before['sources'] else 'is new'}")
    return found


def _differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [name for name in dict(before) | dict(now) if before.get(name) != now.get(name)]


def _was_and_is(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    return f"{name} was {before.get(name, 'not named')}, is {now.get(name, 'not named')}"


def in_short(phrases: Sequence[str], most: int = 2) -> str:
    """The first phrases, and how many more there are."""
    shown = ", ".join(phrases[:most])
    return shown if len(phrases) <= most else f"{shown} and {len(phrases) - most} more"


# --- A receipt -------------------------------------------------------------------------------


class Need(NamedTuple):
    """One thing that must have been measured: a function, in a dtype, in a form.

    The form says how the backend is called: "" with a lattice of numbers, "tensors" with a lattice
    of tensors, "compiled" and so on, as the report names it.
    """

    function: str
    dtype: str
    form: str = ""


@dataclass(frozen=True)
class Measured:
    """The largest error of one value over all points measured, in eps of the dtype."""

    function: str  # what was asked, such as "wp_and_prime"
    value: str  # one of its values, such as "wp_prime"
    dtype: str
    form: str
    points: int
    largest: float
    ceiling: float
    passes: bool

    @property
    def need(self) -> Need:
        return Need(self.function, self.dtype, self.form)

    @property
    def share(self) -> float:
        """The error as a share of its ceiling; infinite for NaN."""
        return math.inf if math.isnan(self.largest) else self.largest / self.ceiling


@dataclass(frozen=True)
class Receipt:
    """What one verification found about one backend on one device."""

    backend: str
    device: str  # such as "cpu" or "cuda"
    size: str  # how much was measured
    when: str  # ISO 8601, UTC
    measured: tuple[Measured, ...]
    problems: tuple[str, ...]  # failures besides those of rows, such as a law that is broken
    decided_by: Fingerprint

    @property
    def id(self) -> str:
        return _checksum(self.content())[:_ID_DIGITS]

    @property
    def passes(self) -> bool:
        return not self.problems and all(row.passes for row in self.measured)

    @property
    def file_name(self) -> str:
        place = f"{self.backend}-{self.device}"
        return (
            "".join(c if c.isalnum() or c == "-" else "_" for c in place) + f"-{self.id}{_SUFFIX}"
        )

    def covers(self, needs: Iterable[Need]) -> bool:
        return set(needs) <= {row.need for row in self.measured}

    def rows_for(self, needs: Iterable[Need]) -> list[Measured]:
        """The rows of what is needed; all of them for no need."""
        wanted = set(needs)
        return [row for row in self.measured if not wanted or row.need in wanted]

    def content(self) -> dict[str, Any]:
        """What the file holds, but for id and checksum. Infinities are text, as JSON has none."""
        table = asdict(self) | {"format": FORMAT}
        for row in table["measured"]:
            if not math.isfinite(row["largest"]):
                row["largest"] = str(row["largest"])
        table["outcome"] = "verified" if self.passes else "failed"
        return json.loads(json.dumps(table))

    def text(self) -> str:
        content = self.content()
        ends = {"id": self.id, "checksum": _checksum(content)}
        return json.dumps(ends | content, indent=1) + "\n"


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_receipt(path: Path) -> Receipt:
    """The receipt in a file.

    Raises
    ------
    ReceiptError
        The file cannot be read, its content is not what was written, or a newer version wrote it.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReceiptError(f"the receipt {path} cannot be read: {error}") from error
    if not isinstance(table, dict) or "checksum" not in table:
        raise ReceiptError(f"{path} is no receipt")
    found, checksum = table.pop("id", None), table.pop("checksum")
    if checksum != _checksum(table):
        raise ReceiptError(f"the receipt {path} was changed after it was written")
    if table.get("format") != FORMAT:
        raise ReceiptError(
            f"the receipt {path} has format {table.get('format')!r}; this version of wefpe reads "
            f"format {FORMAT}"
        )
    try:
        rows = [row | {"largest": float(row["largest"])} for row in table["measured"]]
        receipt = Receipt(
            measured=tuple(Measured(**row) for row in rows),
            problems=tuple(table["problems"]),
            decided_by={kind: dict(table["decided_by"][kind]) for kind in _KINDS},
            **{name: str(table[name]) for name in ("backend", "device", "size", "when")},
        )
        datetime.fromisoformat(receipt.when)
    except (KeyError, TypeError, ValueError) as error:
        raise ReceiptError(f"{path} is no receipt: {type(error).__name__}: {error}") from error
    if receipt.id != found:
        raise ReceiptError(f"the receipt {path} was changed after it was written")
    for row in receipt.measured:
        if row.passes and not row.largest <= row.ceiling:
            raise ReceiptError(
                f"the receipt {path} contradicts itself: {describe_worst(row)} passes"
            )
    return receipt


_KINDS = ("sources", "versions", "hardware")


# --- Where receipts are kept -----------------------------------------------------------------


def receipts_folder() -> Path:
    """The folder of the receipts of this environment.

    It is what WEFPE_RECEIPTS says, or ``wefpe/receipts/ENVIRONMENT`` in the folder where the
    system keeps the state of applications. ENVIRONMENT is made of the path of the Python
    environment, since another one has other libraries.
    """
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    prefix = Path(sys.prefix).resolve()
    environment = f"{prefix.name}-{hashlib.sha256(str(prefix).encode()).hexdigest()[:8]}"
    return _state_folder() / "wefpe" / "receipts" / environment


def _state_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")


def write_receipt(receipt: Receipt, folder: Path) -> Path:
    """Write a receipt so that a reader finds the whole file or none."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / receipt.file_name
    unfinished = folder / f".unfinished-{os.getpid()}-{path.name}"
    unfinished.write_text(receipt.text(), encoding="utf-8", newline="\n")
    unfinished.replace(path)
    return path


def read_receipts(folder: Path | None = None) -> tuple[list[Receipt], list[str]]:
    """The receipts of a folder, the newest first, and a line about each file that is none."""
    folder = receipts_folder() if folder is None else folder
    found, problems = [], []
    for path in sorted(folder.glob(f"*{_SUFFIX}")) if folder.is_dir() else ():
        if path.name.startswith("."):
            continue
        try:
            found.append(read_receipt(path))
        except ReceiptError as error:
            problems.append(str(error))
    return sorted(found, key=lambda receipt: receipt.when, reverse=True), problems


# --- Standing --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """Whether a backend on a device is verified here, and by which receipt."""

    state: State
    receipt: Receipt | None = None  # the newest that speaks of what is needed
    changed: tuple[str, ...] = ()  # why it is stale
    needs: tuple[Need, ...] = ()
    damaged: tuple[str, ...] = ()  # lines about files that are no receipts

    @property
    def worst(self) -> Measured | None:
        """Of what is needed, the row nearest to its ceiling."""
        if self.receipt is None:
            return None
        return max(self.receipt.rows_for(self.needs), key=lambda row: row.share, default=None)

    def __str__(self) -> str:
        if self.receipt is None:
            return "never verified here"
        day = self.receipt.when[:10]
        if self.state == "stale":
            return f"stale: {in_short(self.changed)} since {day}"
        worst = self.worst
        error = "" if worst is None else f", {describe_worst(worst)}"
        return f"{self.state} {day}{error}"


def describe_worst(row: Measured) -> str:
    return f"{row.value} {row.dtype} {row.largest:.3g} eps, ceiling {row.ceiling:g}"


def standing(
    backend: str,
    device: str,
    needs: Iterable[Need] = (),
    *,
    hardware: str = "",
    folder: Path | None = None,
) -> Standing:
    """Whether what is needed of a backend is verified as it is installed here.

    The newest receipt that covers all needs and is not stale decides. Without needs it is the
    newest that is not stale, whatever it covers.
    """
    wanted = tuple(needs)
    receipts, damaged = read_receipts(folder)
    now = fingerprint(backend, hardware)
    candidates = [
        receipt
        for receipt in receipts
        if (receipt.backend, receipt.device) == (backend, device) and receipt.covers(wanted)
    ]
    for receipt in candidates:
        if not changes(receipt.decided_by, now):
            is_sound = not receipt.problems and all(r.passes for r in receipt.rows_for(wanted))
            state: State = "verified" if is_sound else "failed"
            return Standing(state, receipt, (), wanted, tuple(damaged))
    if candidates:
        changed = tuple(changes(candidates[0].decided_by, now))
        return Standing("stale", candidates[0], changed, wanted, tuple(damaged))
    return Standing("never", None, (), wanted, tuple(damaged))
