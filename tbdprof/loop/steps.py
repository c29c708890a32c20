"""The steps of a loop: their numbers, times and blocks, and what each consumed until its row is written."""

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from tbdprof.facts.batches import SAMPLES
from tbdprof.facts.consumed import Consumed, StepCountKind
from tbdprof.facts.rows import StepCountRow, StepRow, Tables, table
from tbdprof.loop.plan import Progress

if TYPE_CHECKING:
    from tbdprof.facts.recorder import Recorder
    from tbdprof.hooks import Drained


class Steps:
    """Takes a loop's steps, one after another."""

    def __init__(self, recorder: "Recorder", progress: Progress, clock: Callable[[], int]) -> None:
        self._recorder = recorder
        self._progress = progress
        self._clock = clock
        self.taken = 0
        self.block = 0  # of the next step
        self.ended = False  # the loop ended while a step was waited for
        self._counts: list[StepCountRow] = []  # of steps whose rows are not written yet

    def take(self, phase: str, first: int, total: int | None) -> Generator[None, Consumed, StepRow]:
        """Take a step of a phase that began with step `first` and has `total`; the loop sends what it consumed."""
        self._progress(phase, self.taken - first, total)
        begun = self._clock()
        try:
            consumed = yield
        except GeneratorExit:
            self.ended = True
            raise
        ended = self._clock()
        text = self._recorder.recording.strings.add
        self._counts += (
            StepCountRow(self.taken, int(kind), text(name), value) for kind, name, value in consumed.counts()
        )
        self.taken += 1
        return StepRow(self.taken - 1, self.block, begun, ended, consumed.units, -1)

    def count_given(self, rows: Sequence[StepRow], drained: "Drained") -> None:
        """Count what the models were given in each step, unless the loop counts it itself."""
        run, text = self._recorder.recording.run, self._recorder.recording.strings.add
        if run.batch_size is not None and not run.batch_size_from:
            return
        seen = {"samples_seen_from": drained.given_from, "samples_unknown": drained.given_unknown}
        self._recorder.update(**{name: text for name, text in seen.items() if text})
        known = {run.unit, *(self._recorder.recording.strings[row.name] for row in self._counts)}
        for row, counts in zip(rows, drained.given, strict=False):
            named = {run.sample_unit if unit == SAMPLES else unit: value for unit, value in counts.items()}
            self._counts += (
                StepCountRow(row.index, int(StepCountKind.UNITS), text(unit), value)
                for unit, value in named.items()
                if unit not in known
            )

    def tables(self, rows: Sequence[StepRow]) -> Tables:
        """Return steps with their counts; the counts of dropped steps are dropped, too."""
        kept = {row.index for row in rows}
        counts = [row for row in self._counts if row.step in kept]
        self._counts.clear()
        steps = {"step": table("step", rows)}
        return steps | ({"step_count": table("step_count", counts)} if counts else {})
