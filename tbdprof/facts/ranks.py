"""Processes that train together: each has a number, its rank, and a file of its own."""

import re
from pathlib import Path
from typing import NamedTuple


class Rank(NamedTuple):
    """The number of a process among all that train together, on all machines."""

    number: int
    of: int

    def __str__(self) -> str:
        """Return it in words: `rank 1 of 4`."""
        return f"rank {self.number} of {self.of}"


def rank_of(number: object, of: object) -> Rank | None:
    """Return the rank that two whole numbers (or their texts) give; None if they are none, or if one trains alone."""
    try:
        rank = Rank(int(str(number)), int(str(of)))
    except ValueError:
        return None
    return rank if 0 <= rank.number < rank.of and rank.of > 1 else None


def facts_of(rank: Rank | None) -> dict[str, int]:
    """Return the facts of a run that its rank gives."""
    return {} if rank is None else {"rank": rank.number, "world_size": rank.of}


def path_of(path: Path, rank: int) -> Path:
    """Return the file of a rank: `run.rank1.tbd` for `run.tbd`, and the path itself if its name ends so already."""
    if re.search(rf"rank[-_.]?0*{rank}$", path.stem, re.IGNORECASE):
        return path
    return path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def files_of(path: Path) -> dict[int, Path]:
    """Return the files of ranks that there are for a path, by rank; `run` and `run.tbd` both name `run.rank1.tbd`."""
    name = re.compile(rf"{re.escape(path.stem)}\.rank(0|[1-9]\d{{0,8}}){re.escape(path.suffix or '.tbd')}")
    try:
        found = {int(match[1]): each for each in path.parent.iterdir() if (match := name.fullmatch(each.name))}
    except OSError:
        return {}
    return dict(sorted(found.items()))
