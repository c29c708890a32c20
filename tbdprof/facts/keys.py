"""The keys under which hooks and collectors report, in `Recording.missing`, what is lacking and what is to be known.

A file keeps the keys' text. The key of a remark on a sampled window has the window's name behind it: `trace (sampled)`.
"""

from enum import Enum

_OF_WINDOW = " ("


class _Text(str, Enum):
    """Text with a name: equal to the text, and printed as it."""

    __str__ = str.__str__
    __repr__ = str.__repr__

    def __format__(self, format_spec: str) -> str:
        """Return the text, formatted; Python 3.12 would print the name."""
        return str.__format__(self, format_spec)


class ReasonFor(_Text):
    """What a reason is for: a window, an instrument, or a result by its path in the report."""

    MEMORY = "memory"
    KERNELS = "kernels"
    SAMPLED = "sampled"
    COUNTED = "counted"
    THROUGHPUT = "throughput"
    CPU = "utilization.cpu"
    PEAKS = "peaks"
    ACTIVITY = "activity"  # of CUPTI: kernels that the framework does not report
    HOST = "host"
    DEVICE = "device"  # all that its driver reports
    DRIVER_BUSY = "device.driver_busy"
    GPM = "device.gpm"
    SM_CLOCK = "device.sm_clock"
    MOST_SM_CLOCK = "device.sm_clock.max"
    MEMORY_CLOCK = "device.memory_clock"
    CLOCK_REASONS = "device.clock_reasons"
    TEMPERATURE = "device.temperature"
    ENERGY_COUNTER = "energy.counter"
    POWER = "energy.power"
    DEVICE_MEMORY = "memory.device_used"
    PROCESS_MEMORY = "memory.process_used"
    CONTEXT = "memory.driver_context"
    LIBRARIES = "memory.libraries"
    ROUNDING = "rounding"
    LIVE = "post_mortem.live"
    FITTING_BATCH = "post_mortem.fitting_batch"


class RemarkOn(_Text):
    """What a remark is on. A remark is the reason for no missing result: it says what to keep in mind with one."""

    FILE = "file"
    DAMAGE = "damage"
    CHECKSUMS = "checksums"
    LAST_WINDOW = "last window"
    CLEAN_STEPS = "clean steps"
    GIVEN_UP = "given up"  # a window in which tbdprof failed
    THREADS = "threads"
    PHASES = "phases"
    LAYERS = "layers"
    OPERATORS = "operators"
    TRACE = "trace"
    ALLOCATIONS = "allocations"
    TRANSFORMS = "transforms"
    EXISTING_BLOCKS = "existing blocks"
    ALLOCATOR_CACHE = "allocator cache"
    PRIVATE_POOLS = "private pools"
    EXPANDABLE_SEGMENTS = "expandable segments"
    SHARED_MEMORY = "shared_memory"
    FOREIGN_MEMORY = "foreign_memory"
    SENT_MEMORY = "sent memory"
    OTHER_DEVICES = "other devices"
    KERNELS_LOST = "kernels lost"
    KERNELS_TWICE = "kernels told twice"  # the text is that of older files
    CHEAP_KERNELS = "cheap kernels"
    LAUNCHES = "launches of kernels"
    CLOCK = "clock of kernels"
    GRAPHS = "graphs of kernels"
    KERNEL_LAYERS = "layers of kernels"
    KERNEL_COUNTS = "counts of kernels"
    SAMPLES = "samples"
    COUNTED_IN_PART = "counted in part"
    EVENTS = "events"  # how the hook received them


_REMARKS = frozenset(RemarkOn)


def of_window(key: str, window: str) -> str:
    """Return the key of a remark on the windows of this name alone."""
    return f"{key}{_OF_WINDOW}{window})"


def is_remark(key: str) -> bool:
    """Return whether a key is that of a remark, on the run or on one of its windows."""
    subject, of_one_window, _ = key.partition(_OF_WINDOW)
    return bool(of_one_window) or subject in _REMARKS
