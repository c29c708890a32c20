"""Threads that make batches ahead of time, and the time that training spends waiting for batches.

Batches are made by threads, not processes: Pillow releases the interpreter lock while it decodes, and a process forked
while threads of TensorFlow or MXNet run may hang. There is one thread for each core the process may use, so on a CPU
loading competes with training, as it does in a real run.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tbdprof.collect import host
from tbdprof.errors import UsageError

Batch = TypeVar("Batch")

AHEAD = 2  # batches made ahead of time; more if a worker would be without a task
LISTED = 4  # how many names an error lists when a folder holds no data set

_ORDER = 2  # joined to the seed, so that order, samples and `inputs` draw different random numbers
_SAMPLE = 3


class Stopwatch:
    """Adds up seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0


waited = Stopwatch()  # time that the training loop of this process waited for batches


@dataclass(frozen=True, slots=True)
class Draft(Generic[Batch]):
    """A batch to be made: tasks that run in parallel, and a function that assembles the batch from their results."""

    tasks: tuple[Callable[[], Any], ...]
    assemble: Callable[[Sequence[Any]], Batch]


def prefetch(drafts: Iterable[Draft[Batch]], workers: int | None = None) -> Iterator[Batch]:
    """Yield batches in the order of their drafts; an exception of a task is raised here in place of its batch.

    Threads start when the first batch is requested and end when the iterator is closed or garbage-collected. At exit,
    tasks that have begun are finished.
    """
    threads = workers or max(1, int(host.usable_cores()))
    upcoming, begun = iter(drafts), deque[tuple[Draft[Batch], list[Future[Any]]]]()
    pool = ThreadPoolExecutor(threads, "tbdprof-data")

    def fill() -> None:
        while len(begun) < AHEAD or sum(len(futures) for _, futures in begun) <= threads:
            draft = next(upcoming, None)
            if draft is None:
                return
            begun.append((draft, [pool.submit(task) for task in draft.tasks]))

    try:
        while True:
            asked = time.perf_counter()
            fill()
            if not begun:
                return
            draft, futures = begun.popleft()
            batch = draft.assemble([future.result() for future in futures])
            fill()
            waited.seconds += time.perf_counter() - asked
            yield batch
    finally:
        pool.shutdown(cancel_futures=True)


def shuffled(samples: int, seed: int) -> Iterator[int]:
    """Yield the indices of all samples, pass after pass, each pass in another order."""
    for number in count():
        yield from order(samples, seed, number).tolist()


def order(samples: int, seed: int, number: int) -> NDArray[np.int64]:
    """Return the order of some samples in the pass, or other unit, with a number."""
    return np.random.default_rng((seed, _ORDER, number)).permutation(samples)


def generator(seed: int, number: int) -> np.random.Generator:
    """Return the random generator for augmenting the sample with a number, the same in whichever thread reads it."""
    return np.random.default_rng((seed, _SAMPLE, number))


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Turn an OSError in the block, such as a denied permission to list a folder, into a UsageError that names it."""
    try:
        yield
    except OSError as error:
        refused = error.filename or folder
        raise UsageError(
            f"cannot read {refused}: {error.strerror}; make it readable, or give --data another folder"
        ) from error


def remedy(error: Exception) -> str:
    """Return what to do about a file that cannot be read."""
    return "make it readable" if isinstance(error, PermissionError) else "restore it"


def check_folder(folder: Path) -> None:
    """Raise UsageError if the folder does not exist, is empty, or may not be listed."""
    with readable(folder):
        if not folder.exists():
            raise UsageError(f"no folder {folder}: give --data the folder of the data set, or synthetic")
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder: give --data the folder of the data set")
        if not any(folder.iterdir()):
            raise UsageError(f"{folder} is empty: give --data the folder of the data set")


def wrong_kind(folder: Path, expected: str) -> UsageError:
    """Return the error for a folder that does not hold a data set's files."""
    with readable(folder):
        names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return UsageError(f"{folder} should hold {expected}, but holds {', '.join(names[:LISTED]) or 'nothing'}{more}")
