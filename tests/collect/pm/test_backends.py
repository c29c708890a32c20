"""cupti-python and libcupti in the sampler's place: the same samples, the same errors."""

import ctypes
from typing import Any

import pytest
from fake_pm import FakeCuptiError, FakeLibcupti, cupti_python

from tbdprof.collect.pm import CuptiError, Sampler, Wanted, statuses
from tbdprof.collect.pm.opening import opened
from tbdprof.collect.pm.with_cupti_python import CuptiPythonSampler, find
from tbdprof.collect.pm.with_libcupti import PARAMETERS, LibcuptiSampler, struct_size

WANTED = Wanted(("a", "b"), 100_000, True, 1 << 20, 2)

# structSize and sizeof, by gcc from the headers of nvidia-cuda-cupti 13.5.25.
SIZES = {
    "cuptiProfilerInitialize": (16, 16),
    "cuptiProfilerDeInitialize": (16, 16),
    "cuptiDeviceGetChipName": (32, 32),
    "cuptiProfilerHostInitialize": (56, 56),
    "cuptiProfilerHostDeinitialize": (24, 24),
    "cuptiProfilerHostConfigAddMetrics": (40, 40),
    "cuptiProfilerHostGetConfigImageSize": (32, 32),
    "cuptiProfilerHostGetConfigImage": (40, 40),
    "cuptiProfilerHostGetNumOfPasses": (40, 40),
    "cuptiProfilerHostEvaluateToGpuValues": (72, 72),
    "cuptiPmSamplingGetCounterAvailability": (40, 40),
    "cuptiPmSamplingEnable": (32, 32),
    "cuptiPmSamplingDisable": (24, 24),
    "cuptiPmSamplingSetConfig": (64, 64),
    "cuptiPmSamplingStart": (24, 24),
    "cuptiPmSamplingStop": (24, 24),
    "cuptiPmSamplingGetCounterDataSize": (56, 56),
    "cuptiPmSamplingCounterDataImageInitialize": (40, 40),
    "cuptiPmSamplingDecodeData": (45, 48),
    "cuptiPmSamplingGetCounterDataInfo": (56, 56),
    "cuptiPmSamplingCounterDataGetSampleInfo": (64, 64),
}


def with_library(library: FakeLibcupti | None = None) -> LibcuptiSampler:
    return LibcuptiSampler(library or FakeLibcupti(), 0)


def with_python(raises: dict[str, BaseException] | None = None) -> CuptiPythonSampler:
    return CuptiPythonSampler(cupti_python(raises), 0)  # type: ignore[arg-type]


class FakeCuda:
    """The driver's library: counts what is asked of it."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            return self.status

        return call


def test_structures_have_the_sizes_of_the_headers():
    assert {call: (struct_size(call), ctypes.sizeof(kind)) for call, kind in PARAMETERS.items()} == SIZES


@pytest.mark.parametrize("sampler", [with_library(), with_python()])
def test_both_decode_the_samples_there_are(sampler: Sampler):
    sampler.configure(WANTED)
    sampler.start()
    sampler.stop()
    decoded = sampler.decode()

    assert (sampler.chip, sampler.timestamp()) == ("GH100", 77)
    assert decoded.start.tolist() == [0, 100]
    assert decoded.end.tolist() == [100, 200]
    assert decoded.values.shape == (2, 2)
    assert decoded.full
    sampler.close()


@pytest.mark.parametrize("sampler", [with_library(), with_python()])
def test_both_report_how_many_passes_metrics_take(sampler: Sampler):
    assert sampler.passes(["a", "b"]) == 1
    assert sampler.passes(["a", "b", "c"]) == 2


def test_a_library_is_given_only_fields_it_knows():
    library = FakeLibcupti()
    one = with_library(library)
    one.passes(["a"])
    assert library.sizes["cuptiProfilerHostInitialize"] == 48  # as in 13.0
    one.passes(["a"], "TriageCompute")
    assert library.sizes["cuptiProfilerHostInitialize"] == 56


def test_a_library_is_given_what_is_wanted():
    library = FakeLibcupti()
    with_library(library).configure(WANTED)

    assert library.config == {
        "sampling": 4711,
        "interval": 100_000,
        "trigger": 1,
        "append": 0,
        "buffer_bytes": 1 << 20,
    }
    assert library.names == [b"a", b"b"]


def test_a_library_without_the_function_is_too_old():
    with pytest.raises(CuptiError, match="libcupti 130000 has no such function"):
        with_library(FakeLibcupti(lacks=("cuptiPmSamplingEnable",)))


def test_a_library_that_refuses_has_given_everything_back():
    library = FakeLibcupti({"cuptiPmSamplingEnable": 35})

    with pytest.raises(CuptiError) as refused:
        with_library(library)

    assert refused.value.status == statuses.INSUFFICIENT_PRIVILEGES
    assert library.calls[-1] == "cuptiProfilerDeInitialize"


def test_the_reason_of_a_refusal_is_reported_though_giving_back_fails_too():
    library = FakeLibcupti({"cuptiPmSamplingEnable": 35, "cuptiProfilerDeInitialize": 999})

    with pytest.raises(CuptiError) as refused:
        with_library(library)

    assert refused.value.status == statuses.INSUFFICIENT_PRIVILEGES


def test_without_an_image_of_what_is_available_the_chip_alone_decides():
    one = with_library(FakeLibcupti({"cuptiPmSamplingGetCounterAvailability": 27}))

    assert one.passes(["a"]) == 1


@pytest.mark.parametrize(
    ("where", "raised", "status"),
    [
        ("enable", PermissionError("Insufficient privileges"), statuses.INSUFFICIENT_PRIVILEGES),
        ("enable", RuntimeError("CUPTI could not load the nvperf* libraries"), statuses.NOT_INITIALIZED),
        ("enable", RuntimeError("PM sampling is already enabled on this device."), statuses.INVALID_OPERATION),
        ("enable", RuntimeError("CUDA driver is not found"), statuses.UNKNOWN),
        ("enable", FakeCuptiError(39), statuses.MULTIPLE_SUBSCRIBERS),
        ("chip", FakeCuptiError(26), statuses.HARDWARE_BUSY),
    ],
)
def test_what_cupti_python_raises_has_its_status(where: str, raised: BaseException, status: int):
    with pytest.raises(CuptiError) as refused:
        with_python({where: raised})

    assert refused.value.status == status


def test_an_overflow_of_cupti_python_is_one_of_memory():
    one = with_python({"decode": MemoryError("Record overflow")})
    one.configure(WANTED)

    with pytest.raises(CuptiError) as overflown:
        one.decode()

    assert overflown.value.status == statuses.OUT_OF_MEMORY


def test_a_configuration_that_cupti_python_refuses_is_not_supported():
    with pytest.raises(CuptiError) as refused:
        with_python({"configure": ValueError("not supported")}).configure(WANTED)

    assert refused.value.status == statuses.NOT_SUPPORTED


def test_a_context_is_made_only_where_one_is_wanted():
    cuda, tries = FakeCuda(), list[int]()

    def opener(device: int) -> Any:
        tries.append(device)
        if len(tries) == 1:
            raise CuptiError("enable", 3)
        return with_library()

    assert opened(2, cuda, [opener]).chip == "GH100"
    assert cuda.calls == ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"]
    assert tries == [2, 2]

    plain = FakeCuda()
    opened(0, plain, [lambda device: with_library()])
    assert plain.calls == ["cuInit"]


def test_the_second_way_is_tried_where_the_first_fails():
    def failing(device: int) -> Any:
        raise CuptiError("configure", statuses.NOT_SUPPORTED)

    assert opened(0, FakeCuda(), [failing, lambda device: with_library()]).backend == "libcupti 130000"
    with pytest.raises(CuptiError, match="NOT_SUPPORTED"):
        opened(0, FakeCuda(), [failing, failing])
    with pytest.raises(CuptiError, match="libcupti is not installed"):
        opened(0, FakeCuda(), [])


def test_a_driver_that_refuses_is_named():
    with pytest.raises(CuptiError, match="the CUDA driver refuses: cuInit returns 100"):
        opened(0, FakeCuda(100), [])


def test_errors_of_the_driver_are_said_without_a_number_of_cupti():
    assert statuses.sentence("dlopen", statuses.SUCCESS, "there is no CUDA driver") == "there is no CUDA driver"


@pytest.mark.parametrize("version", ["13.2.0", "12.8.0", "odd"])
def test_an_older_cupti_python_is_not_used(version: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: version)

    assert find() is None
