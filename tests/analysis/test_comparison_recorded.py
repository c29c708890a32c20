"""What a comparison says of recorded runs of one loop on a crowded machine: the same loop, and one that is slower.

The fixture has the times per step of the clean windows, run by run in the order in which they were recorded.
"""

import json
from functools import cache
from pathlib import Path

from make import run, timed_window

from tbdprof.analysis.comparison.facts import Run
from tbdprof.analysis.comparison.sides import compare_runs
from tbdprof.analysis.summary import summarize
from tbdprof.facts.recording import Recording
from tbdprof.results.compare import NO_DIFFERENCE, SLOWER

RUNS = json.loads((Path(__file__).parents[1] / "fixtures" / "step_times.json").read_text())["runs"]


@cache
def recorded(place: int, times: float = 1.0) -> Run:
    """Return a recorded run, or one whose every step takes longer."""
    seconds = [[times * each / 1e3 for each in window] for window in RUNS[place]]
    windows = [timed_window(at, "clean", each) for at, each in enumerate(seconds)]
    return Run(f"{place}.tbd", summarize(Recording(run(complete=True), windows)))


def pooled(times: float) -> list[str]:
    """Return the verdicts on all sides of three runs that were recorded in turn; those of the second take longer."""
    verdicts = []
    for start in range(len(RUNS) - 5):
        for first in (0, 1):
            one, other = range(start + first, start + 6, 2), range(start + 1 - first, start + 6, 2)
            groups = [recorded(place) for place in one], [recorded(place, times) for place in other]
            verdicts.append(compare_runs(groups).pairs[0].verdict)
    return verdicts


def test_two_recordings_of_the_same_thing_one_after_the_other_show_no_difference():
    pairs = [compare_runs([[recorded(place)], [recorded(place + 1)]]).pairs[0] for place in range(len(RUNS) - 1)]

    verdicts = [pair.verdict for pair in pairs]
    assert len(verdicts) >= 20
    assert verdicts.count(NO_DIFFERENCE) >= 0.95 * len(verdicts)


def test_three_recordings_a_side_of_the_same_thing_show_no_difference():
    verdicts = pooled(1.0)

    assert len(verdicts) >= 20
    assert verdicts.count(NO_DIFFERENCE) >= 0.95 * len(verdicts)


def test_a_slowdown_of_10_percent_is_found_in_three_recordings_a_side():
    verdicts = pooled(1.1)

    assert len(verdicts) >= 20
    assert verdicts.count(SLOWER) >= 0.95 * len(verdicts)
