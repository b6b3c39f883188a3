"""Conventions, lattices, the abstract backend, truncation bounds, laws and error metrics.

Imports nothing beyond the standard library, and nothing else of this project.
"""

from importlib.metadata import PackageNotFoundError as _PackageNotFoundError
from importlib.metadata import version as _version

from wefpe_core import accuracy as accuracy
from wefpe_core import bounds as bounds
from wefpe_core import identities as identities
from wefpe_core import special as special
from wefpe_core.backend import AbstractBackend as AbstractBackend
from wefpe_core.backend import BackendCapabilities as BackendCapabilities
from wefpe_core.degenerate_lattice import DegenerateLattice as DegenerateLattice
from wefpe_core.errors import BackendUnavailableError as BackendUnavailableError
from wefpe_core.errors import DegenerateLatticeError as DegenerateLatticeError
from wefpe_core.errors import ImmutableError as ImmutableError
from wefpe_core.errors import InputError as InputError
from wefpe_core.errors import InputTypeError as InputTypeError
from wefpe_core.errors import LatticeError as LatticeError
from wefpe_core.errors import MissingDependencyError as MissingDependencyError
from wefpe_core.errors import PrecisionError as PrecisionError
from wefpe_core.errors import UnknownBackendError as UnknownBackendError
from wefpe_core.errors import UnsupportedFunctionError as UnsupportedFunctionError
from wefpe_core.errors import WefpeError as WefpeError
from wefpe_core.lattice import Lattice as Lattice
from wefpe_core.registry import available_backends as available_backends
from wefpe_core.registry import get_backend as get_backend

try:
    __version__ = _version("wefpe")
except _PackageNotFoundError:  # a checkout on the path that was never installed
    __version__ = "0+unknown"
