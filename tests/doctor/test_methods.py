"""Each level of measurement answers for itself, and the highest that works comes with what would raise it."""

from pathlib import Path

import pytest
from fake_cupti import FakeCupti
from fake_nvml import LIBRARY_NOT_FOUND, NO_PERMISSION, NOT_SUPPORTED, FakeCuda, FakeNvml
from fakes import FakeClock

from tbdprof.collect.gpu.cuda_driver import Limits
from tbdprof.collect.gpu.nvidia import Counters
from tbdprof.doctor import methods
from tbdprof.doctor.methods import DRIVER, EXACT, UNLOCK, Level, Levels, Subject
from tbdprof.errors import UnavailableError

H200 = Limits("NVIDIA H200", "9.0", 132, 1.98e9, 4.8e12)
NCU = Path("/opt/ncu")
ROOT = "the driver keeps them for root: load its module with NVreg_RestrictProfilingToAdminUsers=0"


def no_driver(index: int) -> Limits:
    raise UnavailableError("the CUDA driver does not answer: libcuda.so.1: cannot open shared object file")


class NoCuda:
    """A process without the CUDA driver."""

    def cuInit(self, flags: int) -> int:  # noqa: N802
        raise OSError("libcuda.so.1: cannot open shared object file")


def of_activity(own: dict[str, str | None], cupti: FakeCupti) -> Level:
    return methods.activity(own, methods.cupti(0, cupti).answer or None)


@pytest.fixture
def cupti() -> FakeCupti:
    return FakeCupti(FakeClock())


def by_name(found: Levels) -> dict[str, bool | None]:
    return {level.name: level.works for level in found.found}


def test_a_hopper_card_with_everything_reaches_the_highest(cupti: FakeCupti) -> None:
    nvml = FakeNvml()
    found = methods.judged(
        (
            methods.device(0, nvml, FakeCuda()),
            of_activity({"torch": None}, cupti),
            methods.analytic(0, lambda index: H200),
            methods.sampled(0, lambda device: None),
            methods.counted(lambda: NCU, Counters(True)),
        )
    )

    assert set(by_name(found).values()) == {True}
    assert found.found[0].answer == "power: yes; energy: yes; SM clock: yes; GPM: yes"
    assert found.found[1].answer == "torch: its own profiler; others: cupti-python"
    assert found.found[2].answer.startswith("NVIDIA H200: peaks in TFLOP/s: fp32 66.9, ")
    assert (found.highest, found.raised_by) == ("counted", EXACT)
    assert nvml.opened == nvml.shut == 1
    assert sorted(nvml.freed) == sorted(nvml.buffers)


def test_without_a_driver_every_level_says_why(cupti: FakeCupti) -> None:
    cupti.fails["subscribe"] = RuntimeError("CUDA driver is not found (libcuda.so.1: cannot open shared object file)")
    found = methods.judged(
        (
            methods.device(0, FakeNvml(), NoCuda()),
            of_activity({}, cupti),
            methods.analytic(0, no_driver),
            methods.sampled(0, lambda device: "there is no CUDA driver: libcuda.so.1: cannot open"),
            methods.counted(lambda: NCU, Counters(None, "no NVIDIA driver is loaded")),
        )
    )

    assert by_name(found) == {"device": False, "activity": False, "analytic": True, "sampled": False, "counted": False}
    assert found.found[2].answer.startswith("on the CPU; no GPU: ")
    assert {level.remedy for level in found.found if not level.works} == {DRIVER}
    assert (found.highest, found.raised_by) == ("analytic", DRIVER)
    assert "libcuda.so.1" in found.found[0].answer
    assert found.found[1].answer.startswith("no framework here can use a GPU; others: CUPTI does not answer")


def test_nvml_may_be_absent_where_cuda_is_not() -> None:
    level = methods.device(0, FakeNvml(refuses={"nvmlInit": LIBRARY_NOT_FOUND}), FakeCuda())
    assert level == Level("device", False, "the NVIDIA driver does not answer: NVML Shared Library Not Found", DRIVER)


def test_a_driver_that_keeps_counters_for_root_is_to_be_unlocked(cupti: FakeCupti) -> None:
    found = methods.judged(
        (
            methods.device(0, FakeNvml(), FakeCuda()),
            of_activity({"torch": None}, cupti),
            methods.analytic(0, lambda index: H200),
            methods.sampled(0, lambda device: ROOT),
            methods.counted(lambda: NCU, Counters(False, ROOT)),
        )
    )

    assert by_name(found) == {
        "device": True, "activity": True, "analytic": True, "sampled": False, "counted": False
    }  # fmt: skip
    assert (found.highest, found.raised_by) == ("analytic", UNLOCK)


def test_a_driver_that_permits_nothing_says_so() -> None:
    calls = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetFieldValues", "nvmlDeviceGetTotalEnergyConsumption")
    others = ("nvmlDeviceGetClockInfo", "nvmlGpmQueryDeviceSupport")
    level = methods.device(0, FakeNvml(refuses=dict.fromkeys((*calls, *others), NO_PERMISSION)), FakeCuda())

    assert (level.works, level.remedy) == (False, UNLOCK)
    assert level.answer.startswith("power: Insufficient Permissions; energy: Insufficient Permissions; ")


def test_an_ampere_card_has_all_but_gpm() -> None:
    nvml = FakeNvml(capability=(8, 0), refuses={"nvmlDeviceGetFieldValues": NOT_SUPPORTED})
    nvml.supports_gpm = False
    level = methods.device(0, nvml, FakeCuda())

    assert level.works
    assert level.answer.endswith("GPM: the card has no GPM figures: Hopper and later have them")
    assert level.answer.startswith("power: yes; energy: yes; ")


def test_frameworks_that_record_themselves_need_no_cupti_python(cupti: FakeCupti) -> None:
    cupti.fails["subscribe"] = 27
    level = of_activity({"torch": None, "tensorflow": "not built for CUDA"}, cupti)
    assert level == Level(
        "activity",
        True,
        "torch: its own profiler; tensorflow: not built for CUDA; others: CUPTI does not support this device",
    )


def test_without_libcupti_activity_is_what_to_install() -> None:
    reason = "CUPTI's records need cupti-python: pip install 'tbdprof[counters]'"
    level = methods.activity({"torch": "this build records no activity of CUDA"}, reason)
    assert (level.works, level.remedy) == (False, "pip install 'tbdprof[counters]'")


def test_a_device_without_a_known_peak_is_refused() -> None:
    level = methods.analytic(0, lambda index: Limits("New", "99.0", 1, 1e9, None))
    assert not level.works
    assert level.answer.startswith("the peak of New is not known")


def test_without_nsight_compute_the_highest_is_raised_by_it(cupti: FakeCupti) -> None:
    working = tuple(Level(name, True, "yes") for name in ("device", "activity", "analytic", "sampled"))
    found = methods.judged((*working, methods.counted(lambda: None, Counters(True))))

    assert found.highest == "sampled"
    assert str(found.raised_by).startswith("install Nsight Compute")


def test_what_is_not_reported_is_neither_yes_nor_no() -> None:
    level = methods.counted(lambda: NCU, Counters(None, "the driver's parameters do not say (RmProfilingAdminOnly)"))
    assert level.works is None
    assert methods.judged((level,)).highest is None


def test_a_probe_in_its_own_process_answers_and_may_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    here = methods._apart("cupti", 0)
    assert here.name == "activity"
    assert isinstance(here.works, bool)

    broken = methods._apart("no such probe", 0)
    assert broken.works is False
    assert "no such probe" in broken.answer
    assert "0.001" in methods._apart("cupti", 0, limit_s=0.001).answer


def test_a_number_of_the_frameworks_stands_for_a_device_that_nvidia_smi_may_number_otherwise() -> None:
    nvml = FakeNvml()

    assert methods.subject(0, nvml, FakeCuda()) == Subject("cuda:0", "NVIDIA H200", 3, 2)
    assert nvml.opened == nvml.shut == 1


def test_what_the_driver_does_not_report_of_a_device_is_not_made_up() -> None:
    refusing = FakeNvml(refuses={"nvmlDeviceGetIndex": NO_PERMISSION})
    assert methods.subject(0, refusing, FakeCuda()) == Subject("cuda:0", "NVIDIA H200", None, 2)
    assert refusing.opened == refusing.shut == 1

    assert methods.subject(2, FakeNvml(), FakeCuda()) == Subject("cuda:2", None, None, 2)
    with pytest.raises(UnavailableError, match="libcuda"):
        methods.subject(0, FakeNvml(), NoCuda())
