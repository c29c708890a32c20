"""Who is the slowest of several ranks and who waits for it, and the report of them, from figures worked out by hand."""

import json
from dataclasses import replace

import pytest
from make import run
from report_results import TIME

from tbdprof.analysis import ranks
from tbdprof.analysis.summary import summarize
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.rows import StepRow, table
from tbdprof.report import ranks as report
from tbdprof.results.summary import Summary
from tbdprof.results.time import Communication


def trained(rank: int | None, exposed: float | None, *, step: float = 0.1, size: int = 3, first: int = 9) -> Summary:
    """Return a rank's summary: a step of `step` seconds, of which it waits a share `exposed`."""
    steps = table("step", [StepRow(first, 0, 0, 10**8, 1.0, -1)])
    window = Window(0, "kernels", "complete", {"step": steps})
    recording = Recording(run(rank=rank, world_size=None if rank is None else size, complete=True), [window])
    sent = None if exposed is None else Communication(exposed * step, exposed, 0.0, 4096)
    return replace(summarize(recording), step_time=replace(TIME, step_seconds=step, communication=sent))


def test_the_slowest_is_who_has_most_time_of_its_own_and_the_others_wait_for_it():
    found = ranks.compare([trained(0, 0.5), trained(1, 0.1), trained(2, 0.7)])

    assert [each.own_seconds for each in found.ranks] == pytest.approx([0.05, 0.09, 0.03])
    assert (found.slowest, found.world_size, found.absent, found.missing) == (1, 3, (), {})
    assert found.lead_seconds == pytest.approx(0.06)
    assert [(each.place, each.seconds) for each in found.waits] == [(2, pytest.approx(0.06)), (0, pytest.approx(0.04))]


def test_ranks_that_hardly_differ_have_no_slowest():
    found = ranks.compare([trained(0, 0.5), trained(1, 0.45)])

    assert (found.slowest, found.waits, found.missing) == (None, (), {"slowest": ranks.ALIKE})
    assert found.absent == (2,)


def test_more_time_of_its_own_alone_makes_no_rank_the_slowest_if_none_waits_for_it():
    found = ranks.compare([trained(0, 0.5), trained(1, 0.4, step=0.125)])

    assert [each.own_seconds for each in found.ranks] == pytest.approx([0.05, 0.075])
    assert (found.slowest, found.missing) == (None, {"slowest": ranks.ALIKE})


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (trained(None, 0.1), ranks.NOT_ONE_RUN),
        (trained(0, 0.1), ranks.NOT_ONE_RUN),
        (trained(1, 0.1, size=2), ranks.NOT_ONE_RUN),
        (trained(1, None), ranks.NO_COMMUNICATION),
        (replace(trained(1, 0.1), step_time=None), ranks.NO_KERNELS),
        (trained(1, 0.1, first=10), ranks.OTHER_STEPS),
    ],
)
def test_waiting_is_compared_only_between_ranks_of_one_run_at_the_same_steps(second: Summary, reason: str):
    found = ranks.compare([trained(0, 0.7), second])

    assert (found.slowest, found.waits, found.missing) == (None, (), {"slowest": reason})


def test_the_report_has_a_row_for_each_rank_and_a_line_on_the_slowest():
    names = ["a.rank0.tbd", "a.rank1.tbd"]
    compared = ranks.compare([trained(0, 0.7), trained(1, 0.1)])

    text, document = report.render(compared, names, width=100), json.loads(report.render_json(compared, names))

    assert text.splitlines()[0] == "2 of 3 ranks"
    assert [line.split() for line in text.splitlines() if line.startswith("rank ")] == [
        ["rank", "0", "30.00", "ms", "70.00", "ms", "0", "ns", "4.00", "KiB"],
        ["rank", "1", "90.00", "ms", "10.00", "ms", "0", "ns", "4.00", "KiB"],
    ]
    assert text.endswith(
        "\nthe slowest is rank 1, by 60.00 ms of its own time a step; for it waits rank 0 (60.00 ms a step)"
        "\nnot among these: rank 2 of 3"
    )
    assert [(row["file"], row["rank"]) for row in document["ranks"]] == [*zip(names, (0, 1), strict=True)]
    assert (document["slowest"], document["absent"]) == (1, [2])
    assert document["waits"] == [{"rank": 0, "seconds": pytest.approx(0.06)}]


def test_recordings_that_are_no_ranks_are_told_apart_by_their_names():
    text = report.render(ranks.compare([trained(None, 0.1), trained(None, 0.1)]), ["a.tbd", "b\x1b.tbd"], width=100)

    assert text.splitlines()[0] == "2 recordings"
    assert [line.split()[0] for line in text.splitlines()[3:5]] == ["a.tbd", r"b\x1b.tbd"]
    assert text.endswith(f"\nno slowest rank: {ranks.NOT_ONE_RUN}")
