"""Fakes of every seam: a framework's hook, a clock, progress."""

from collections.abc import Callable, Sequence

from make import MemoryStory

from tbdprof.errors import UnavailableError
from tbdprof.hooks import Drained, Facts, Setting
from tbdprof.records import Parameter, Phase, Role, Strings


class FakeClock:
    """A clock that goes on only when told."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


class FakeHook:
    """A framework with one weight of 100 bytes, whose every step makes a feature map of 40 and a gradient of 100."""

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

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def start(self, window: str) -> None:
        if self.busy is not None:
            raise UnavailableError(self.busy)
        self.calls.append(f"start {window}")
        self.story = MemoryStory(base_total=100)
        self.weight = self.story.existing(100)

    def mark_step(self) -> None:
        story = self.story
        assert story is not None
        with story.phase(Phase.FORWARD):
            output = story.allocate(40)
        gradient = story.allocate(100)
        with story.phase(Phase.UPDATE):
            story.own(gradient, Role.GRADIENT, "w")
        story.own(self.weight, Role.WEIGHT, "w")
        story.free(gradient)
        story.free(output)
        story.mark()
        self.clock.sleep(self.memory_step_s)

    def stop(self) -> None:
        self.calls.append("stop")

    def drain(self, strings: Strings) -> Drained:
        story = self.story
        assert story is not None
        moved = {index: strings.add(text) for index, text in enumerate(story.strings.since(0))}
        tables = {kind: rows.copy() for kind, rows in story.window().tables.items() if kind != "step"}
        for kind, columns in {
            "allocation": ["device"],
            "span": ["name"],
            "owner": ["device", "name", "shape"],
        }.items():
            for column in columns:
                tables[kind][column] = [moved.get(int(value), -1) for value in tables[kind][column]]
        return Drained(tables, tuple(story.marks))

    def close(self) -> None:
        self.closed += 1

    def out_of_memory(self, error: BaseException) -> str | None:
        return str(error) if isinstance(error, MemoryError) else None


class ProgressLog:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int | None]] = []

    def __call__(self, phase: str, step: int, of: int | None) -> None:
        self.told.append((phase, step, of))
