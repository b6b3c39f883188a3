"""Positional encodings for vision transformers, by name and under one interface.

>>> from training.encodings import build_encoding
>>> encoding = build_encoding("weierstrass", dim=192, depth=12, num_heads=3, grid=(14, 14))
>>> encoding.additive((16, 9)).shape
torch.Size([144, 192])
"""

from training.encodings.encoding import AbstractEncoding as AbstractEncoding
from training.encodings.encoding import EncodingSize as EncodingSize
from training.encodings.options import NoOptions as NoOptions
from training.encodings.options import OptionDescription as OptionDescription
from training.encodings.options import option as option
from training.encodings.registry import EncodingDescription as EncodingDescription
from training.encodings.registry import available_encodings as available_encodings
from training.encodings.registry import build_encoding as build_encoding
from training.encodings.registry import describe_encoding as describe_encoding
from training.encodings.registry import register_encoding as register_encoding
from training.errors import EncodingOptionError as EncodingOptionError
from training.errors import MissingTableError as MissingTableError
from training.errors import UnknownEncodingError as UnknownEncodingError
