"""Which of several processes that train together this one is, from what its launcher or its framework says.

No other process is asked: a collective call would make a rank wait that nobody profiles.
"""

import os

from tbdprof.facts.ranks import Rank, rank_of
from tbdprof.hooks import about

# The launchers' own environment variables: torchrun and accelerate, Open MPI, MPICH, Horovod; the first pair counts.
# The last one is for launchers that number the processes of one machine only.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("LOCAL_RANK", "WORLD_SIZE"),
)


def own_rank(framework: str) -> Rank | None:
    """Return this process's rank; None if it trains alone, or if neither framework nor launcher says which it is."""
    return about(framework).rank() or launched_rank()


def launched_rank() -> Rank | None:
    """Return this process's rank as its launcher's environment says it."""
    found = (rank_of(os.environ.get(number), os.environ.get(of)) for number, of in _VARIABLES)
    return next(filter(None, found), None)
