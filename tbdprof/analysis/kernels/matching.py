"""Match counted launches with a run's kernels: by name, grid and block, otherwise by their place in a step.

Names are compared as `kernel_names.canonical` spells them. If those spellings differ, kernels of the same function,
grid and block are paired in the order of a step, provided that both sides have equally many. Otherwise they stay
unmatched.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from tbdprof.analysis.kernels.kernel_names import bare, canonical
from tbdprof.facts.arrays import Ints
from tbdprof.results.kernels import Key

Spelling = Callable[[str], str]


def matched(ours: Sequence[Key], in_step: Ints, theirs: Sequence[Key], counted: Ints) -> dict[int, Ints]:
    """Return the counted launches of each of our groups that have any.

    `in_step` holds the group of each of our kernels in one step, in order. `counted` holds the group of each of their
    launches.
    """
    exact = _by(theirs, canonical)
    same = {place: exact.get(_spelled(key, canonical), []) for place, key in enumerate(ours)}
    found = {place: _launches(groups, counted) for place, groups in same.items() if groups}
    taken = {group for groups in same.values() for group in groups}
    left = _by(ours, bare, leave=found), _by(theirs, bare, leave=taken)
    return {**found, **_in_order(*left, in_step, counted)}


def _in_order(
    ours: Mapping[Key, list[int]], theirs: Mapping[Key, list[int]], in_step: Ints, counted: Ints
) -> dict[int, Ints]:
    found: dict[int, Ints] = {}
    for key in ours.keys() & theirs.keys():
        launches, mine = _launches(theirs[key], counted), in_step[np.isin(in_step, ours[key])]
        if len(ours[key]) == len(theirs[key]) == 1:  # one kernel in two spellings
            found[ours[key][0]] = launches
        elif len(mine) == len(launches):
            found |= {place: launches[mine == place] for place in np.unique(mine).tolist()}
    return found


def _launches(groups: Sequence[int], counted: Ints) -> Ints:
    rows: Ints = np.flatnonzero(np.isin(counted, groups))
    return rows


def _by(keys: Sequence[Key], spelling: Spelling, leave: Collection[int] = ()) -> dict[Key, list[int]]:
    found = defaultdict[Key, list[int]](list)
    for place, key in enumerate(keys):
        if place not in leave:
            found[_spelled(key, spelling)].append(place)
    return dict(found)


def _spelled(key: Key, spelling: Spelling) -> Key:
    name, grid, block = key
    return spelling(name), _numbers(grid), _numbers(block)


def _numbers(triple: str) -> str:
    return " ".join(re.findall(r"\d+", triple))
