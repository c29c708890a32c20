"""Fakes of every seam: a framework's hook, a clock, progress."""

from collections.abc import Callable, Sequence

from make import KernelStory, MemoryStory

from tbdprof.errors import UnavailableError
from tbdprof.facts.records import Operation, Parameter, Peaks, Phase, Role, Strings
from tbdprof.facts.work import Work
from tbdprof.hooks import Drained, Facts, Setting

PRODUCT = Work(Operation.MATMUL, {"batch": 1, "rows": 5, "columns": 5, "inner": 5}, moved_bytes=300)
TEXTS = {"allocation": ["device"], "span": ["name", "work"], "owner": ["device", "name", "shape"]}


class FakeClock:
    """A clock that goes on only when asked to."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


class FakeHook:
    """A framework with one weight of 100 bytes, whose every step makes a feature map of 40 and a gradient of 100.

    Half of a step's time goes to the backward pass, and a quarter each to the forward pass and the update.
    """

    name = "torch"
    whole_run_peak_bytes: int | None = 240
    independent_total: str | None = None
    watched_since = "before the first allocation"

    def __init__(self, *, clock: FakeClock | None = None, busy: str | None = None, memory_step_s: float = 0.0) -> None:
        self.clock = clock or FakeClock()
        self.calls: list[str] = []
        self.busy = busy
        self.memory_step_s = memory_step_s
        self.story: MemoryStory | None = None
        self.operators: KernelStory | None = None
        self.step_begun_ns = 0
        self.closed = 0
        self.weight = 0
        self.inputs: Sequence[object] = ()

    def set_environment(self, setting: Setting) -> None:
        self.calls.append("set_environment")

    def prepare(self, setting: Setting) -> None:
        self.calls.append("prepare")

    def attach(self) -> None:
        self.calls.append("attach")

    def watch(self, models: Sequence[object], optimizers: Sequence[object], inputs: Sequence[object] = ()) -> None:
        self.calls.append("watch")

    def on_update(self, callback: Callable[[object], None]) -> None:
        self.calls.append("on_update")

    def facts(self) -> Facts:
        return Facts("1.0", "cpu", "a CPU", 2, (Parameter("w", (25,), 4, True),), (), {})

    def peaks(self, precisions: Sequence[str]) -> Peaks:
        return Peaks(dict.fromkeys(precisions, 1e9), 1e9, dict.fromkeys([*precisions, "memory"], "a fake"))

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def start(self, window: str) -> None:
        if self.busy is not None:
            raise UnavailableError(self.busy)
        self.calls.append(f"start {window}")
        self.story, self.operators = None, None
        if window == "kernels":
            self.operators, self.step_begun_ns = KernelStory(), self.clock.now_ns
            return
        self.story = MemoryStory(base_total=100)
        self.weight = self.story.existing(100)

    def mark_step(self) -> None:
        if self.story is not None:
            self._remember(self.story)
            self.clock.sleep(self.memory_step_s)
        elif self.operators is not None:
            self._compute(self.operators)

    def stop(self) -> None:
        self.calls.append("stop")

    def drain(self, strings: Strings) -> Drained:
        story = self.story or self.operators
        assert story is not None
        moved = {index: strings.add(text) for index, text in enumerate(story.strings.since(0))}
        tables = {kind: rows.copy() for kind, rows in story.window().tables.items() if kind != "step"}
        for kind, columns in TEXTS.items():
            for column in columns if kind in tables else ():
                tables[kind][column] = [moved.get(int(value), -1) for value in tables[kind][column]]
        return Drained(tables, () if self.story is None else tuple(self.story.marks))

    def _remember(self, story: MemoryStory) -> None:
        with story.phase(Phase.FORWARD):
            output = story.allocate(40)
        gradient = story.allocate(100)
        with story.phase(Phase.UPDATE):
            story.own(gradient, Role.GRADIENT, "w")
        story.own(self.weight, Role.WEIGHT, "w")
        story.free(gradient)
        story.free(output)
        story.mark()

    def _compute(self, story: KernelStory) -> None:
        begun, ended = self.step_begun_ns, self.clock.now_ns
        turns = [begun + (ended - begun) * quarter // 4 for quarter in range(5)]
        layer = story.layer("dense", turns[0], turns[1])
        story.operator("linear", Phase.FORWARD, turns[0], turns[1], parent=layer, forward=0, work=PRODUCT)
        story.operator("linear_backward", Phase.BACKWARD, turns[1], turns[3], forward=0, work=PRODUCT)
        story.operator("sgd", Phase.UPDATE, turns[3], turns[4])
        self.step_begun_ns = ended

    def close(self) -> None:
        self.closed += 1

    def out_of_memory(self, error: BaseException) -> str | None:
        return str(error) if isinstance(error, MemoryError) else None

    def give_back_memory(self) -> str | None:
        self.calls.append("give_back_memory")
        return None


class ProgressLog:
    """Keeps what was reported to it."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, int, int | None]] = []

    def __call__(self, phase: str, step: int, of: int | None) -> None:
        self.reported.append((phase, step, of))
