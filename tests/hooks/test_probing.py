"""The best of a set of operators, each timed by a clock that only the operators move."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tbdprof.collect import fresh
from tbdprof.errors import UnavailableError
from tbdprof.facts.records import Peaks
from tbdprof.hooks import probing
from tbdprof.hooks.probing import CONVOLUTIONS, Candidate


class Clock:
    """A clock that stands still but for what is run."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.runs: list[str] = []

    def __call__(self) -> int:
        return self.now_ns

    def candidate(self, name: str, *durations_ns: int, amount: float = 1000.0) -> Candidate:
        """Return an operator whose runs take given times, the last of them from then on."""
        left = list(durations_ns)

        def run() -> None:
            self.runs.append(name)
            self.now_ns += left.pop(0) if len(left) > 1 else left[0]

        return Candidate(name, amount, lambda: run)


def failing(message: str) -> Candidate:
    def prepare() -> Callable[[], object]:
        raise RuntimeError(message)

    return Candidate("not there", 1e9, prepare)


def test_the_highest_rate_wins_and_is_named() -> None:
    clock = Clock()
    slow, fast = clock.candidate("slow", 100), clock.candidate("fast", 50)

    assert probing.best([slow, fast], 2, clock) == (1000 / 50e-9, "fast, 2 threads, best of 5")


def test_a_slow_operator_with_more_to_do_does_not_win() -> None:
    clock = Clock()
    large, small = clock.candidate("large", 3000, amount=2000.0), clock.candidate("small", 1000)

    rate, source = probing.best([large, small], 1, clock)

    assert rate == 1000 / 1000e-9
    assert source == "small, 1 thread, best of 5"


def test_the_first_run_is_not_timed() -> None:
    clock = Clock()

    assert probing.best([clock.candidate("cold", 1, 100)], 1, clock)[0] == pytest.approx(1000 / 100e-9)


def test_the_shortest_run_counts() -> None:
    clock = Clock()

    assert probing.best([clock.candidate("disturbed", 9, 400, 100, 300)], 1, clock)[0] == pytest.approx(1e10)


def test_the_fastest_are_tried_again_later() -> None:
    clock = Clock()
    disturbed = clock.candidate("disturbed", *[200] * (1 + probing.RUNS), 50)

    rate, source = probing.best([disturbed, clock.candidate("steady", 100), clock.candidate("slow", 900)], 1, clock)

    assert (rate, source) == (1000 / 50e-9, f"disturbed, 1 thread, best of {probing.RUNS_AGAIN}")
    assert clock.runs.count("slow") == 1 + probing.RUNS


def test_a_slow_operator_is_run_less_often() -> None:
    clock = Clock()

    _, source = probing.best([clock.candidate("slow", probing.PATIENCE_NS)], 1, clock)

    assert source == "slow, 1 thread, best of 1"


def test_many_slow_operators_have_one_timed_run_each_after_the_limit_and_the_fastest_still_wins() -> None:
    clock = Clock()
    slow = [clock.candidate(f"slow {number}", 90_000_000) for number in range(20)]
    fast = clock.candidate("fast", 60_000_000)

    rate, source = probing.best([*slow, fast], 1, clock)

    assert (rate, source) == (1000 / 60e-3, "fast, 1 thread, best of 1")
    before_the_limit = [clock.runs.count(each.name) for each in slow if clock.runs.count(each.name) > 2]
    assert len(before_the_limit) * 3 * 90_000_000 <= probing.MOST_NS + 3 * 90_000_000
    assert clock.now_ns <= probing.MOST_NS + 2 * sum([90_000_000] * 20, 60_000_000)


def test_an_operator_that_cannot_be_run_is_passed_over() -> None:
    clock = Clock()

    rate, _ = probing.best([failing("no bf16 here"), clock.candidate("other", 100)], 1, clock)

    assert rate == 1000 / 100e-9


def test_where_nothing_can_be_run_the_reason_is_reported() -> None:
    assert probing.best([failing("no bf16\nhere")], 1) == (None, "not measured: no bf16 here")
    assert probing.best([], 1) == (None, "not measured: there is no operator for it")


def test_a_precision_without_a_figure_has_a_reason_among_the_sources() -> None:
    clock = Clock()

    found = probing.measure(
        {"fp32": [clock.candidate("product", 100)], "bf16": [failing("no bf16 here")]}, [], {"fp8": "no such"}, 1
    )

    assert found.flops_per_s.keys() == {"fp32"}
    assert found.sources["bf16"] == "not measured: no bf16 here"
    assert found.sources["fp8"] == "no such"
    assert found.bytes_per_s is None


def test_the_flops_of_a_probe_are_those_of_its_sizes() -> None:
    # 256·256·9 weights at 14·14 places of 4 images, two FLOPs each.
    assert CONVOLUTIONS[0].flops(4) == 2 * 256 * 256 * 9 * 14 * 14 * 4
    assert CONVOLUTIONS[0].name(4) == "3×3 convolution 256→256, 14×14, batch 4"
    assert probing.product_flops(2) == 2 * 1024 * 1024 * 1024
    assert probing.product_size(2) == "1024×1024×1024"


def test_the_set_grows_with_the_threads_but_not_its_memory_without_end() -> None:
    assert [probing.rows(threads) for threads in (1, 2, 16, 128)] == [512, 1024, 8192, 8192]
    assert [probing.images(threads) for threads in (1, 2, 16, 128)] == [4, 8, 64, 64]


def test_the_last_level_cache_is_the_largest_one(tmp_path: Path) -> None:
    for index, size in enumerate(("48K", "2048K", "307200K")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")

    assert probing.last_level_cache_bytes(tmp_path) == 300 << 20
    assert "300.00 MiB" in probing._cache_remark(tmp_path)
    assert probing.last_level_cache_bytes(tmp_path / "none") is None
    assert probing._cache_remark(tmp_path / "none") == ""


def test_load_of_others_is_reported_where_it_may_have_held_the_probe_back() -> None:
    assert probing._load_remark(0.4) == " (other processes took 40.0 % of the cores meanwhile)"
    assert probing._load_remark(0.05) == ""


def test_what_was_disturbed_is_measured_until_it_is_quiet_and_the_best_is_kept() -> None:
    measured = [
        Peaks({"fp32": 4.0, "bf16": 2.0}, 5.0, {"fp32": "one", "bf16": "one", "memory": "one"}, others=0.5),
        Peaks({"fp32": 3.0, "bf16": 6.0}, 7.0, {"fp32": "two", "bf16": "two", "memory": "two"}, others=0.2),
        Peaks({"fp32": 3.5}, None, {"fp32": "three", "bf16": "failed", "memory": "failed"}, others=0.01),
    ]
    left = iter(measured)
    best = probing.UntilQuiet(lambda precisions, threads: next(left))

    assert best(("fp32",), 1) == measured[0]
    second = best(("fp32",), 1)
    assert second.flops_per_s == {"fp32": 4.0, "bf16": 6.0}
    assert second.sources == {"fp32": "one", "bf16": "two", "memory": "two"}
    assert (second.bytes_per_s, second.others, second.is_disturbed) == (7.0, 0.2, True)
    third = best(("fp32",), 1)
    assert (third.flops_per_s, third.sources, third.bytes_per_s) == (second.flops_per_s, second.sources, 7.0)
    assert not third.is_disturbed
    assert best(("fp32",), 1) is third


def test_a_gpu_is_looked_up_by_what_its_driver_reports() -> None:
    class Driver:
        def cuInit(self, flags: int) -> int:  # noqa: N802
            return 0

        def cuDeviceGet(self, device, index: int) -> int:  # noqa: N802
            assert index == 3
            return 0

        def cuDeviceGetName(self, name, size: int, device) -> int:  # noqa: N802
            name.value = b"NVIDIA H200"
            return 0

        def cuDeviceGetAttribute(self, value, number: int, device) -> int:  # noqa: N802
            value._obj.value = {13: 1_980_000, 16: 132, 36: 3_201_000, 37: 6144, 75: 9, 76: 0}[number]
            return 0

    found = probing.look_up("cuda:3", Driver())

    assert found.flops_per_s["bf16"] == 132 * 4096 * 1.98e9
    assert found.bytes_per_s == pytest.approx(4.9e12, rel=0.01)


def test_a_process_of_its_own_is_given_what_to_measure_and_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    answer = {"flops_per_s": {"fp32": 1e9}, "bytes_per_s": None, "sources": {}, "clock_hz": None}
    monkeypatch.setattr(fresh, "ask", lambda *order: asked.append(order) or answer)

    assert probing.apart("mxnet", ("fp32",), 3).flops_per_s == {"fp32": 1e9}
    assert asked == [("tbdprof.hooks.probing", ["mxnet", ["fp32"], 3], probing.LIMIT_S)]


def test_where_that_process_fails_or_prints_something_else_the_peak_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_order: object) -> None:
        raise UnavailableError("a process that was to measure it failed: it had not ended after 120 s")

    monkeypatch.setattr(fresh, "ask", failing)
    with pytest.raises(UnavailableError, match=r"^this CPU's peak is not known: .* it had not ended after 120 s$"):
        probing.apart("tensorflow", ["fp32"], 1)

    monkeypatch.setattr(fresh, "ask", lambda *_order: {"else": 1})
    with pytest.raises(UnavailableError, match=r"^this CPU's peak is not known: "):
        probing.apart("tensorflow", ["fp32"], 1)
