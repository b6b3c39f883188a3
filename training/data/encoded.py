"""Images that are decoded whenever they are fetched, wherever their bytes are kept."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import torch
from PIL import Image
from torch import Tensor

from training.augmentation.geometry import Boxes
from training.data.sources import ImageSource, MemorySource, checked_labels
from training.errors import DataError, DataNotFoundError
from training.parsing import ImageSize, height_and_width

if TYPE_CHECKING:
    from training.config.schema import Data

# Images that take at most this many bytes are decoded at the start and kept by every process.
CACHE_BYTES = 2**30
# Images that a worker reads in one go. Their files are open together, so it is a small number.
AT_ONCE = 16
# The interpreter runs one thread at a time for the 5 % of the work that is not Pillow's.
_MOST_WORKERS = 16
# Converting these to 8 bits would silently clip values above 255.
_WIDE_MODES = ("I", "F")
_BLANK = 128  # the grey of an image that cannot be decoded
_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@dataclass(frozen=True)
class Reading:
    """How images are read.

    Parameters
    ----------
    image_size : int or (int, int), optional
        Of the images that are fetched; without it all must have the size of the first.
    resize : int, optional
        The shorter side is resized to it, and the middle of the result is cut out. Without it the
        whole image is resized, whatever its proportions.
    interpolation : {"bilinear", "bicubic"}
        Both with a filter against aliasing.
    damaged : {"stop", "blank"}
        What becomes of an image that cannot be decoded: an error, or a grey image that is counted.
    workers : int
        Threads that decode. No result depends on it.
    """

    image_size: ImageSize | None = None
    resize: int | None = None
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    damaged: Literal["stop", "blank"] = "stop"
    workers: int = 1

    @classmethod
    def of(cls, data: Data, image_size: ImageSize | None) -> Reading:
        """As the table ``[data]`` of a config says, perhaps at another size.

        At another size the images are resized in proportion, so the same part is cut out.
        """
        resize = data.resize
        if resize is not None and image_size is not None and data.image_size is not None:
            resize = round(resize * min(height_and_width(image_size)) / data.image_size)
        return cls(image_size, resize, data.interpolation, data.damaged, worker_count(data.workers))


def crop_share(data: Data) -> float | None:
    """Side of the square that is cut out of a resized image, divided by its shorter side."""
    if data.resize is None or data.image_size is None:
        return None
    return data.image_size / data.resize


def worker_count(asked: int | None) -> int:
    """The threads that read images: as asked, or one for each core this process may use.

    Processes that a launcher started on one machine share its cores.
    """
    if asked is not None:
        return asked
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        cores = os.cpu_count() or 1
    beside = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, min(_MOST_WORKERS, cores // (int(beside) if beside.isdecimal() else 1)))


def parts_of(count: int) -> Iterator[slice]:
    """The stretches of a batch that are read in one go each."""
    return (slice(start, min(start + AT_ONCE, count)) for start in range(0, count, AT_ONCE))


class AbstractEncodedSource(ABC):
    """Images that Pillow decodes to RGB; the orientation marked in a file (EXIF) is ignored."""

    channels = 3

    def __init__(
        self, labels: Tensor, class_names: tuple[str, ...], description: str, reading: Reading
    ) -> None:
        self.labels = checked_labels(labels, len(self), class_names, description)
        if not len(self):
            raise DataError(f"{description} holds no images")
        self.class_names = class_names
        self.description = description
        self.damaged: dict[str, str] = {}  # names of images and what is wrong with them
        self._reading = reading
        self.workers = reading.workers
        size = reading.image_size
        self.size = height_and_width(size) if size else self._size_of(0)

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def open(self, index: int) -> Path | IO[bytes]:
        """A path or an open file with the bytes of an image."""

    @abstractmethod
    def name(self, index: int) -> str:
        """What messages call an image."""

    def fetch(self, indices: Tensor) -> Tensor:
        images = self._empty(len(indices))
        for place, index in enumerate(indices.tolist()):
            with ExitStack() as files:
                opened = self._opened(index, files)
                images[place] = self._pixels(index, opened, None)
        return images

    def fetch_windows(self, indices: Tensor, choose: Callable[[Tensor], Boxes]) -> Tensor:
        """A box of each image, cut out of it in its own resolution and resized.

        All files are open together: ask for few images at a time (`parts_of`).
        """
        images = self._empty(len(indices))
        with ExitStack() as files:
            opened = [self._opened(index, files) for index in indices.tolist()]
            sizes = [(1, 1) if each is None else each.size for each in opened]
            if not sizes:
                return images
            ratios = torch.tensor([width / height for width, height in sizes], dtype=torch.float64)
            boxes = torch.stack(choose(ratios), dim=1).tolist()
            for place, index in enumerate(indices.tolist()):
                image = opened[place]
                images[place] = self._pixels(index, image, boxes[place])
                if image is not None:
                    image.close()  # one decoded photograph is in memory at a time
        return images

    def loaded(self, limit: int | None = None) -> ImageSource:
        """The source in memory if its images fit into `limit` bytes, else itself.

        Loading decodes every file, so a damaged one is named now and not in the middle of a run.
        If the images do not fit, the files are only known to exist and not to be empty.
        """
        height, width = self.size
        limit = CACHE_BYTES if limit is None else limit
        if len(self) * self.channels * height * width > limit:
            return self
        images = self._empty(len(self))

        def read(part: slice) -> None:
            images[part] = self.fetch(torch.arange(part.start, part.stop))

        with ThreadPoolExecutor(self.workers) as pool:
            for _ in pool.map(read, parts_of(len(self))):
                pass
        if self._reading.image_size is None:  # every window of a file is in memory
            return MemorySource(images, self.labels, self.class_names, self.description)
        return LoadedFiles(images, self)

    # --- One image -----------------------------------------------------------------------------

    def _empty(self, count: int) -> Tensor:
        return torch.empty(count, self.channels, *self.size, dtype=torch.uint8)

    def _size_of(self, index: int) -> tuple[int, int]:
        with ExitStack() as files:
            opened = self._opened(index, files)
            if opened is None:
                raise DataError(f"{self.name(index)} cannot be decoded; set data.image_size")
            return opened.height, opened.width

    def _opened(self, index: int, files: ExitStack) -> Image.Image | None:
        """The image with its size, not decoded yet; None if it is damaged."""
        try:
            return files.enter_context(Image.open(self.open(index)))
        except Exception as error:
            self._note(index, error)
            return None

    def _pixels(
        self, index: int, opened: Image.Image | None, box: Sequence[float] | None
    ) -> Tensor:
        """The image, or a box of it, at the size of the source: uint8 (3, height, width)."""
        height, width = self.size
        try:
            pixels = None if opened is None else self._decoded(index, opened)
        except Exception as error:
            self._note(index, error)
            pixels = None
        if pixels is None:
            return torch.full((self.channels, height, width), _BLANK, dtype=torch.uint8)
        kind = _FILTERS[self._reading.interpolation]
        if box is not None:
            pixels = pixels.crop(_pixels_of_box(box, pixels.size))
        elif self._reading.resize is not None:
            pixels = _middle(pixels, self.size, self._reading.resize, kind)
        if pixels.size != (width, height):
            if self._reading.image_size is None and box is None:
                raise DataError(
                    f"{self.name(index)} is {pixels.height} x {pixels.width} pixels, the first "
                    f"image of {self.description} {height} x {width}; set data.image_size"
                )
            pixels = pixels.resize((width, height), kind)
        flat = torch.frombuffer(bytearray(pixels.tobytes()), dtype=torch.uint8)
        return flat.view(height, width, self.channels).permute(2, 0, 1)

    def _decoded(self, index: int, opened: Image.Image) -> Image.Image:
        if opened.mode.startswith(_WIDE_MODES):
            raise DataError(
                f"{self.name(index)} has more than 8 bits per channel (mode {opened.mode}); "
                "convert it"
            )
        if opened.mode != "RGB":
            return opened.convert("RGB")
        opened.load()
        return opened

    def _note(self, index: int, error: Exception) -> None:
        """Raise what ends a run, or note a damaged image."""
        name = self.name(index)
        if isinstance(error, DataError):
            raise error
        if isinstance(error, MemoryError):
            raise DataError(
                f"not enough memory to decode {name}; lower data.workers or training.batch_size"
            ) from error
        if isinstance(error, FileNotFoundError):
            raise DataNotFoundError(f"{name} no longer exists") from error
        # A disk or a network that fails is no damaged image: errors of the system have a number.
        is_system = isinstance(error, OSError) and error.errno is not None
        if self._reading.damaged == "stop" or is_system:
            raise DataError(f"{name} cannot be decoded as an image: {error}") from error
        self.damaged[name] = str(error)


class LoadedFiles(MemorySource):
    """Images that are kept in memory in the size of the model; windows are still decoded."""

    def __init__(self, images: Tensor, files: AbstractEncodedSource) -> None:
        super().__init__(images, files.labels, files.class_names, files.description)
        self._files = files
        self.workers = files.workers
        self.damaged = files.damaged

    def fetch_windows(self, indices: Tensor, choose: Callable[[Tensor], Boxes]) -> Tensor:
        return self._files.fetch_windows(indices, choose)


def _pixels_of_box(box: Sequence[float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Left, upper, right and lower edge in whole pixels, of at least one pixel, in the image."""
    top, left, tall, wide = box
    edges = []
    for start, extent, length in ((left, wide, size[0]), (top, tall, size[1])):
        pixels = min(max(round(extent * length), 1), length)
        first = min(round(start * length), length - pixels)
        edges.append((first, first + pixels))
    (x0, x1), (y0, y1) = edges
    return x0, y0, x1, y1


def _middle(
    image: Image.Image, size: tuple[int, int], resize: int, kind: Image.Resampling
) -> Image.Image:
    """The middle of the image after its shorter side was resized, as timm and torchvision cut it.

    An image that would not fill `size` is resized further, until it does.
    """
    height, width = size
    short, long = sorted(image.size)
    resized = (resize, int(resize * long / short))
    wide, tall = resized if image.width <= image.height else resized[::-1]
    if wide < width or tall < height:
        factor = max(width / image.width, height / image.height)
        wide = max(width, round(image.width * factor))
        tall = max(height, round(image.height * factor))
    if image.size != (wide, tall):
        image = image.resize((wide, tall), kind)
    top, left = round((tall - height) / 2), round((wide - width) / 2)
    return image.crop((left, top, left + width, top + height))
