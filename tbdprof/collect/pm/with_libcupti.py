"""PM sampling with libcupti alone, called through ctypes, for environments in which a framework chooses the libcupti.

Structures and order of calls follow cupti_pmsampling.h, cupti_profiler_host.h and cupti_profiler_target.h of CUPTI 13.
Each structure holds its own size, up to its last field. A library that knows more fields accepts the shorter structure.
"""

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tbdprof.collect.pm import CuptiError, Decoded, Wanted, statuses

_PM_SAMPLING = 1  # CUpti_ProfilerType
_KEEP_OLDEST = 0  # CUpti_PmSampling_HardwareBuffer_AppendMode: an overflow is reported, not hidden
_DATA_FULL = 1  # CUpti_PmSampling_DecodeStopReason
_LATEST = 1 << 62  # limit for times: larger ones, which no clock has reached, do not fit into the array

_POINTER, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
_ENUM, _U8, _U32, _U64 = ctypes.c_int, ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64
_IMAGE = (("image", _POINTER), ("image_bytes", _SIZE))

# By the function they belong to; each begins with `structSize` and `pPriv`.
_FIELDS: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "cuptiProfilerInitialize": (),
    "cuptiProfilerDeInitialize": (),
    "cuptiDeviceGetChipName": (("device", _SIZE), ("chip", _TEXT)),
    "cuptiProfilerHostInitialize": (
        ("profiler", _ENUM),
        ("chip", _TEXT),
        ("availability", _POINTER),
        ("host", _POINTER),
        ("metric_set", _TEXT),  # from 13.2 on: included only if there is one
    ),
    "cuptiProfilerHostDeinitialize": (("host", _POINTER),),
    "cuptiProfilerHostConfigAddMetrics": (("host", _POINTER), ("names", _POINTER), ("count", _SIZE)),
    "cuptiProfilerHostGetConfigImageSize": (("host", _POINTER), ("config_bytes", _SIZE)),
    "cuptiProfilerHostGetConfigImage": (("host", _POINTER), ("config_bytes", _SIZE), ("config", _POINTER)),
    "cuptiProfilerHostGetNumOfPasses": (("config_bytes", _SIZE), ("config", _POINTER), ("passes", _SIZE)),
    "cuptiProfilerHostEvaluateToGpuValues": (
        ("host", _POINTER),
        *_IMAGE,
        ("index", _SIZE),
        ("names", _POINTER),
        ("count", _SIZE),
        ("values", _POINTER),
    ),
    "cuptiPmSamplingGetCounterAvailability": (
        ("device", _SIZE),
        ("availability_bytes", _SIZE),
        ("availability", _POINTER),
    ),
    "cuptiPmSamplingEnable": (("device", _SIZE), ("sampling", _POINTER)),
    "cuptiPmSamplingDisable": (("sampling", _POINTER),),
    "cuptiPmSamplingSetConfig": (
        ("sampling", _POINTER),
        ("config_bytes", _SIZE),
        ("config", _POINTER),
        ("buffer_bytes", _SIZE),
        ("interval", _U64),
        ("trigger", _ENUM),
        ("append", _ENUM),
    ),
    "cuptiPmSamplingStart": (("sampling", _POINTER),),
    "cuptiPmSamplingStop": (("sampling", _POINTER),),
    "cuptiPmSamplingGetCounterDataSize": (
        ("sampling", _POINTER),
        ("names", _POINTER),
        ("count", _SIZE),
        ("slots", _U32),
        ("image_bytes", _SIZE),
    ),
    "cuptiPmSamplingCounterDataImageInitialize": (
        ("sampling", _POINTER),
        ("image_bytes", _SIZE),
        ("image", _POINTER),
    ),
    "cuptiPmSamplingDecodeData": (("sampling", _POINTER), *_IMAGE, ("stop_reason", _ENUM), ("overflow", _U8)),
    "cuptiPmSamplingGetCounterDataInfo": (*_IMAGE, ("total", _SIZE), ("populated", _SIZE), ("completed", _SIZE)),
    "cuptiPmSamplingCounterDataGetSampleInfo": (
        ("sampling", _POINTER),
        *_IMAGE,
        ("index", _SIZE),
        ("start", _U64),
        ("end", _U64),
    ),
}
PARAMETERS: Mapping[str, Any] = {
    call: type(call, (ctypes.Structure,), {"_fields_": [("structSize", _SIZE), ("pPriv", _POINTER), *fields]})
    for call, fields in _FIELDS.items()
}


def struct_size(call: str) -> int:
    """Return the size that a structure holds: up to and including its last field (NVIDIA's `*_STRUCT_SIZE`)."""
    structure = PARAMETERS[call]
    name, kind = structure._fields_[-1]
    return int(getattr(structure, name).offset) + ctypes.sizeof(kind)


def load(path: Path) -> Any:
    """Load a libcupti and the libraries that it loads by bare name; raise OSError if that fails."""
    for name in ("libnvperf_host.so", "libnvperf_target.so"):
        if (path.parent / name).exists():
            ctypes.CDLL(str(path.parent / name), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(path))


class LibcuptiSampler:
    """Samples a device with a loaded libcupti; a `Sampler`."""

    def __init__(self, library: Any, device: int) -> None:
        """Open a device's counters; raise CuptiError if it refuses."""
        self._cupti = library
        self._device = device
        self._names: Any = None
        self._config: Any = None
        self._image: Any = None
        self._count = 0
        self._host = 0
        self._sampling = 0
        self.library = _version(library)
        self.backend = f"libcupti {self.library}"
        self._call("cuptiProfilerInitialize")
        try:
            self.chip = (self._call("cuptiDeviceGetChipName", device=device).chip or b"").decode()
            self._availability = self._available()  # before this process takes the counters, which are then not free
            self._sampling = self._call("cuptiPmSamplingEnable", device=device).sampling
        except CuptiError:
            with suppress(CuptiError):
                self.close()
            raise

    def timestamp(self) -> int:
        """Return the time of CUPTI's clock in nanoseconds."""
        timestamp = ctypes.c_uint64()
        _check("cuptiGetTimestamp", self._cupti.cuptiGetTimestamp(ctypes.byref(timestamp)))
        return timestamp.value

    def passes(self, metrics: Sequence[str], metric_set: str | None = None) -> int:
        """Return how many passes some metrics take together; raise CuptiError for a name that the chip lacks."""
        host = self._new_host(metric_set)
        try:
            config = self._configuration(host, _names(metrics), len(metrics))
            params = self._call("cuptiProfilerHostGetNumOfPasses", config_bytes=len(config), config=_address(config))
            return int(params.passes)
        finally:
            self._call("cuptiProfilerHostDeinitialize", host=host)

    def configure(self, wanted: Wanted) -> None:
        """Set what to sample, how often, and how many samples there is space for."""
        self._free_host()
        self._names, self._count, self._host = (
            _names(wanted.metrics),
            len(wanted.metrics),
            self._new_host(wanted.metric_set),
        )
        self._config = self._configuration(self._host, self._names, self._count)  # kept: CUPTI continues to read it
        self._call(
            "cuptiPmSamplingSetConfig",
            sampling=self._sampling,
            config_bytes=len(self._config),
            config=_address(self._config),
            buffer_bytes=wanted.buffer_bytes,
            interval=wanted.interval,
            trigger=int(wanted.by_time),
            append=_KEEP_OLDEST,
        )
        params = self._call(
            "cuptiPmSamplingGetCounterDataSize", sampling=self._sampling, slots=wanted.slots, **self._named()
        )
        self._image = (ctypes.c_uint8 * params.image_bytes)()

    def start(self) -> None:
        """Begin to sample."""
        self._call("cuptiPmSamplingStart", sampling=self._sampling)

    def stop(self) -> None:
        """Stop; what is in the buffer can still be decoded."""
        self._call("cuptiPmSamplingStop", sampling=self._sampling)

    def decode(self) -> Decoded:
        """Take the complete samples out of the hardware's buffer, and return them."""
        where = {"image": _address(self._image), "image_bytes": len(self._image)}
        self._call("cuptiPmSamplingCounterDataImageInitialize", sampling=self._sampling, **where)
        done = self._call("cuptiPmSamplingDecodeData", sampling=self._sampling, **where)
        count = self._call("cuptiPmSamplingGetCounterDataInfo", **where).completed
        times, values = np.zeros((count, 2), "i8"), np.zeros((count, self._count))
        for index in range(count):
            params = self._call(
                "cuptiPmSamplingCounterDataGetSampleInfo", sampling=self._sampling, index=index, **where
            )
            times[index] = min(params.start, _LATEST), min(params.end, _LATEST)
            at = values[index:].ctypes.data
            self._call(
                "cuptiProfilerHostEvaluateToGpuValues",
                host=self._host,
                index=index,
                values=at,
                **where,
                **self._named(),
            )
        return Decoded(times[:, 0], times[:, 1], values, done.stop_reason == _DATA_FULL, bool(done.overflow))

    def close(self) -> None:
        """Release everything."""
        self._free_host()
        if self._sampling:
            sampling, self._sampling = self._sampling, 0
            self._call("cuptiPmSamplingDisable", sampling=sampling)
        self._call("cuptiProfilerDeInitialize")

    def _available(self) -> Any:
        """Return the image of what this device's counters can do now, or None if it is not reported."""
        try:
            params = self._call("cuptiPmSamplingGetCounterAvailability", device=self._device)
            image = (ctypes.c_uint8 * params.availability_bytes)()
            where = {"availability_bytes": len(image), "availability": _address(image)}
            self._call("cuptiPmSamplingGetCounterAvailability", device=self._device, **where)
        except CuptiError:
            return None
        return image

    def _new_host(self, metric_set: str | None) -> int:
        call, image = "cuptiProfilerHostInitialize", self._availability
        known = {} if metric_set else {"structSize": PARAMETERS[call].metric_set.offset}
        params = self._call(
            call,
            profiler=_PM_SAMPLING,
            chip=self.chip.encode(),
            availability=None if image is None else _address(image),
            metric_set=metric_set.encode() if metric_set else None,
            **known,
        )
        return int(params.host or 0)

    def _free_host(self) -> None:
        if self._host:
            host, self._host = self._host, 0
            self._call("cuptiProfilerHostDeinitialize", host=host)

    def _configuration(self, host: int, names: Any, count: int) -> Any:
        self._call("cuptiProfilerHostConfigAddMetrics", host=host, names=_address(names), count=count)
        size = self._call("cuptiProfilerHostGetConfigImageSize", host=host).config_bytes
        config = (ctypes.c_uint8 * size)()
        self._call("cuptiProfilerHostGetConfigImage", host=host, config_bytes=size, config=_address(config))
        return config

    def _named(self) -> dict[str, int]:
        return {"names": _address(self._names), "count": self._count}

    def _call(self, call: str, **fields: Any) -> Any:
        structure = PARAMETERS[call](**{"structSize": struct_size(call), **fields})
        function = getattr(self._cupti, call, None)
        if function is None:
            raise CuptiError(call, statuses.NOT_SUPPORTED, f"libcupti {self.library} has no such function")
        _check(call, function(ctypes.byref(structure)))
        return structure


def _version(library: Any) -> str:
    """Return the number of the library's version; without a driver it reports none."""
    number = ctypes.c_uint32()
    return "of unknown version" if library.cuptiGetVersion(ctypes.byref(number)) else str(number.value)


def _check(call: str, status: int) -> None:
    if status:
        raise CuptiError(call, status)


def _names(metrics: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(metrics))(*(name.encode() for name in metrics))


def _address(array: Any) -> int:
    return ctypes.addressof(array)
