"""`AbstractEncoding`: what a model asks of a positional encoding, and the neutral answers."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from backends.torch_ops import without_autocast
from training.encodings.grid import Grid, checked_grid, moved_places, patch_centres
from training.encodings.option_types import NoOptions
from training.encodings.size import EncodingSize
from wefpe_core.errors import InputError

if TYPE_CHECKING:
    from training.encodings.elliptic_values import EllipticUse
    from training.encodings.options import MovedPlaces

# --- Tables that are kept between calls --------------------------------------------------------

_MOST_TABLES = 32


class TableCache:
    """Tables that nothing learned enters, by key, for any number of threads.

    Each is kept with the identity and version of the tensors it is made of, which are buffers.
    Every change of a buffer in place (`load_state_dict`, the update of an averaged model) raises
    its version, and a table of another version is made anew. Parameters have no place here: a
    fused optimiser changes them and leaves the version as it was. Torch does not see writes
    through ``buffer.data`` either: call `clear` after those. Copies and pickles of a cache are
    empty.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, tuple[list[Any], list[Any], Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def get(self, key: Hashable, depends_on: Sequence[Tensor], make: Callable[[], Any]) -> Any:
        """The table of this key; a missing one is made outside autograd and inference mode."""
        versions = _versions(depends_on)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and versions is not None:
                tensors, known, table = entry
                is_same = len(tensors) == len(depends_on) and all(
                    reference() is tensor
                    for reference, tensor in zip(tensors, depends_on, strict=True)
                )
                if is_same and known == versions:
                    self._entries.move_to_end(key)
                    return table
        # A tensor made in inference mode could not enter a later backward pass.
        with torch.inference_mode(False), torch.no_grad():
            table = make()
        if versions is not None:
            with self._lock:
                self._entries[key] = ([weakref.ref(t) for t in depends_on], versions, table)
                self._entries.move_to_end(key)
                while len(self._entries) > _MOST_TABLES:
                    self._entries.popitem(last=False)
        return table

    def __deepcopy__(self, memo: Any) -> TableCache:
        return TableCache()

    def __reduce__(self) -> tuple[type[TableCache], tuple[()]]:
        return TableCache, ()


def _versions(tensors: Sequence[Tensor]) -> list[Any] | None:
    """Version and address of each tensor; None if torch counts no versions of one of them."""
    try:
        return [(tensor._version, tensor.data_ptr()) for tensor in tensors]
    except RuntimeError:  # made in inference mode, or wrapped by torch.func
        return None


# Not a dictionary: hashing a grid would make a compiler fix its size.
PassTables = list[tuple[Hashable, Any]]


class PassInThread(threading.local):
    """The tables of the forward pass that this thread is in; None outside `shared_pass`.

    Copies and pickles are outside.
    """

    def __init__(self) -> None:
        # In every thread anew. Not defaults of the class: torch's compiler guards what is there.
        self.tables: PassTables | None = None
        self.is_complete = False

    def __deepcopy__(self, memo: Any) -> PassInThread:
        return PassInThread()

    def __reduce__(self) -> tuple[type[PassInThread], tuple[()]]:
        return PassInThread, ()


# --- Precision: the widest real dtype of the device, never autocast ----------------------------

_WITHOUT_FLOAT64 = ("mps",)


def working_dtype(device: torch.device) -> torch.dtype:
    """float64, or float32 on devices that have no float64."""
    return torch.float32 if device.type in _WITHOUT_FLOAT64 else torch.float64


def scalar(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number that is made on the device: a copy from the host would make a GPU wait for it."""
    return torch.full((), value, dtype=dtype, device=device)


# --- The interface -----------------------------------------------------------------------------

Kind = Literal["none", "additive", "rotary", "bias", "combined"]
T = TypeVar("T")


class AbstractEncoding(nn.Module):
    """A positional encoding of patch tokens.

    A model adds `additive` to its patch tokens and `prefix` to the class and register tokens
    before the first block, and in the attention of every block passes the patch part of q and k
    through `rotate` and adds `bias` to the logits of patches against patches. Each encoding
    answers one of these and leaves the others neutral. Every method takes any grid.

    Subclasses take ``(size, options)`` and name themselves by the class attributes. They make
    their tables by `table`. Such tables are exact under autocast, are reused where that is safe,
    and are never part of a state dict.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]
    summary: ClassVar[str]
    formula: ClassVar[str]
    options_class: ClassVar[type[Any]] = NoOptions

    _like: Tensor

    def __init__(self, size: EncodingSize) -> None:
        super().__init__()
        self.size = size
        # It has the device of the module and the dtype of its tables, also without parameters.
        self.register_buffer("_like", torch.empty(0), persistent=False)
        self._tables = TableCache()
        self._pass = PassInThread()

    def additive(self, grid: Grid) -> Tensor | None:
        """What is added to the patch tokens, (height*width, dim); None if nothing is.

        Like all answers it has the dtype and the device of the encoding, and gradients.

        >>> from training.encodings import build_encoding
        >>> size = {"dim": 48, "depth": 2, "num_heads": 3, "grid": (4, 4)}
        >>> build_encoding("weierstrass", **size).additive((4, 6)).shape
        torch.Size([24, 48])
        """
        checked_grid(grid)
        return None

    def rotate(self, q: Tensor, k: Tensor, grid: Grid, layer: int) -> tuple[Tensor, Tensor]:
        """q and k of the patch tokens, (batch, heads, height*width, head_dim), with position.

        They keep their dtype and device. `layer` counts from 0.

        >>> from training.encodings import build_encoding
        >>> size = {"dim": 48, "depth": 2, "num_heads": 3, "grid": (4, 4)}
        >>> q = k = torch.ones(1, 3, 24, 16)
        >>> turned, _ = build_encoding("rope_axial", **size).rotate(q, k, (4, 6), layer=0)
        >>> torch.allclose(turned.norm(dim=-1), q.norm(dim=-1))
        True
        """
        self.check_tokens(q, k, grid, layer)
        return q, k

    def bias(self, grid: Grid, layer: int) -> Tensor | None:
        """What is added to the attention logits, (heads, height*width, height*width), or None.

        The first position index belongs to the query, the second to the key. `layer` counts from 0.

        >>> from training.encodings import build_encoding
        >>> size = {"dim": 48, "depth": 2, "num_heads": 3, "grid": (4, 4)}
        >>> build_encoding("weierstrass_green", **size).bias((4, 6), layer=0).shape
        torch.Size([3, 24, 24])
        """
        checked_grid(grid)
        self.check_layer(layer)
        return None

    def prefix(self, n: int) -> Tensor | None:
        """What is added to the first `n` tokens (class token first, then registers), or None.

        >>> from training.encodings import build_encoding
        >>> size = {"dim": 48, "depth": 2, "num_heads": 3, "grid": (4, 4)}
        >>> build_encoding("learned", **size).prefix(1).shape
        torch.Size([1, 48])
        """
        check_prefix(n)
        return None

    # --- Places that are no grid: crops at their true place, tokens left out, packed images -----

    def additive_at(self, points: Tensor) -> Tensor | None:
        """What is added to tokens at any places, (..., tokens, dim); None if nothing is.

        `points` (..., tokens, 2) are shares of the width and the height of the image: the patch in
        row r and column c of a grid is at ((c + 1/2)/width, (r + 1/2)/height). What an encoding
        counts in patches is counted in those of the grid that it is made for. `InputError` if the
        encoding knows whole grids only.

        >>> from training.encodings import build_encoding
        >>> size = {"dim": 48, "depth": 2, "num_heads": 3, "grid": (4, 4)}
        >>> build_encoding("weierstrass", **size).additive_at(torch.rand(8, 5, 2)).shape
        torch.Size([8, 5, 48])
        """
        checked_points(points)
        self._check_neutral("additive")
        return None

    def bias_at(self, points: Tensor, layer: int) -> Tensor | None:
        """What is added to the attention logits of tokens at any places, or None.

        It is (..., heads, tokens, tokens); `points` are those of `additive_at`.

        >>> from training.encodings import build_encoding
        >>> size = {"dim": 48, "depth": 2, "num_heads": 3, "grid": (4, 4)}
        >>> build_encoding("weierstrass_heat", **size).bias_at(torch.rand(5, 2), layer=0).shape
        torch.Size([3, 5, 5])
        """
        checked_points(points)
        self.check_layer(layer)
        self._check_neutral("bias")
        return None

    def rotate_at(self, q: Tensor, k: Tensor, points: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """q and k (batch, heads, tokens, head_dim) of tokens at any places, with position.

        `points` are those of `additive_at`, the same for the batch or one set for each image.

        >>> from training.encodings import build_encoding
        >>> size = {"dim": 48, "depth": 2, "num_heads": 3, "grid": (4, 4)}
        >>> q = k = torch.ones(1, 3, 5, 16)
        >>> encoding = build_encoding("rope_axial", **size)
        >>> encoding.rotate_at(q, k, torch.rand(5, 2), layer=0)[0].shape
        torch.Size([1, 3, 5, 16])
        """
        checked_points(points)
        self.check_layer(layer)
        self._check_neutral("rotate")
        return q, k

    def _check_neutral(self, method: str) -> None:
        """Raise if an encoding that answers for grids has no answer for other places."""
        if getattr(type(self), method) is not getattr(AbstractEncoding, method):
            raise InputError(f"{self.name} knows the places of a whole grid only")

    def draw_places(self, grid: Grid) -> None:
        """Draw where the patches are in this pass, if they move; a model calls it first."""

    def moved_centres(self, grid: Grid, options: MovedPlaces) -> tuple[Tensor, Tensor]:
        """u and v of the patches, moved at random: the same for all layers of a pass."""
        return self.table(
            ("moved centres", grid),
            lambda: moved_places(*patch_centres(grid, self.working_dtype, self.device), options),
        )

    @property
    def draws_in_training(self) -> bool:
        """Whether something is drawn anew for every pass of training: dropout, or moved places."""
        return any(isinstance(each, nn.Dropout) and each.p > 0.0 for each in self.modules())

    def check_ready(self) -> None:
        """Raise if the encoding cannot be used yet; models ask before the first forward pass."""

    def fold(self, grid: Grid) -> None:
        """Keep, for this grid alone, what `rotate` needs and other runtimes cannot compute."""

    def elliptic_use(self) -> EllipticUse | None:
        """What the encoding itself asks of a backend; None if it asks nothing.

        An encoding that is made of others answers for itself alone.
        """
        return None

    def brought_here(self, tensors: dict[str, Tensor], grid: Grid) -> dict[str, Tensor]:
        """The parameters of this encoding made for `grid`, as they are for the grid of this one.

        They are the same function of the place, or as near as the encoding can come. Most count in
        shares of the image and stay as they are.
        """
        return tensors

    def learned_numbers(self) -> dict[str, Tensor]:
        """What has been learned besides matrices and tables, by the letters of the paper.

        A number, a row of numbers, or one for each layer and head.
        """
        return {}

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that should not decay: all but matrices of projections."""
        return {
            name
            for name, parameter in self.named_parameters()
            if parameter.ndim < 2 or not name.endswith("weight")
        }

    @contextmanager
    def shared_pass(
        self, tables: PassTables | None = None, *, is_complete: bool = False
    ) -> Iterator[None]:
        """Within it, all layers share tables that depend on learned parameters.

        It goes around the loop over the blocks in one forward pass: without it the elliptic
        functions of a learned lattice are evaluated once per layer, and a compiler traces them as
        often. It holds for the thread that entered it.

        A model that cannot put one statement around all blocks puts one around each, always with
        the same list, which is empty at the start of a forward pass. Layers that are evaluated
        again in the backward pass (activation checkpointing) must find the same tables both times:
        there the list is filled before the first block, and ``is_complete`` keeps the blocks from
        adding to it.
        """
        here = self._pass
        before = (here.tables, here.is_complete)
        here.tables, here.is_complete = [] if tables is None else tables, is_complete
        try:
            yield
        finally:
            here.tables, here.is_complete = before

    def drop_tables(self) -> None:
        """Forget every table; needed only after writing to ``buffer.data``."""
        for module in self.modules():  # an encoding may be made of others
            if isinstance(module, AbstractEncoding):
                module._tables.clear()

    @property
    def device(self) -> torch.device:
        """The device of the tables."""
        return self._like.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype tables are cast to."""
        return self._like.dtype

    @property
    def working_dtype(self) -> torch.dtype:
        """The dtype tables are computed in."""
        return working_dtype(self.device)

    def table(
        self, key: Hashable, make: Callable[[], T], depends_on: Sequence[Tensor] | None = None
    ) -> T:
        """The result of `make`, computed outside autocast and kept while it is valid.

        By default a table depends on every parameter of the module, perhaps through dropout. It is
        then shared by the layers of one pass (`shared_pass`) and not kept any longer. If
        `depends_on` names the tensors it is made of and no parameter is among them, it is kept for
        all passes.
        """
        with without_autocast(self.device):
            is_fixed = depends_on is not None and not any(
                isinstance(tensor, nn.Parameter) for tensor in depends_on
            )
            if depends_on is not None and is_fixed and not torch.compiler.is_compiling():
                where = (key, self.device, self.dtype)  # a graph makes its own
                table: T = self._tables.get(where, depends_on, make)
                return table
            here = self._pass
            if here.tables is None:
                return make()
            for known, shared in here.tables:
                if known == key:
                    found: T = shared
                    return found
            made = make()
            if not here.is_complete:
                here.tables.append((key, made))
            return made

    def check_layer(self, layer: int) -> None:
        """Raise `InputError` unless there is a layer of that number, counted from 0."""
        if not 0 <= layer < self.size.depth:
            raise InputError(f"layer {layer!r} is not one of the {self.size.depth} layers from 0")

    def check_tokens(self, q: Tensor, k: Tensor, grid: Grid, layer: int) -> Grid:
        """The grid, if q and k have a token for each of its patches."""
        height, width = checked_grid(grid)
        self.check_layer(layer)
        expected = (self.size.num_heads, height * width, self.size.head_dim)
        for name, tokens in (("q", q), ("k", k)):
            if tokens.ndim != 4 or tuple(tokens.shape[1:]) != expected:
                raise InputError(
                    f"{name} must have the shape (batch, heads, patches, head_dim) = "
                    f"(batch, {', '.join(map(str, expected))}) for the grid {(height, width)}, "
                    f"without class or register tokens; got {tuple(tokens.shape)}"
                )
        return height, width

    def extra_repr(self) -> str:
        size = self.size
        shape = f"dim={size.dim}, depth={size.depth}, num_heads={size.num_heads}, grid={size.grid}"
        use = self.elliptic_use()
        return shape if use is None else f"{shape}, backend={use.backend}"


def checked_points(points: Tensor) -> tuple[Tensor, Tensor]:
    """u and v of places (..., tokens, 2) in float64, or InputError."""
    if points.ndim < 2 or points.shape[-1] != 2 or not points.is_floating_point():
        raise InputError(
            "points must be (..., tokens, 2), shares of the width and height of the image, got "
            f"{points.dtype} {tuple(points.shape)}"
        )
    u, v = points.to(working_dtype(points.device)).unbind(-1)
    return u, v


def differences(points: Tensor) -> tuple[Tensor, Tensor]:
    """Shares of width and height from each place to each, (..., tokens, tokens)."""
    u, v = checked_points(points)
    return u[..., None, :] - u[..., :, None], v[..., None, :] - v[..., :, None]


def check_prefix(n: int) -> None:
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise InputError(f"the number of prefix tokens must be 0 or more, got {n!r}")


def prefix_rows(rows: Tensor, n: int) -> Tensor | None:
    """The first `n` rows; tokens beyond them (registers) get zeros. None for no token."""
    check_prefix(n)
    if n == 0:
        return None
    if n <= rows.shape[0]:
        return rows[:n]
    return torch.cat([rows, rows.new_zeros(n - rows.shape[0], rows.shape[1])])


class NoEncoding(AbstractEncoding):
    """The control: every answer is neutral, so attention does not know where a patch is."""

    name = "none"
    kind = "none"
    summary = "no position at all: patches are a set"
    formula = "x_i"

    def __init__(self, size: EncodingSize, options: NoOptions) -> None:
        super().__init__(size)
