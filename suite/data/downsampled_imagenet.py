"""Downsampled ImageNet at 64×64 pixels, as npz files of up to 128,117 images each: DIR/train_data_batch_1.npz and on.

After Chrabaszcz et al., A Downsampled Variant of ImageNet as an Alternative to the CIFAR datasets, 2017
(arXiv:1707.08819). The array `data` (images, 12288) of bytes holds the red, green and blue planes, row by row. An
original file takes 1.6 GB, so only one is in memory at a time. Every pass shuffles the files and the images in each.

A file is read by steps and not by `np.load`, which would unpack and allocate whatever the file states.
"""

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, repeat
from operator import itemgetter
from pathlib import Path
from textwrap import shorten
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tbdprof.collect import host
from tbdprof.errors import DataError
from tbdprof.facts.units import bytes_text
from tbdprof.suite.data.files import check_file, shown
from tbdprof.suite.data.inputs import Pictures
from tbdprof.suite.data.loading import LISTED, Draft, check_folder, order, prefetch, readable, remedy, wrong_kind

EXPECTED = "downsampled ImageNet's train_data_batch_1.npz, train_data_batch_2.npz and so on"
NAME = re.compile(r"train_data_batch_(\d+)\.npz")
SIDE = 64
VALUES = 3 * SIDE * SIDE
MOST_PICTURES = 1_281_167  # in a file: as many as the whole data set has
MEMBER = "data.npy"
LONGEST_REASON = 200  # characters of what a file states, and of another library's message
BLOCK = 1 << 20  # the most bytes read at once

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Member:
    """The array of a file, opened where its first picture begins."""

    source: IO[bytes]
    pictures: int
    by_columns: bool  # whether the first values of all pictures come first (Fortran's order)


class _InBlocks(io.BufferedReader):
    """A file that is read in blocks; zipfile reads the list of members at once, however long it says that it is."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > BLOCK:
            raise zipfile.BadZipFile(f"its list of members has {bytes_text(size)}")
        return super().read(size)


def look(folder: Path) -> None:
    """Raise UsageError unless a folder holds the files, DataError if one is broken; reads no image."""
    for file in _files(folder):
        with _member(file):
            pass


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
    with _member(file) as member:
        needed, there = member.pictures * VALUES, host.available_memory_bytes()
        if needed > there:
            raise DataError(
                f"{file} needs {bytes_text(needed)} of memory, and {bytes_text(there)} are available: split it"
            )
        data = np.empty(needed, np.uint8)
        for start in range(0, needed, BLOCK):
            block = member.source.read(min(BLOCK, needed - start))
            data[start : start + len(block)] = np.frombuffer(block, np.uint8)
            if len(block) < min(BLOCK, needed - start):
                raise EOFError(f"it ends after {start + len(block)} of {needed} bytes")
        if member.source.read(1):  # the checksum is compared at the end
            raise EOFError(f"it goes on after {needed} bytes")
        return data.reshape(VALUES, -1).T if member.by_columns else data.reshape(-1, VALUES)


@contextmanager
def _member(file: Path) -> Iterator[_Member]:
    """Open the array of a file; raises DataError for whatever is wrong with the file, in the block too."""
    try:
        check_file(file, 2 * MOST_PICTURES * VALUES)
        with _InBlocks(io.FileIO(file)) as source, zipfile.ZipFile(source) as members:
            _check_member(file, members)
            with members.open(MEMBER) as member:
                yield _Member(member, *_header(file, member))
    except DataError:
        raise
    except Exception as error:  # a damaged file makes zipfile and numpy raise errors of many types
        raise _broken(file, error) from error


def _check_member(file: Path, members: zipfile.ZipFile) -> None:
    """Raise DataError if an array is not there, BadZipFile if unpacking it could take any amount of memory."""
    names = members.namelist()
    if MEMBER not in names:
        raise _without_data(file, names)
    if members.getinfo(MEMBER).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile("it is compressed in another way than numpy compresses")


def _header(file: Path, member: IO[bytes]) -> tuple[int, bool]:
    """Return how many pictures an array states, and whether it is stored by columns; raises DataError for others."""
    versions: dict[tuple[int, int], Any] = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    magic: Any = npy.read_magic  # numpy has no types for it
    shape, by_columns, kind = versions[magic(member)](member)
    if kind != np.uint8 or len(shape) != 2 or shape[1] != VALUES or not 0 < shape[0] <= MOST_PICTURES:
        found = shorten(f"{kind}, {shape}", LONGEST_REASON, placeholder=" …")
        raise DataError(
            f"{file} has data of {found}, and not of uint8, (1 to {MOST_PICTURES} pictures, {VALUES}): restore it"
        )
    return shape[0], by_columns


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
    reason = shorten(message or str(error), LONGEST_REASON, placeholder=" …") or type(error).__name__
    return DataError(f"{file} cannot be read: {reason}; {remedy(error)}, or remove it")


def _without_data(file: Path, names: Sequence[str]) -> DataError:
    some = ", ".join(map(shown, names[:LISTED]))
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    found = f" but {some}{more}" if names else ""
    return DataError(f"{file} has no array `data`{found}: restore it, or remove it")
