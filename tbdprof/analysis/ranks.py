"""In what the ranks of one run differ: who is slow, who waits, and what memory each takes.

Ranks that train together take their steps together, because each step exchanges gradients. So their times per step are
alike, and do not show which one is slow. The slow one is the one with the most time of its own: that of a step without
the communication that runs alone. The others wait in their communication until it comes.
"""

from collections.abc import Sequence
from itertools import islice

from tbdprof.facts.windows import KERNELS
from tbdprof.results.ranks import LEAST_DIFFERENCE, RankFigures, Ranks, Wait
from tbdprof.results.summary import Summary

MOST_ABSENT = 100  # ranks that are listed: a file from anyone may say that there are millions
SLOWEST = "slowest"
NOT_ONE_RUN = "these are no ranks of one run"
NO_KERNELS = "not every rank has a kernels window, in which waiting is seen"
NO_COMMUNICATION = "not in every rank was communication seen, so none is known to wait for another"
ALIKE = f"own times, or waits for the one with the most, differ by less than {100 * LEAST_DIFFERENCE:.0f} % of a step"
OTHER_STEPS = "the kernels windows lie at other steps in some ranks, so their waiting cannot be compared"


def compare(summaries: Sequence[Summary]) -> Ranks:
    """Return the figures of several recordings, in their order, and who waits for whom."""
    runs = [summary.recording.run for summary in summaries]
    size = _world_size(summaries)
    ranks = tuple(_figures(each) for each in summaries)
    there = {run.rank for run in runs}
    absent = tuple(islice((rank for rank in range(size or 0) if rank not in there), MOST_ABSENT))
    reason = _why_no_waiting(summaries, size)
    if reason is not None:
        return Ranks(ranks, size, absent, None, None, (), {SLOWEST: reason})
    own = [each.own_seconds or 0.0 for each in ranks]
    exposed = [each.exposed_seconds or 0.0 for each in ranks]
    place = own.index(max(own))
    lead, wait = max(own) - min(own), max(exposed) - exposed[place]
    if min(lead, wait) < LEAST_DIFFERENCE * (own[place] + exposed[place]):
        return Ranks(ranks, size, absent, None, lead, (), {SLOWEST: ALIKE})
    more = [Wait(at, each - exposed[place]) for at, each in enumerate(exposed) if each > exposed[place]]
    waits = tuple(sorted(more, key=lambda each: -each.seconds))
    return Ranks(ranks, size, absent, place, lead, waits, {})


def _world_size(summaries: Sequence[Summary]) -> int | None:
    """Return of how many ranks a run is, or None if the recordings are not of different ranks of one run.

    One run: the same number of processes, framework and model; the clocks of machines may differ.
    """
    runs = [summary.recording.run for summary in summaries]
    alike = len({(run.world_size, run.framework, run.model) for run in runs}) == 1
    numbers = {run.rank for run in runs}
    return runs[0].world_size if alike and None not in numbers and len(numbers) == len(runs) else None


def _figures(summary: Summary) -> RankFigures:
    run, time, memory = summary.recording.run, summary.step_time, summary.memory
    sent = None if time is None else time.communication
    exposed = None if time is None or sent is None else sent.exposed * time.step_seconds
    return RankFigures(
        rank=run.rank,
        device=run.device,
        clean_step_seconds=None if summary.throughput is None else summary.throughput.step_seconds,
        own_seconds=None if time is None or exposed is None else time.step_seconds - exposed,
        exposed_seconds=exposed,
        hidden_seconds=None if time is None or sent is None else sent.hidden * time.step_seconds,
        sent_bytes=None if sent is None else sent.sent_bytes,
        peak_bytes=None if memory is None else memory.peak_bytes,
        ended_by="" if run.complete else run.ended_by,
    )


def _why_no_waiting(summaries: Sequence[Summary], size: int | None) -> str | None:
    if size is None:
        return NOT_ONE_RUN
    if any(each.step_time is None for each in summaries):
        return NO_KERNELS
    if any(each.step_time is not None and each.step_time.communication is None for each in summaries):
        return NO_COMMUNICATION
    return None if len({_steps(each) for each in summaries}) == 1 else OTHER_STEPS


def _steps(summary: Summary) -> tuple[int, ...]:
    """Return the steps of a recording's kernels windows."""
    return tuple(int(index) for window in summary.recording.named(KERNELS) for index in window.table("step")["index"])
