"""A session of torch's profiler on a run that is on a GPU, where there is none: what is asked of torch, and refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch._C._profiler import ProfilerActivity
from torch.autograd.profiler import profile as torchs_profile

from tbdprof.errors import UnavailableError
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained
from tbdprof.hooks.on_torch import devices
from tbdprof.hooks.on_torch.kernels import gpu_activity
from tbdprof.hooks.on_torch.kernels.window import KernelsWindow
from tbdprof.hooks.on_torch.memory.window import MemoryWindow
from tbdprof.hooks.on_torch.session import session
from tbdprof.hooks.on_torch.session.markers import Markers
from tbdprof.hooks.on_torch.session.session import is_profiler_active
from tbdprof.hooks.on_torch.watch.by_hand import ByHand
from tbdprof.hooks.on_torch.watch.watch import Watch
from tbdprof.hooks.on_torch.watch.watched import Watched


class OnGpu(torchs_profile):
    """Torch's profiler as if there were a GPU of which CUPTI reports nothing."""

    asked: dict[str, Any]
    breaks = False

    def __init__(self, *, use_device: str | None, **settings: Any) -> None:
        super().__init__(**settings)
        type(self).asked = {"use_device": use_device, **settings}
        self.use_device = use_device

    def __enter__(self) -> "OnGpu":
        device, self.use_device = self.use_device, None
        super().__enter__()
        self.use_device = device
        return self

    def __exit__(self, *error: object) -> None:
        assert self.use_device is None, "it would wait for the current device"
        super().__exit__(*error)
        if self.breaks:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore lines")


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(session, "profile", OnGpu)
    monkeypatch.setattr(session, "_supported_activities", lambda: {ProfilerActivity.CPU, ProfilerActivity.CUDA})
    yield
    assert not is_profiler_active()


@contextmanager
def watch() -> Iterator[Watch]:
    """Take the hooks of a watch off afterwards: they are on all of torch's optimizers."""
    watched = Watched()
    made = Watch(Markers(), watched, ByHand(watched))
    try:
        yield made
    finally:
        made.close()


def recorded(device: str) -> tuple[Drained, Strings]:
    with watch() as each:
        window = KernelsWindow(each, device)
        torch.ones(2, 3) @ torch.ones(3, 4)
        window.mark_step()
        window.stop()
        strings = Strings()
        return window.drain(strings), strings


@pytest.mark.usefixtures("_gpu")
def test_a_kernels_window_on_a_gpu_asks_for_its_activity_and_their_details() -> None:
    recorded("cuda:0")

    assert OnGpu.asked["use_device"] == "cuda"
    assert not OnGpu.asked["profile_memory"]


@pytest.mark.usefixtures("_gpu")
def test_a_memory_window_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "device", lambda watched: "cuda:0")
    with watch() as each:
        MemoryWindow(each, counted_from_start=True).stop()

    assert OnGpu.asked["use_device"] is None
    assert OnGpu.asked["profile_memory"]


@pytest.mark.usefixtures("_gpu")
def test_a_kernels_window_on_the_cpu_asks_for_none() -> None:
    drained, _ = recorded("cpu")

    assert OnGpu.asked["use_device"] is None
    assert set(drained.tables) == {"span"}
    assert drained.missing == {}


@pytest.mark.usefixtures("_gpu")
def test_where_no_kernel_is_reported_the_operators_are_and_the_reason() -> None:
    drained, strings = recorded("cuda:0")

    assert {strings[row["name"]] for row in drained.tables["span"]} >= {"aten::matmul", "aten::mm"}
    assert len(drained.tables["kernel"]) == 0
    assert drained.missing == {"kernels": gpu_activity.NO_KERNELS}


def test_a_build_of_torch_without_cupti_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_supported_activities", lambda: {ProfilerActivity.CPU})

    drained, _ = recorded("cuda:0")

    assert set(drained.tables) == {"span"}
    assert "made without CUPTI" in drained.missing["kernels"]


@pytest.mark.usefixtures("_gpu")
@pytest.mark.parametrize("where", ["where the device is waited for", "where the profiler ends"])
def test_a_gpu_that_breaks_takes_the_profiler_off_and_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def breaks(device: str) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore lines")

    if where == "where the device is waited for":
        monkeypatch.setattr(devices, "synchronize", breaks)
    else:
        monkeypatch.setattr(OnGpu, "breaks", True)

    drained, _ = recorded("cuda:0")

    reason = drained.missing["kernels"]
    assert reason == "torch's profiler failed: CUDA error: an illegal memory access was encountered"


@pytest.mark.usefixtures("_gpu")
def test_the_runs_own_device_is_waited_for_before_the_profiler_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    order, end = list[str](), OnGpu.__exit__
    monkeypatch.setattr(devices, "synchronize", order.append)

    def ended(self: OnGpu, *error: object) -> None:
        order.append("the profiler")
        end(self, *error)

    monkeypatch.setattr(OnGpu, "__exit__", ended)

    recorded("cuda:1")

    assert order == ["cuda:1", "the profiler"]


@pytest.mark.usefixtures("_gpu")
def test_a_profiler_that_cannot_begin_leaves_nothing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: OnGpu) -> None:
        raise RuntimeError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")

    monkeypatch.setattr(OnGpu, "__enter__", refuse)

    refused = pytest.raises(UnavailableError, match="cannot begin: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")
    with watch() as each, refused:
        KernelsWindow(each, "cuda:0")
