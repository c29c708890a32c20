"""How far a run is: a line for each of its phases, with steps where it has any."""

import pytest
from rich.console import Console

from tbdprof.cli import progress
from tbdprof.cli.progress import LiveProgress, PlainProgress
from tbdprof.loop.plan import NO_STEPS


def test_a_phase_is_a_plain_line_with_its_steps_where_it_has_any(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainProgress() as report:
        report("find the device's peak", 0, NO_STEPS)
        report("warm-up", 0, None)
        report("clean", 0, 10)
        report("clean", 1, 10)

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "tbdprof: find the device's peak",
        "tbdprof: warm-up: step 0",
        "tbdprof: clean: step 0 of 10",
    ]


def test_a_phase_that_lasts_says_now_and_then_how_fast_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter([0.0, 0.0, 5.0, 5.0, 10.0, 10.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with PlainProgress() as report:
        for step in (0, 10, 20):
            report("clean", step, None)

    assert capsys.readouterr().err.splitlines() == ["tbdprof: clean: step 0", "tbdprof: clean: step 20 2.00 steps/s"]


@pytest.mark.parametrize(
    ("of", "count", "total"), [(NO_STEPS, "", None), (None, "3/?", None), (10, "3/10", 10)], ids=["none", "?", "ten"]
)
def test_the_live_line_shows_steps_where_there_are_any(of: int | None, count: str, total: int | None) -> None:
    live = LiveProgress()
    live("phase", 3, of)

    (task,) = live._progress.tasks
    assert (task.description, task.fields["count"], task.total) == ("phase", count, total)
    Console(record=True, width=100, quiet=True).print(live._progress)  # every column finds what it shows
