"""The native way and the way of Python functions keep the same, and the native one loses nothing without a word."""

import ctypes
import gc
import importlib.util
import itertools
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("mxnet is not installed", allow_module_level=True)

vars(np).setdefault("bool", bool)  # MXNet reads it

import mxnet as mx  # noqa: E402
from mxnet import autograd, gluon  # noqa: E402

from tbdprof.facts.records import Phase, SpanKind, Strings  # noqa: E402
from tbdprof.hooks.on_mxnet import hook, native  # noqa: E402
from tbdprof.hooks.on_mxnet.memory import choice, pools  # noqa: E402
from tbdprof.hooks.on_mxnet.memory.blocks import Block, Maker  # noqa: E402
from tbdprof.hooks.on_mxnet.memory.native_allocator import NativeAllocator  # noqa: E402
from tbdprof.hooks.on_mxnet.memory.python_allocator import PythonAllocator  # noqa: E402
from tbdprof.hooks.on_mxnet.session.layout import CPU, CPU_PINNED, GPU, Handle, device_number  # noqa: E402

SOURCES = Path(native.__file__).parent
DRIVER = Path(__file__).with_name("native_driver.c")
FLAGS = [
    "-O2",
    "-fexceptions",
    "-pthread",
    "-shared",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Werror",
    f"-DTBD_VERSION={native.checksum()}u",
]
DEVICE = device_number(CPU, 0)
Reported = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.POINTER(Handle))
PAGE, LARGE = 4096, 2 << 20


def built(path: Path, *sources: Path) -> Path:
    try:
        subprocess.run(["cc", *FLAGS, "-I", SOURCES, "-o", path, *sources], check=True, capture_output=True, text=True)
    except OSError:
        pytest.skip("no C compiler here")
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the native code, built from its sources as they are now."""
    return built(tmp_path_factory.mktemp("whole") / "_events.so", *SOURCES.glob("*.c"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = ctypes.CDLL(str(built(tmp_path_factory.mktemp("driver") / "driver.so", DRIVER)))
    library.driver_counter.restype = ctypes.POINTER(ctypes.c_uint64)
    return library


def following(driver: ctypes.CDLL) -> NativeAllocator:
    """Return an allocator that follows the driver's calls, and has begun a window."""
    allocator = NativeAllocator(driver)
    slots = [SimpleNamespace(function=ctypes.cast(each, ctypes.c_void_p).value) for each in originals(driver)]
    allocator._targets(*slots)
    allocator.count({DEVICE: driver.driver_counter().contents})
    allocator.open()
    return allocator


def originals(driver: ctypes.CDLL) -> tuple[object, object]:
    return driver.driver_alloc, driver.driver_free


def rounded(size: int) -> int:
    pages = -(-size // PAGE) * PAGE
    return pages if pages <= LARGE else -(-pages // LARGE) * LARGE


def ways(driver: ctypes.CDLL) -> tuple[PythonAllocator, NativeAllocator]:
    """Return an allocator of each way; a GPU's pool takes whole pages, and a second GPU's pool is not known."""
    pool = pools.Pool(rounded, lambda: None, (2, PAGE, LARGE))
    both = PythonAllocator(), following(driver)
    for allocator in both:
        allocator.pool = lambda device: pool if device >> 32 == 0 else None  # type: ignore[method-assign]
    return both


class Replay:
    """Reports events to both ways; MXNet's counter counts what is reported, as it is reported."""

    def __init__(self, driver: ctypes.CDLL) -> None:
        self.python, self.native = ways(driver)
        self._counter = driver.driver_counter().contents
        self._counter.value = 0
        self._targets = {kind: getattr(driver, f"tbd_on_{kind}") for kind in ("alloc", "free")}
        self._notes = {"alloc": self.python._allocated, "free": self.python._freed}
        self.python.open()

    def __call__(self, kind: str, address: int, size: int, device: int = DEVICE) -> None:
        handle = Handle(address, size, device)
        self._targets[kind](None, ctypes.byref(handle))
        early = self.python._early_bytes.get(device, 0)
        self._notes[kind](handle, self._counter.value - early if device == DEVICE else -1)

    def set(self, name: str, value: object) -> None:
        for allocator in (self.python, self.native):
            setattr(allocator, name, value)

    def agree(self) -> None:
        assert self.native.levels == self.python.levels
        assert self.native.kept() == self.python.kept()
        assert self.native.disagreements() == self.python.disagreements()
        for gpus in (False, True):
            assert self.native.peak_bytes(gpus=gpus) == self.python.peak_bytes(gpus=gpus)
        assert self.native._blocks(0) == self.python.live


COMPARED = ["sequence", "kind", "device", "thread", "address", "size_bytes", "allocated_bytes", "span", "total_bytes"]


@pytest.mark.parametrize("seed", range(4))
def test_both_ways_keep_the_same_of_any_events(driver: ctypes.CDLL, seed: int) -> None:
    """Blocks come and go on all kinds of devices; some frees come late, twice or with another size."""
    draw, replay = random.Random(seed), Replay(driver)
    devices = [DEVICE] * 4 + [device_number(GPU, 0), device_number(GPU, 1), device_number(CPU_PINNED, 0)]
    makers = [None, Maker("planner"), Maker("store", 7, "0", True)]
    live: list[tuple[int, int, int]] = []
    for number in range(3000):
        if draw.random() < 0.02:
            replay.set("span", draw.randrange(-1, 9))
            replay.set("maker", draw.choice(makers))
        if live and draw.random() < 0.48:
            address, size, device = live.pop(draw.randrange(len(live)))
            replay("free", address, size + 16 * (draw.random() < 0.01), device)
        else:
            again = bool(live) and draw.random() < 0.03  # its free is reported later
            device = draw.choice(devices)
            address = live[-1][0] if again else 64 * draw.randrange(1, 1 << 30)
            block = address, draw.choice([4, 60, 4096, 4097, 3 << 20]), live[-1][2] if again else device
            live.append(block)
            replay("alloc", *block)
        if number == 1500:
            assert replay.native.open() == replay.python.open()
        if number % 500 == 0:
            replay.agree()
            replay.native.drain()
    replay.agree()
    python, natively = replay.python.close(), replay.native.close()
    assert len(python) > 1400
    assert natively[COMPARED].tolist() == python[COMPARED].tolist()
    assert (np.diff(natively["time_ns"]) >= 0).all()


def test_a_block_made_where_another_ends_is_reported_after_that_end(driver: ctypes.CDLL) -> None:
    replay = Replay(driver)
    replay("alloc", 64, 100)
    replay("alloc", 64, 60)
    replay("free", 64, 100)
    replay("free", 64, 60)

    events = replay.native.close()
    assert events[["kind", "size_bytes", "total_bytes"]].tolist() == [
        (1, 100, 100),
        (0, 100, 0),
        (1, 60, 60),
        (0, 60, 0),
    ]
    assert replay.native.disagreements() == ""


def test_every_event_of_several_threads_is_kept_once_and_adds_up_to_the_counter(driver: ctypes.CDLL) -> None:
    threads, rounds, blocks = 4, 20, 1500
    allocator = following(driver)
    counter = driver.driver_counter().contents
    counter.value = 0
    driver.driver_work(*map(ctypes.c_int64, (threads, rounds, blocks)))

    events = allocator.close()
    assert events["sequence"].tolist() == list(range(1, threads * rounds * blocks * 2 + 1))
    assert len(np.unique(events["thread"])) == threads
    signed = np.where(events["kind"] == 1, events["size_bytes"], -events["size_bytes"])
    assert signed.cumsum().tolist() == events["total_bytes"].tolist()
    assert allocator.levels[DEVICE].now_bytes == counter.value == 0
    assert allocator.levels[DEVICE].peak_bytes == events["total_bytes"].max()
    assert allocator.disagreements() == ""


def test_events_for_which_there_is_no_memory_are_counted_as_lost(driver: ctypes.CDLL) -> None:
    allocator = following(driver)
    driver.driver_counter().contents.value = 0
    driver.driver_grant(ctypes.c_longlong(2))  # for the blocks, and for some events
    try:
        driver.driver_work(*map(ctypes.c_int64, (1, 20, 1000)))
    finally:
        driver.driver_grant(ctypes.c_longlong(1 << 60))

    lost = allocator._state.lost
    assert len(allocator.close()) == 40_000 - lost
    assert lost > 1000
    assert f"{lost} events were lost" in allocator.disagreements()
    assert allocator.levels[DEVICE].now_bytes == 0


def test_a_forked_child_keeps_nothing_and_waits_for_no_lock(driver: ctypes.CDLL) -> None:
    allocator = following(driver)
    driver.driver_work(*map(ctypes.c_int64, (1, 1, 10)))

    assert driver.driver_fork() == 0
    driver.driver_work(*map(ctypes.c_int64, (1, 1, 10)))
    assert len(allocator.close()) == 40


def test_blocks_from_before_the_watching_are_adopted_once(driver: ctypes.CDLL) -> None:
    allocator = following(driver)
    allocator.adopt([(DEVICE, 64, 100), (DEVICE, 64, 100), (DEVICE, 128, 50)])

    assert allocator.open() == {64: Block(DEVICE, 100, None, 0, 100), 128: Block(DEVICE, 50, None, 0, 50)}
    assert allocator.levels[DEVICE].now_bytes == 150


def test_the_way_is_chosen_and_named(whole: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TBDPROF_NATIVE", raising=False)
    monkeypatch.setattr(native, "BUILT", whole)
    assert choice.new_allocator().remark == "MXNet's events went through native code"

    text, of_another = tmp_path / "text.so", tmp_path / "other.c"
    text.write_text("no library")
    of_another.write_text("unsigned tbd_version(void) { return TBD_VERSION + 1; }")
    other = built(tmp_path / "other.so", of_another)
    for path, reason in ((tmp_path / "none.so", "no C compiler"), (text, "text.so"), (other, "install tbdprof again")):
        monkeypatch.setattr(native, "BUILT", path)
        allocator = choice.new_allocator()
        assert allocator.library is None
        assert reason in allocator.remark

    monkeypatch.setattr(native, "BUILT", whole)
    monkeypatch.setenv("TBDPROF_NATIVE", "0")
    assert choice.new_allocator().remark.endswith("not through native code: TBDPROF_NATIVE=0")


def of_a_net(*, hybrid: bool) -> tuple[list[object], Callable[[], None]]:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(3, 2, in_channels=1), gluon.nn.Dense(8, activation="relu"), gluon.nn.Dense(3))
    net.initialize()
    if hybrid:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    batch, labels = mx.nd.ones((4, 1, 5, 5)), mx.nd.array([0, 1, 2, 0])

    def step() -> None:
        with autograd.record():
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(batch) * 2, labels)
        loss.backward()
        trainer.step(4)

    return [[net], [trainer]], step


def of_a_module() -> tuple[list[object], Callable[[], None]]:
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc1")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), context=mx.cpu())
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer="adam")

    def step() -> None:
        module.forward(mx.io.DataBatch([mx.nd.ones((4, 5))], [mx.nd.ones(4)]), is_train=True)
        module.backward()
        module.update()

    return [[module], [module]], step


def operators(make: Callable[[], tuple[list[object], Callable[[], None]]]) -> tuple[str, Counter[tuple[object, ...]]]:
    """Record a kernels window; return the way of its events, and each operator with what is known of it."""
    watched = hook()
    watched.attach()
    try:
        given, step = make()
        watched.watch(*given)
        step()
        watched.start("kernels")
        for _ in range(2):
            step()
            watched.synchronize()
            watched.mark_step()
        watched.stop()
        strings = Strings()
        drained = watched.drain(strings)
    finally:
        watched.close()
    rows = {int(row["id"]): row for row in drained.tables["span"]}
    names = {at: strings[row["name"]] for at, row in rows.items()}
    forward = {int(row["forward"]): names[at] for at, row in rows.items() if row["phase"] == Phase.FORWARD}
    return drained.missing["events (kernels)"], Counter(
        (
            names[at],
            int(row["phase"]),
            names.get(int(row["parent"])),
            forward.get(int(row["forward"])),
            *(strings[row[text]] if row[text] >= 0 else "" for text in ("shapes", "work")),
        )
        for at, row in rows.items()
        if row["kind"] == SpanKind.OPERATOR
    )


def test_what_the_engine_does_to_free_a_graph_is_no_operator() -> None:
    def make() -> tuple[list[object], Callable[[], None]]:
        (given, step), others = of_a_module(), [of_a_module()]
        others[0][1]()
        steps = itertools.count()

        def step_and_free() -> None:
            step()
            if next(steps) > 0:  # in the window
                others.clear()
                gc.collect()

        return given, step_and_free

    _, found = operators(make)

    names = {row[0] for row in found}
    assert "FullyConnected" in names
    assert not {name for name in names if str(name).startswith(("Delete", "WaitFor"))}


@pytest.mark.parametrize(
    "make",
    [lambda: of_a_net(hybrid=True), lambda: of_a_net(hybrid=False), of_a_module],
    ids=["hybrid", "plain", "module"],
)
def test_both_ways_know_the_same_of_each_operator(
    whole: Path, make: Callable[[], tuple[list[object], Callable[[], None]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TBDPROF_NATIVE", raising=False)
    found = {}
    for built_one in (whole, whole.with_name("none.so")):
        monkeypatch.setattr(native, "BUILT", built_one)
        way, found[built_one] = operators(make)
        assert ("Python functions" in way) == (built_one is not whole)
    natively, in_python = found.values()

    assert natively == in_python
    assert {Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE} <= {row[1] for row in natively}
    assert any(row[2] and row[5] for row in natively)  # a layer, and what is computed
