"""The probe finds the best operator of torch and leaves nothing behind."""

import gc
from collections.abc import Iterator

import pytest
import torch

from tbdprof.facts.records import Peaks
from tbdprof.hooks import probing
from tbdprof.hooks.on_torch import hook, probe

SMALL = 1 << 20


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    probe._measured.cache_clear()
    monkeypatch.setattr(probing, "ARRAY_BYTES", SMALL)
    monkeypatch.setattr(probing, "_busy_by_others", lambda: 0.0)  # whatever runs beside the tests
    monkeypatch.setattr(probing, "WIDTH", 64)
    monkeypatch.setattr(probing, "CONVOLUTIONS", (probing.Convolution(8, 8, 3, 7), probing.Convolution(8, 16, 1, 7)))
    yield
    probe._measured.cache_clear()


def tensors() -> int:
    gc.collect()
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


def test_each_precision_has_a_figure_and_names_the_operator_that_reached_it() -> None:
    found = probe.measure(["fp32", "fp64", "bf16"])

    threads = torch.get_num_threads()
    for precision in ("fp32", "fp64", "bf16"):
        assert found.flops_per_s[precision] > 0
        assert any(kind in found.sources[precision] for kind in ("convolution", "dense layer", "matrix product"))
        assert f"{threads} thread" in found.sources[precision]
    assert found.bytes_per_s is not None
    assert found.bytes_per_s > 0
    assert "1.00 MiB" in found.sources["memory"]


def test_only_the_precisions_asked_for_are_measured() -> None:
    assert probe.measure(["fp64"]).flops_per_s.keys() == {"fp64"}


def test_it_is_measured_once_a_process_and_number_of_threads() -> None:
    assert probe.measure(["fp32"]) is probe.measure(["fp32"])


@pytest.mark.parametrize(("threads", "is_apart"), [(1, False), (3, True)])
def test_a_forked_process_that_may_lack_threads_measures_in_another_one(
    monkeypatch: pytest.MonkeyPatch, threads: int, is_apart: bool
) -> None:
    """Its operators on several threads may wait for threads of its parent."""
    asked: list[tuple[object, ...]] = []
    elsewhere = Peaks({"fp32": 1.0}, 1.0, {})
    monkeypatch.setattr(probing, "apart", lambda *arguments: asked.append(arguments) or elsewhere)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    attached = hook()
    attached.attach()
    assert attached._joined is not None
    here = attached._measure()
    attached._joined.process = -1  # as in a fork of the process that joined
    found = attached._measure()(["fp32"])
    attached.close()
    probe._measured_apart.cache_clear()

    assert here is probe.measure
    assert asked == [("torch", ("fp32",), 3)] * is_apart
    assert (found is elsewhere) == is_apart


def test_a_precision_without_a_probe_is_left_out_with_its_reason() -> None:
    found = probe.measure(["fp8"])

    assert found.flops_per_s == {}
    assert found.sources["fp8"] == "not measured: there is no probe for this precision on a CPU"


def test_the_set_has_products_dense_layers_and_convolutions_in_both_layouts() -> None:
    names = [candidate.name for candidate in probe._products(torch.float32, 2)]

    assert names == [
        "matrix product 1024×64×64",
        "dense layer 1024×64×64",
        "3×3 convolution 8→8, 7×7, batch 8",
        "3×3 convolution 8→8, 7×7, batch 8, channels last",
        "1×1 convolution 8→16, 7×7, batch 8",
        "1×1 convolution 8→16, 7×7, batch 8, channels last",
    ]


def test_the_amounts_are_those_of_what_is_run() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    for candidate in probe._products(torch.float32, 1):
        run = candidate.prepare()
        with FlopCounterMode(display=False) as counter:
            run()
        assert counter.get_total_flops() == candidate.amount, candidate.name


def test_a_planted_slow_operator_does_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            torch.mm(left, right)
        return torch.mm(left, right)

    products = probe._products

    def with_a_slow_one(dtype: torch.dtype, threads: int):
        flops = probing.product_flops(threads)
        yield probing.Candidate("planted", flops, probe._product(slowly, dtype, probing.rows(threads)))
        yield from products(dtype, threads)

    monkeypatch.setattr(probe, "_products", with_a_slow_one)

    assert "planted" not in probe.measure(["fp32"]).sources["fp32"]


def test_nothing_of_the_process_is_changed() -> None:
    generator, threads = torch.random.get_rng_state(), torch.get_num_threads()
    before = tensors()
    with torch.enable_grad():
        probe.measure(["fp32", "bf16"])

        assert torch.is_grad_enabled()
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert torch.get_num_threads() == threads
    assert tensors() == before


def test_gradients_are_off_and_autocast_is_too_while_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = probe.functional.linear

    def spy(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
        return original(left, right)

    monkeypatch.setattr(probe.functional, "linear", spy)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        probe.measure(["fp32"])

    assert set(seen) == {(False, False)}


def test_the_hook_reports_the_peaks_of_the_cpu_it_watches() -> None:
    attached = hook()
    attached.attach()
    try:
        assert attached.peaks(["fp32"]).flops_per_s.keys() == {"fp32"}
    finally:
        attached.close()
