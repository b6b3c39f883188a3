"""Positional encodings for vision transformers, by name and under one interface.

>>> from training.encodings import build_encoding
>>> encoding = build_encoding("weierstrass", dim=192, depth=12, num_heads=3, grid=(14, 14))
>>> encoding.additive((16, 9)).shape
torch.Size([144, 192])

Names and options are found without torch; it is imported by what needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from training.errors import EncodingOptionError as EncodingOptionError
from training.errors import MissingTableError as MissingTableError
from training.errors import UnknownEncodingError as UnknownEncodingError
from wefpe_core.errors import import_optional

if TYPE_CHECKING:
    from training.encodings.encoding import AbstractEncoding as AbstractEncoding
    from training.encodings.option_types import EncodingOptions as EncodingOptions
    from training.encodings.option_types import NoOptions as NoOptions
    from training.encodings.option_types import OptionDescription as OptionDescription
    from training.encodings.option_types import option as option
    from training.encodings.registry import EncodingDescription as EncodingDescription
    from training.encodings.registry import available_encodings as available_encodings
    from training.encodings.registry import build_encoding as build_encoding
    from training.encodings.registry import describe_encoding as describe_encoding
    from training.encodings.registry import register_encoding as register_encoding
    from training.encodings.size import EncodingSize as EncodingSize
else:
    # Public names that are imported at their first use, by module.
    _PUBLIC = {
        "encoding": ("AbstractEncoding",),
        "option_types": ("EncodingOptions", "NoOptions", "OptionDescription", "option"),
        "registry": (
            "EncodingDescription",
            "available_encodings",
            "build_encoding",
            "describe_encoding",
            "register_encoding",
        ),
        "size": ("EncodingSize",),
    }
    _MODULES = {name: module for module, names in _PUBLIC.items() for name in names}

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _MODULES[name]
        for library in ("pydantic", "torch") if module == "encoding" else ("pydantic",):
            import_optional(library, purpose=f"{__name__}.{name}", extra="encodings")
        return getattr(import_module(f"{__name__}.{module}"), name)

    def __dir__() -> list[str]:
        return sorted([*globals(), *_MODULES])
