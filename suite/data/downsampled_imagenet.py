"""Downsampled ImageNet at 64×64 pixels, as npz files of up to 128,117 images each: DIR/train_data_batch_1.npz and on.

After Chrabaszcz et al., A Downsampled Variant of ImageNet as an Alternative to the CIFAR datasets, 2017
(arXiv:1707.08819): `data` (images, 12288) of bytes holds the planes of red, green and blue, row by row. A file of the
original takes 1.6 GB: one is held at a time, in an order of its own every pass.
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
    """Raise UsageError unless a folder holds the files, DataError where one of them is cut short; reads no image."""
    for file in _files(folder):
        try:
            with zipfile.ZipFile(file) as members:
                names = members.namelist()
        except (OSError, zipfile.BadZipFile) as error:
            raise _broken(file, error) from error
        if "data.npy" not in names:
            raise _without_data(file, names)


def batches(folder: Path, batch_size: int, seed: int) -> Iterator[Pictures]:
    """Return endless batches of pictures from -1 to 1, files and the pictures in each reshuffled every pass.

    Batches go on over the ends of files and passes. One thread reads, as only one file may be held. Raises UsageError
    where the folder holds something else, DataError for a broken file.
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
    """Yield shuffled pictures so that they add up to batches, however few each file has."""
    wanted = batch_size
    for number in count():
        for place in order(len(files), seed, number):
            # A file's order has a number of its own, after those of all passes so far.
            data = read(files[place])
            inside = order(len(data), seed + 1, number * len(files) + int(place))
            at = 0
            while at < len(inside):
                part = data[inside[at : at + wanted]]
                at += len(part)
                wanted = wanted - len(part) or batch_size
                yield part
            del data, part  # before the next file is read


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
    """Return the files, sorted by their number."""
    check_folder(folder)
    with readable(folder):
        numbered = [(int(match[1]), path) for path in folder.iterdir() if (match := NAME.fullmatch(path.name))]
    if not numbered:
        raise wrong_kind(folder, EXPECTED)
    return [path for _, path in sorted(numbered)]


def _broken(file: Path, error: Exception) -> DataError:
    told = isinstance(error, OSError) and error.strerror  # without the path, which the text of the error repeats
    reason = " ".join((told or str(error)).split()) or type(error).__name__
    return DataError(f"{file} cannot be read: {reason}; {remedy(error)}, or remove it")


def _without_data(file: Path, names: Sequence[str]) -> DataError:
    found = f" but {', '.join(names)}" if names else ""
    return DataError(f"{file} has no array `data`{found}: restore it, or remove it")
