"""Which instruments a run gets, by its device and its framework."""

import pytest
from fakes import ProgressLog

from tbdprof.collect.activity.collector import ActivityCollector
from tbdprof.collect.host_load import HostLoad
from tbdprof.hooks.on_mxnet.thread_numbers import hashed
from tbdprof.launch import choose_instruments
from tbdprof.launch.choose_instruments import instruments_for
from tbdprof.loop.plan import NO_STEPS


def windows_with_activity(device: str, framework: str) -> set[str]:
    found = instruments_for(device, framework).collectors
    return {name for name, several in found.items() if any(isinstance(each, ActivityCollector) for each in several)}


def test_cupti_records_kernels_for_mxnet_alone_of_the_frameworks(monkeypatch: pytest.MonkeyPatch):
    """The others are CUPTI's client themselves, and a process has one."""
    monkeypatch.setattr(choose_instruments, "available", lambda device: None)

    assert windows_with_activity("cuda:0", "mxnet") == {"kernels", "sampled"}
    assert windows_with_activity("cuda:0", "torch") == set()
    assert windows_with_activity("cuda:0", "tensorflow") == set()
    assert windows_with_activity("cpu", "mxnet") == set()


def test_mxnets_threads_are_numbered_as_its_profiler_numbers_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(choose_instruments, "available", lambda device: "not here")
    (collector,) = [
        each for each in instruments_for("cuda:0", "mxnet").collectors["kernels"] if isinstance(each, ActivityCollector)
    ]

    assert collector._number is hashed


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_the_host_is_counted_from_when_all_others_have_begun_until_one_of_them_ends(
    monkeypatch: pytest.MonkeyPatch, device: str
):
    monkeypatch.setattr(choose_instruments, "available", lambda device: "not here")
    *others, last = instruments_for(device, "torch").collectors["clean"]

    assert isinstance(last, HostLoad)
    assert not any(isinstance(each, HostLoad) for each in others)


def test_trying_the_counters_takes_seconds_and_is_reported_before(monkeypatch: pytest.MonkeyPatch):
    log, when_tried = ProgressLog(), list[str]()
    monkeypatch.setattr(
        choose_instruments, "available", lambda device: when_tried.extend(phase for phase, *_ in log.reported)
    )

    instruments_for("cpu", "torch", progress=log)
    instruments_for("cuda:0", "torch", progress=log)

    assert log.reported == [("try the GPU's counters", 0, NO_STEPS)]
    assert when_tried == ["try the GPU's counters"]
