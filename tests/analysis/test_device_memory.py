"""The device's memory as a whole: hand-worked stacks, and figures that do not agree."""

import make
import numpy as np
import pytest
from make import MemoryStory
from plain_rows import table

from tbdprof.analysis.memory import device_memory
from tbdprof.analysis.memory.device_memory import (
    BY_GROWTH,
    BY_PROCESS,
    NOT_BY_PROCESS,
    NOT_HERE,
    NOT_MADE_ALONE,
    NOT_POOLED,
    NOT_RESERVED,
)
from tbdprof.analysis.summary import summarize
from tbdprof.facts.counters import (
    ALLOCATOR_ALLOCATED,
    ALLOCATOR_FRAGMENTS,
    ALLOCATOR_RESERVED,
    DEVICE_TOTAL,
    DEVICE_USED,
    OTHERS_USED,
    PROCESS_USED,
)
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Phase, Role
from tbdprof.report import terminal
from tbdprof.report.json_report import document
from tbdprof.results.memory import DeviceMemory, Layer

GPU = "cuda:0"
ALLOCATOR = {ALLOCATOR_RESERVED: 500, ALLOCATOR_ALLOCATED: 100, ALLOCATOR_FRAGMENTS: 30}
DRIVER = {DEVICE_TOTAL: 2000, DEVICE_USED: 1000}
MEASURED = {"used_before_bytes": 120, "others_before_bytes": 20, "context_bytes": 250, "libraries_bytes": 50}


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "DEVICE", GPU)


def recording(samples: dict[str, int], **facts: object) -> Recording:
    """A weight of 100 and a feature map of 300: the allocator's peak is 400."""
    story = MemoryStory(base_total=100)
    weight = story.existing(100)
    for _ in range(3):
        with story.phase(Phase.FORWARD):
            output = story.allocate(300)
        story.own(weight, Role.WEIGHT, "w")
        story.free(output)
        story.mark()
    recorded = story.recording(device=GPU, **facts)
    rows = [(story.strings.add(name), story.strings.add(GPU), 1000, float(size), -1) for name, size in samples.items()]
    recorded.windows[0].tables["sample"] = table("sample", rows)
    return recorded


def measured(samples: dict[str, int], **facts: object) -> DeviceMemory:
    found = summarize(recording(samples, **facts)).device_memory
    assert found is not None
    return found


def stack(found: DeviceMemory) -> dict[str, int]:
    return {layer.name: layer.size_bytes for layer in found.layers}


def test_the_layers_from_the_driver_up_are_what_is_in_use() -> None:
    found = measured({**ALLOCATOR, **DRIVER, PROCESS_USED: 810, OTHERS_USED: 80}, **MEASURED)

    assert stack(found) == {
        "driver": 100,
        "other processes": 80,
        "context": 250,
        "libraries": 50,
        "weights": 100,
        "feature maps": 300,
        "allocator cache": 100,
    }
    # 980 of 1000 in use: 2 % are unexplained, and no more may be.
    assert (found.unexplained_bytes, found.explained, found.agrees) == (20, 0.98, True)
    assert (found.allocator_cache_bytes, found.cache_at_end_bytes, found.fragments_bytes) == (100, 400, 30)
    assert (found.total_bytes, found.context_bytes, found.others_bytes) == (2000, 250, 80)


@pytest.mark.parametrize(("used", "agrees"), [(1000, True), (1001, False), (961, True), (960, False)])
def test_more_than_two_percent_either_way_do_not_agree(used: int, agrees: bool) -> None:
    found = measured({**ALLOCATOR, DEVICE_USED: used, PROCESS_USED: 810, OTHERS_USED: 80}, **MEASURED)

    assert found.agrees is agrees
    assert found.unexplained_bytes == used - 980


def test_without_the_figures_by_process_the_driver_and_others_are_one() -> None:
    summary = summarize(recording({**ALLOCATOR, **DRIVER}, **MEASURED))
    found = summary.device_memory

    assert found is not None
    assert list(stack(found).items())[:3] == [("driver and other processes", 120), ("context", 250), ("libraries", 50)]
    assert found.others_bytes is None
    assert summary.missing["memory.other_processes"] == NOT_BY_PROCESS


def test_a_loop_of_ones_own_has_context_and_libraries_by_what_the_process_takes_besides() -> None:
    summary = summarize(recording({**ALLOCATOR, **DRIVER, PROCESS_USED: 810, OTHERS_USED: 80}))
    found = summary.device_memory

    assert found is not None
    assert list(stack(found).items())[:2] == [("other processes", 80), ("context and libraries", 310)]
    assert summary.missing["memory.driver_context"] == NOT_MADE_ALONE


def test_a_framework_that_does_not_report_what_it_reserves_has_no_cache() -> None:
    summary = summarize(recording({**DRIVER, PROCESS_USED: 810, OTHERS_USED: 80}, **MEASURED))
    found = summary.device_memory

    assert found is not None
    assert (found.allocator_cache_bytes, sum(stack(found).values()), found.unexplained_bytes) == (None, 880, 120)
    assert summary.missing["memory.allocator_cache"] == NOT_RESERVED


def test_one_that_reports_it_and_knows_no_pools_for_graphs_is_not_said_to_keep_it_for_itself() -> None:
    missing = summarize(recording({**ALLOCATOR, **DRIVER}, **MEASURED)).missing

    assert "memory.allocator_cache" not in missing
    assert missing["device_memory.private_pools"] == NOT_POOLED


def test_the_drivers_figure_is_that_nearest_to_the_last_step_end() -> None:
    recorded = recording({**ALLOCATOR, **DRIVER, PROCESS_USED: 810, OTHERS_USED: 80}, **MEASURED)
    counter, device = recorded.strings.add(DEVICE_USED), recorded.strings.add(GPU)
    later = table("sample", [(counter, device, at, used, -1) for at, used in ((900, 700.0), (1200, 800.0))])
    recorded.windows[0].tables["sample"] = np.concatenate([recorded.windows[0].table("sample"), later])

    assert summarize(recorded).device_memory == measured(
        {**ALLOCATOR, **DRIVER, PROCESS_USED: 810, OTHERS_USED: 80}, **MEASURED
    )


def test_what_another_device_of_the_process_holds_is_not_this_ones() -> None:
    recorded = recording({**ALLOCATOR, **DRIVER})
    counter, other = recorded.strings.add(DEVICE_USED), recorded.strings.add("cuda:1")
    more = table("sample", [(counter, other, 1000, 7.0, -1)])
    recorded.windows[0].tables["sample"] = np.concatenate([more, recorded.windows[0].table("sample")])
    found = summarize(recorded).device_memory
    assert found is not None
    assert found.used_bytes == DRIVER[DEVICE_USED]


def test_without_samples_of_the_driver_nothing_is_said_to_be_explained() -> None:
    summary = summarize(recording(ALLOCATOR, **MEASURED))
    found = summary.device_memory

    assert found is not None
    assert (found.used_bytes, found.explained, found.agrees, found.unexplained_bytes) == (None, None, None, None)
    assert summary.missing["device_memory.used"] == device_memory.NOT_SAMPLED


def test_context_and_libraries_are_reported_as_measured_in_this_process_beside_those_measured_apart() -> None:
    figures = {**ALLOCATOR, **DRIVER, PROCESS_USED: 870, OTHERS_USED: 80}
    summary = summarize(recording(figures, **MEASURED))
    found = summary.device_memory

    # 870 are this process's, 500 of them its allocator's; a small process took 250 for a context and 50 for libraries.
    assert found is not None
    assert found.beneath == Layer("context and libraries", 370, BY_PROCESS)
    assert stack(found)["libraries"] == 50
    assert "context and libraries, as measured in this process: 370 B (" in terminal.render(summary, width=160)
    assert "measured apart: 300 B" in terminal.render(summary, width=160)
    assert document(summary)["device_memory"]["beneath_allocator"] == {"bytes": 370, "source": BY_PROCESS}


def test_a_figure_of_this_process_that_is_a_layer_already_is_not_reported_twice() -> None:
    text = terminal.render(summarize(recording({**ALLOCATOR, **DRIVER, PROCESS_USED: 870, OTHERS_USED: 80})), width=160)
    assert "context and libraries" in text
    assert "as measured in this process" not in text


def test_where_the_driver_reports_no_process_it_is_what_came_into_use() -> None:
    assert measured({**ALLOCATOR, **DRIVER}, **MEASURED).beneath == Layer("context and libraries", 380, BY_GROWTH)


@pytest.mark.parametrize(
    ("samples", "facts"),
    [(ALLOCATOR, MEASURED), ({**ALLOCATOR, **DRIVER}, {}), ({**DRIVER, PROCESS_USED: 810, OTHERS_USED: 80}, MEASURED)],
    ids=["no driver", "nothing before", "no allocator"],
)
def test_what_this_process_takes_beneath_its_allocator_may_not_be_reported(
    samples: dict[str, int], facts: dict[str, object]
) -> None:
    summary = summarize(recording(samples, **facts))

    assert document(summary)["device_memory"]["beneath_allocator"] is None
    assert summary.missing["device_memory.beneath_allocator"] == NOT_HERE


def test_the_report_shows_the_stack_and_that_it_does_not_agree() -> None:
    figures = {**ALLOCATOR, DEVICE_USED: 1500, DEVICE_TOTAL: 2000, PROCESS_USED: 810, OTHERS_USED: 80}
    text = terminal.render(summarize(recording(figures, **MEASURED)), width=120)

    assert "Memory of cuda:0 as a whole, from the bottom" in text
    assert "the layers are 65.3 % of 1.46 KiB in use (NVML): more than 2.0 % apart" in text
    assert "allocator cache at the end of a step: 400 B, 30 B of it in pieces" in text


def test_a_cpu_has_no_such_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "DEVICE", "cpu")
    story = MemoryStory()
    story.free(story.allocate(8))
    summary = summarize(story.recording())

    assert summary.device_memory is None
    assert summary.missing["device_memory"] == summary.missing["memory.driver_context"] == "reported on a GPU only"
