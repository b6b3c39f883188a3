"""The doors to the project: every public name in one place, imported when it is first used.

>>> import wefpe
>>> lattice = wefpe.Lattice(1.0, 0.3 + 0.9j)
>>> wefpe.get_backend("numpy").name
'numpy'

Nothing is defined here. `wefpe_core` has the lattices and the abstract backend, `backends` the
evaluators, `training` the encodings, models and experiments, `verification` the report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wefpe_core import AbstractBackend as AbstractBackend
from wefpe_core import Lattice as Lattice
from wefpe_core import WefpeError as WefpeError
from wefpe_core import __version__ as __version__
from wefpe_core import available_backends as available_backends
from wefpe_core import bounds as bounds
from wefpe_core import get_backend as get_backend
from wefpe_core import identities as identities
from wefpe_core import special as special
from wefpe_core.errors import MissingDependencyError, import_own, missing_dependency

if TYPE_CHECKING:  # what an editor and a type checker see of the names below
    from training import encodings as encodings
    from training import plot as plot
    from training.models import attach as attach
    from training.models import build_vit as build_vit
    from training.models import detach as detach
    from training.models import load_attached as load_attached
    from training.models.timm_import import import_timm as import_timm

# These need torch or matplotlib, so they are looked up at their first use: the module, and the name
# in it if the module itself is not what is meant.
_LAZY = {
    "encodings": ("training.encodings", None),
    "plot": ("training.plot", None),
    "attach": ("training.models", "attach"),
    "detach": ("training.models", "detach"),
    "load_attached": ("training.models", "load_attached"),
    "build_vit": ("training.models", "build_vit"),
    "import_timm": ("training.models.timm_import", "import_timm"),
}


_OF_THE_ENCODINGS = ("torch", "pydantic", "safetensors")  # what their extra installs


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'wefpe' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    try:
        found = import_own(module)
    except ModuleNotFoundError as error:
        if error.name not in _OF_THE_ENCODINGS:
            raise
        message = missing_dependency(f"wefpe.{name}", error.name, "encodings")
        raise MissingDependencyError(message) from error
    return found if attribute is None else getattr(found, attribute)


def __dir__() -> list[str]:
    imported = {"Any", "TYPE_CHECKING", "annotations", "import_own"}
    return sorted(
        {*globals(), *_LAZY} - imported - {"MissingDependencyError", "missing_dependency"}
    )
