"""Downsampled ImageNet at 64×64 pixels, as npz files of up to 128,117 images each: DIR/train_data_batch_1.npz and on.

After Chrabaszcz et al., A Downsampled Variant of ImageNet as an Alternative to the CIFAR datasets, 2017
(arXiv:1707.08819). The array `data` (images, 12288) of bytes holds the red, green and blue planes, row by row. An
original file takes 1.6 GB, so only one is in memory at a time. Every pass shuffles the files and the images in each.
"""

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, repeat
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tbdprof.errors import DataError
from tbdprof.suite.data.inputs import Pictures
from tbdprof.suite.data.loading import Draft, check_folder, order, prefetch, readable, remedy, wrong_kind

EXPECTED = "downsampled ImageNet's train_data_batch_1.npz, train_data_batch_2.npz and so on"
NAME = re.compile(r"train_data_batch_(\d+)\.npz")
SIDE = 64
VALUES = 3 * SIDE * SIDE

Bytes = NDArray[np.uint8]


def look(folder: Path) -> None:
    """Raise UsageError unless a folder holds the files, DataError if one of them is cut short; reads no image."""
    for file in _files(folder):
        try:
            with zipfile.ZipFile(file) as members:
                names = members.namelist()
        except (OSError, zipfile.BadZipFile) as error:
            raise _broken(file, error) from error
        if "data.npy" not in names:
            raise _without_data(file, names)


def batches(folder: Path, batch_size: int, seed: int) -> Iterator[Pictures]:
    """Return endless batches of pictures from -1 to 1; every pass reshuffles the files and the pictures in each.

    A batch may cross the end of a file or of a pass. One thread reads, because only one file may be in memory. Raises
    UsageError if the folder holds something else, DataError for a broken file.
    """
    look(folder)
    task = partial(next, _pictures(_files(folder), batch_size, seed))
    return prefetch((Draft((task,), itemgetter(0)) for _ in repeat(None)), workers=1)


def _pictures(files: Sequence[Path], batch_size: int, seed: int) -> Iterator[Pictures]:
    rows, held = list[Bytes](), 0
    for part in _parts(files, batch_size, seed):
        rows.append(part)
        held += len(part)
        if held == batch_size:
            pixels = np.concatenate(rows).reshape(batch_size, 3, SIDE, SIDE)
            yield Pictures(pixels.astype(np.float32) / np.float32(127.5) - 1)
            rows, held = [], 0


def _parts(files: Sequence[Path], batch_size: int, seed: int) -> Iterator[Bytes]:
    """Yield groups of shuffled pictures that add up to whole batches, even if files are smaller than a batch."""
    wanted = batch_size
    for number in count():
        for place in order(len(files), seed, number):
            # Each file's order has its own number, which differs from the numbers of earlier passes.
            data = read(files[place])
            inside = order(len(data), seed + 1, number * len(files) + int(place))
            at = 0
            while at < len(inside):
                part = data[inside[at : at + wanted]]
                at += len(part)
                wanted = wanted - len(part) or batch_size
                yield part
            del data, part  # release this file before reading the next


def read(file: Path) -> Bytes:
    """Return a file's pictures, (pictures, 12288); raises DataError naming the file."""
    try:
        with np.load(file) as members:
            data: Bytes = members["data"]
    except KeyError as error:
        raise _without_data(file, []) from error
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise _broken(file, error) from error
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != VALUES or not len(data):
        raise DataError(
            f"{file} has data of {data.dtype}, {data.shape}, and not of uint8, (pictures, {VALUES}): restore it"
        )
    return data


def _files(folder: Path) -> list[Path]:
    """Return the files, sorted by number."""
    check_folder(folder)
    with readable(folder):
        numbered = [(int(match[1]), path) for path in folder.iterdir() if (match := NAME.fullmatch(path.name))]
    if not numbered:
        raise wrong_kind(folder, EXPECTED)
    return [path for _, path in sorted(numbered)]


def _broken(file: Path, error: Exception) -> DataError:
    message = isinstance(error, OSError) and error.strerror  # without the path, which str(error) would repeat
    reason = " ".join((message or str(error)).split()) or type(error).__name__
    return DataError(f"{file} cannot be read: {reason}; {remedy(error)}, or remove it")


def _without_data(file: Path, names: Sequence[str]) -> DataError:
    found = f" but {', '.join(names)}" if names else ""
    return DataError(f"{file} has no array `data`{found}: restore it, or remove it")
