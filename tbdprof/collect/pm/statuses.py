"""CUPTI's statuses (`CUptiResult` of cupti_result.h): their names, and messages for users."""

from collections.abc import Mapping

SUCCESS = 0  # in an error: the failure is not CUPTI's
INVALID_OPERATION = 7
OUT_OF_MEMORY = 8
NOT_INITIALIZED = 15
INVALID_METRIC_NAME = 17
HARDWARE_BUSY = 26
NOT_SUPPORTED = 27
INSUFFICIENT_PRIVILEGES = 35
MULTIPLE_SUBSCRIBERS = 39
UNKNOWN = 999

_NAMES: Mapping[int, str] = {
    1: "INVALID_PARAMETER",
    2: "INVALID_DEVICE",
    3: "INVALID_CONTEXT",
    INVALID_OPERATION: "INVALID_OPERATION",
    OUT_OF_MEMORY: "OUT_OF_MEMORY",
    9: "HARDWARE",
    13: "NOT_READY",
    14: "NOT_COMPATIBLE",
    NOT_INITIALIZED: "NOT_INITIALIZED",
    INVALID_METRIC_NAME: "INVALID_METRIC_NAME",
    23: "DISABLED",
    HARDWARE_BUSY: "HARDWARE_BUSY",
    NOT_SUPPORTED: "NOT_SUPPORTED",
    33: "VIRTUALIZED_DEVICE_NOT_SUPPORTED",
    INSUFFICIENT_PRIVILEGES: "INSUFFICIENT_PRIVILEGES",
    36: "OLD_PROFILER_API_INITIALIZED",
    38: "LEGACY_PROFILER_NOT_SUPPORTED",
    MULTIPLE_SUBSCRIBERS: "MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
    40: "VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES",
    41: "CONFIDENTIAL_COMPUTING_NOT_SUPPORTED",
    42: "CMP_DEVICE_NOT_SUPPORTED",
    43: "MIG_DEVICE_NOT_SUPPORTED",
    44: "SLI_DEVICE_NOT_SUPPORTED",
    45: "WSL_DEVICE_NOT_SUPPORTED",
    46: "INVALID_CHIP_NAME",
    UNKNOWN: "UNKNOWN",
}
_SENTENCES: Mapping[int, str] = {
    INVALID_OPERATION: "another process samples this device's counters already",
    OUT_OF_MEMORY: "the device's counters need more memory than there is",
    NOT_INITIALIZED: "the NVIDIA driver is too old for this CUPTI, or its libraries libnvperf_host and "
    "libnvperf_target are not beside it",
    HARDWARE_BUSY: "another profiler (Nsight, DCGM) holds the device's counters",
    NOT_SUPPORTED: "the device, or its driver, does not sample its counters",
    33: "a virtual GPU does not give its counters",
    INSUFFICIENT_PRIVILEGES: "the driver keeps counters for root: load its module with "
    "NVreg_RestrictProfilingToAdminUsers=0, or run as root",
    MULTIPLE_SUBSCRIBERS: "another profiler in the same process uses CUPTI",
    40: "the host of this virtual machine keeps the device's counters to itself",
    41: "a device in confidential computing does not give its counters",
    43: "an instance of a divided GPU (MIG) does not give its counters",
    46: "this CUPTI does not know the device's chip: a newer one may",
    UNKNOWN: "CUPTI does not work with this driver",
}


def name_of(status: int) -> str:
    """Return NVIDIA's name of a status."""
    return f"CUPTI_ERROR_{_NAMES[status]}" if status in _NAMES else "an error"


def sentence(call: str, status: int, text: str = "") -> str:
    """Return a message about a failed call, with name and number of CUPTI's status if the failure is CUPTI's."""
    if status == SUCCESS:
        return text
    failure = f"{call}: {name_of(status)} ({status})"
    why = _SENTENCES.get(status) or text
    return f"{why} [{failure}]" if why else failure
