"""Which counted launches are of which kernels of a run: the same name, grid and block, else the same place in a step.

Names are compared as `kernel_names.canonical` spells them. Where that differs, kernels of one function, grid and block
are put side by side in the order of a step, if there are as many of them in both; else they stay unmatched.
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
    """Return the counted launches of each of our groups that has any.

    `in_step` has the group of each kernel of one step of ours in order, `counted` of each of their launches.
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
